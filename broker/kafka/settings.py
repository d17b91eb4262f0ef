"""Kafka's topic settings and their meaning here. Pure.

mapped   sets a setting of the topic: retention.ms is ttl_ms, retention.bytes is cap_bytes (-1 there is 0 here), ...
fixed    only the value that describes the broker is accepted
tuning   any valid value is accepted and ignored: files and caches differ from Kafka's

Source: docs/guides/kafka.md#how-kafka-maps-to-topics, docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from storage import CleanupPolicy, CompressionType, Durability, TopicConfig, TopicType

MAX_I64: Final = (1 << 63) - 1
MAX_I32: Final = (1 << 31) - 1

Read: TypeAlias = Callable[[TopicConfig, int], str]
Apply: TypeAlias = Callable[[TopicConfig, str], TopicConfig]


class InvalidConfig(Exception):
    """An unknown setting, or an invalid value. The text is the message for the client."""


class Kind(enum.IntEnum):
    """Types of settings, as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Operation(enum.IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Setting(NamedTuple):
    """`read` returns the value, from the topic's config and the broker's largest record. None: always the default."""

    name: str
    kind: Kind
    default: str
    about: str
    apply: Apply
    read: Read | None = None
    #: AlterConfigs, which replaces all settings, resets this one if it omits it.
    resets: bool = False


def parse_int(text: str, name: str, low: int = -MAX_I64, high: int = MAX_I64) -> int:
    """Parse an integer. Raises InvalidConfig."""
    try:
        value = int(text)
    except ValueError:
        raise InvalidConfig(f"{name}: {text!r} is not an integer.") from None
    if not low <= value <= high:
        raise InvalidConfig(f"{name}: {value} is not from {low} to {high}.")
    return value


def _positive_or_unlimited(text: str, name: str) -> int:
    """Turn Kafka's -1 (no limit) into 0. Kafka's 0 (retain nothing) has no equivalent and is refused."""
    value = parse_int(text, name, -1)
    if value == 0:
        raise InvalidConfig(f"{name}: 0 is not supported. Use -1 for no limit, or at least 1.")
    return max(0, value)


def _shown(value: int) -> str:
    return str(value or -1)


def _retention_ms(config: TopicConfig, text: str) -> TopicConfig:
    return msgspec.structs.replace(config, ttl_ms=_positive_or_unlimited(text, "retention.ms"))


def _retention_bytes(config: TopicConfig, text: str) -> TopicConfig:
    return msgspec.structs.replace(config, cap_bytes=_positive_or_unlimited(text, "retention.bytes"))


def _max_message(config: TopicConfig, text: str) -> TopicConfig:
    return msgspec.structs.replace(config, max_message_bytes=parse_int(text, "max.message.bytes", 0, MAX_I32))


def _cleanup(config: TopicConfig, text: str) -> TopicConfig:
    policies = {each.strip() for each in text.split(",")} - {""}
    policies_text = ",".join(policy for policy in ("compact", "delete") if policy in policies)
    if policies - {"compact", "delete"}:
        raise InvalidConfig(f"cleanup.policy: {text!r} is not delete, compact, both of them, or empty.")
    return msgspec.structs.replace(config, cleanup_policy=CleanupPolicy(policies_text or CleanupPolicy.NONE))


def _compression(config: TopicConfig, text: str) -> TopicConfig:
    kind = "uncompressed" if text.lower() == "none" else text.lower()
    if kind not in list(CompressionType):
        raise InvalidConfig(f"compression.type: {text!r} is not one of {', '.join(CompressionType)}.")
    return msgspec.structs.replace(config, compression_type=CompressionType(kind))


def _durability(config: TopicConfig, text: str) -> TopicConfig:
    if text not in list(Durability):
        raise InvalidConfig(f"topics.durability: {text!r} is not one of {', '.join(Durability)}.")
    return msgspec.structs.replace(config, durability=Durability(text))


def _type(config: TopicConfig, text: str) -> TopicConfig:
    if text not in list(TopicType):
        raise InvalidConfig(f"topics.type: {text!r} is not one of {', '.join(TopicType)}.")
    return msgspec.structs.replace(config, type=TopicType(text))


def _tuning(name: str, kind: Kind, default: str) -> Setting:
    def apply(config: TopicConfig, text: str) -> TopicConfig:
        _check(name, kind, text)
        return config

    return Setting(
        name, kind, default, "Accepted and ignored: files and caches of this broker differ from Kafka's.", apply
    )


def _fixed(name: str, kind: Kind, *values: str, about: str) -> Setting:
    """A fixed setting. The first value is shown; the others mean the same."""

    def apply(config: TopicConfig, text: str) -> TopicConfig:
        if text.lower() not in [value.lower() for value in values]:
            raise InvalidConfig(f"{name} is always {values[0]} here; {text!r} is not supported.")
        return config

    return Setting(name, kind, values[0], about, apply)


def _check(name: str, kind: Kind, text: str) -> None:
    """Raises InvalidConfig if the text is not a value of that kind."""
    if kind in (Kind.INT, Kind.LONG):
        parse_int(text, name, high=MAX_I32 if kind is Kind.INT else MAX_I64)
    elif kind is Kind.BOOLEAN and text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name}: {text!r} is not true or false.")
    elif kind is Kind.DOUBLE:
        try:
            float(text)
        except ValueError:
            raise InvalidConfig(f"{name}: {text!r} is not a number.") from None


def _mapped(
    name: str, kind: Kind, default: str, about: str, apply: Apply, read: Read, *, resets: bool = True
) -> Setting:
    return Setting(name, kind, default, about, apply, read, resets)


SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        _mapped(
            "cleanup.policy", Kind.LIST, "delete",
            "delete, compact, both or empty. Compaction is not implemented: compact and empty delete nothing, and "
            "cannot be combined with a retention limit.",
            _cleanup, lambda config, _: "" if config.cleanup_policy == CleanupPolicy.NONE else config.cleanup_policy,
        ),
        _mapped(
            "retention.ms", Kind.LONG, "-1",
            "Records older than this are deleted; -1 = never, the default (Kafka's default is 7 days).",
            _retention_ms, lambda config, _: _shown(config.ttl_ms),
        ),
        _mapped(
            "retention.bytes", Kind.LONG, "-1", "The most bytes of keys, values and headers in the log; -1 = no limit.",
            _retention_bytes, lambda config, _: _shown(config.cap_bytes),
        ),
        _mapped(
            "max.message.bytes", Kind.INT, "0", "The largest record batch; 0 = the broker's limit.",
            _max_message, lambda config, largest: str(config.max_message_bytes or largest),
        ),
        _mapped(
            "topics.durability", Kind.STRING, "disk",
            "The durability class, which says what an ack means: ephemeral, memory, disk or fsync.",
            _durability, lambda config, _: config.durability.value, resets=False,
        ),
        _mapped(
            "topics.type", Kind.STRING, "log", "log, or queue for share groups. It cannot be changed later.",
            _type, lambda config, _: config.type.value, resets=False,
        ),
        _fixed("message.timestamp.type", Kind.STRING, "CreateTime", about="Producers set the time of records."),
        _fixed("min.insync.replicas", Kind.INT, "1", about="There is one broker. See topics.durability for acks."),
        _fixed("unclean.leader.election.enable", Kind.BOOLEAN, "false", about="There are no elections."),
        _fixed("remote.storage.enable", Kind.BOOLEAN, "false", about="The cold tier is for the whole broker."),
        _mapped(
            "compression.type", Kind.STRING, "producer",
            "The codec of fetched batches; producer = the codec of the partition's producers.",
            _compression, lambda config, _: config.compression_type.value,
        ),
        _tuning("compression.gzip.level", Kind.INT, "-1"),
        _tuning("compression.lz4.level", Kind.INT, "9"),
        _tuning("compression.zstd.level", Kind.INT, "3"),
        _tuning("delete.retention.ms", Kind.LONG, "86400000"),
        _tuning("file.delete.delay.ms", Kind.LONG, "60000"),
        _tuning("flush.messages", Kind.LONG, str(MAX_I64)),
        _tuning("flush.ms", Kind.LONG, str(MAX_I64)),
        _tuning("index.interval.bytes", Kind.INT, "4096"),
        _tuning("max.compaction.lag.ms", Kind.LONG, str(MAX_I64)),
        _tuning("message.downconversion.enable", Kind.BOOLEAN, "false"),
        _tuning("message.timestamp.difference.max.ms", Kind.LONG, str(MAX_I64)),
        _tuning("message.timestamp.before.max.ms", Kind.LONG, str(MAX_I64)),
        _tuning("message.timestamp.after.max.ms", Kind.LONG, str(MAX_I64)),
        _tuning("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5"),
        _tuning("min.compaction.lag.ms", Kind.LONG, "0"),
        _tuning("preallocate", Kind.BOOLEAN, "false"),
        _tuning("segment.bytes", Kind.INT, "1073741824"),
        _tuning("segment.index.bytes", Kind.INT, "10485760"),
        _tuning("segment.jitter.ms", Kind.LONG, "0"),
        _tuning("segment.ms", Kind.LONG, "604800000"),
    )
}  # fmt: skip


def value_of(setting: Setting, config: TopicConfig, largest_record: int) -> str:
    """The topic's value of a setting."""
    return setting.default if setting.read is None else setting.read(config, largest_record)


def is_default(setting: Setting, config: TopicConfig) -> bool:
    """Whether the topic has the default value."""
    return setting.read is None or setting.read(config, 0) == setting.default


def with_values(values: Iterable[tuple[str, str | None]], config: TopicConfig) -> TopicConfig:
    """Set these values in a config; None resets a setting. Raises InvalidConfig."""
    for name, value in values:
        setting = _known(name)
        config = setting.apply(config, setting.default if value is None else value)
    return config


def replaced(values: Iterable[tuple[str, str | None]], config: TopicConfig) -> TopicConfig:
    """Apply AlterConfigs: settings of Kafka that are omitted return to their defaults. Raises InvalidConfig."""
    for setting in SETTINGS.values():
        if setting.resets:
            config = setting.apply(config, setting.default)
    return with_values(values, config)


def altered(operations: Iterable[tuple[str, int, str | None]], config: TopicConfig) -> TopicConfig:
    """Apply the operations of IncrementalAlterConfigs in order. Raises InvalidConfig."""
    for name, operation, value in operations:
        setting = _known(name)
        if operation == Operation.DELETE:
            value = setting.default
        elif value is None:
            raise InvalidConfig(f"{name}: the value is missing.")
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            value = _listed(setting, operation, value, config)
        elif operation != Operation.SET:
            raise InvalidConfig(f"{name}: operation {operation} does not exist.")
        config = setting.apply(config, value)
    return config


def _listed(setting: Setting, operation: int, value: str, config: TopicConfig) -> str:
    if setting.kind is not Kind.LIST:
        raise InvalidConfig(f"{setting.name} is not a list: it cannot be appended to or subtracted from.")
    now = value_of(setting, config, 0).split(",")
    given = [each.strip() for each in value.split(",")]
    if operation == Operation.APPEND:
        return ",".join([*now, *(each for each in given if each not in now)])
    return ",".join(each for each in now if each not in given)


def _known(name: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        raise InvalidConfig(f"Topics have no setting {name!r}.")
    return setting


#: The policies that compact.
COMPACTED: Final = (CleanupPolicy.COMPACT, CleanupPolicy.BOTH)


def is_compacted(config: TopicConfig) -> bool:
    """Whether records without a key are refused."""
    return config.cleanup_policy in COMPACTED


def key_missing(topic: str, partition: int) -> str:
    """The error message for a record without a key, in Kafka's words."""
    return f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}."
