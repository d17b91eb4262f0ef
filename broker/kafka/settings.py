"""Kafka's topic settings and their meaning here. Pure.

mapped   a setting of ours: retention.ms is ttl_ms, retention.bytes is cap_bytes (-1 there is 0 here), ...
fixed    only its own value is accepted: the broker works that way
tuning   any value of its kind is accepted and changes nothing: files and caches differ from Kafka's

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
    """A setting that there is not, or a value that it cannot have. The text is for the client."""


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
    """`read` gets the topic's config and the broker's largest record; None: the setting always has its default."""

    name: str
    kind: Kind
    default: str
    about: str
    apply: Apply
    read: Read | None = None
    #: A legacy AlterConfigs, which replaces all settings, resets it if it leaves it out.
    resets: bool = False


def whole(text: str, name: str, low: int = -MAX_I64, high: int = MAX_I64) -> int:
    """Raises InvalidConfig."""
    try:
        value = int(text)
    except ValueError:
        raise InvalidConfig(f"{name}: {text!r} is no whole number.") from None
    if not low <= value <= high:
        raise InvalidConfig(f"{name}: {value} is not between {low} and {high}.")
    return value


def _or_never(text: str, name: str) -> int:
    """Turn Kafka's -1 (never, no limit) into 0. Kafka's 0 would mean to retain nothing, which no setting here can."""
    value = whole(text, name, -1)
    if value == 0:
        raise InvalidConfig(f"{name}: 0 is not served; -1 is no limit, and the least is 1.")
    return max(0, value)


def _shown(value: int) -> str:
    return str(value or -1)


def _retention_ms(config: TopicConfig, text: str) -> TopicConfig:
    return msgspec.structs.replace(config, ttl_ms=_or_never(text, "retention.ms"))


def _retention_bytes(config: TopicConfig, text: str) -> TopicConfig:
    return msgspec.structs.replace(config, cap_bytes=_or_never(text, "retention.bytes"))


def _max_message(config: TopicConfig, text: str) -> TopicConfig:
    return msgspec.structs.replace(config, max_message_bytes=whole(text, "max.message.bytes", 0, MAX_I32))


def _cleanup(config: TopicConfig, text: str) -> TopicConfig:
    policies = {each.strip() for each in text.split(",")} - {""}
    policies_text = ",".join(policy for policy in ("compact", "delete") if policy in policies)
    if policies - {"compact", "delete"}:
        raise InvalidConfig(f"cleanup.policy: {text!r} is not delete, compact, both, or an empty list.")
    return msgspec.structs.replace(config, cleanup_policy=CleanupPolicy(policies_text or CleanupPolicy.NONE))


def _compression(config: TopicConfig, text: str) -> TopicConfig:
    kind = "uncompressed" if text.lower() == "none" else text.lower()
    if kind not in list(CompressionType):
        raise InvalidConfig(f"compression.type: {text!r} is none of {', '.join(CompressionType)}.")
    return msgspec.structs.replace(config, compression_type=CompressionType(kind))


def _durability(config: TopicConfig, text: str) -> TopicConfig:
    if text not in list(Durability):
        raise InvalidConfig(f"topics.durability: {text!r} is none of {', '.join(Durability)}.")
    return msgspec.structs.replace(config, durability=Durability(text))


def _type(config: TopicConfig, text: str) -> TopicConfig:
    if text not in list(TopicType):
        raise InvalidConfig(f"topics.type: {text!r} is none of {', '.join(TopicType)}.")
    return msgspec.structs.replace(config, type=TopicType(text))


def _tuning(name: str, kind: Kind, default: str) -> Setting:
    def apply(config: TopicConfig, text: str) -> TopicConfig:
        _check(name, kind, text)
        return config

    return Setting(name, kind, default, "Taken and not acted on: files and caches are the broker's own.", apply)


def _fixed(name: str, kind: Kind, *values: str, about: str) -> Setting:
    """A fixed setting. The first value is the one shown; the others mean the same."""

    def apply(config: TopicConfig, text: str) -> TopicConfig:
        if text.lower() not in [value.lower() for value in values]:
            raise InvalidConfig(f"{name} is {values[0]} here, and cannot be {text!r}.")
        return config

    return Setting(name, kind, values[0], about, apply)


def _check(name: str, kind: Kind, text: str) -> None:
    """Raises InvalidConfig if the text is not a value of that kind."""
    if kind in (Kind.INT, Kind.LONG):
        whole(text, name, high=MAX_I32 if kind is Kind.INT else MAX_I64)
    elif kind is Kind.BOOLEAN and text.lower() not in ("true", "false"):
        raise InvalidConfig(f"{name}: {text!r} is not true or false.")
    elif kind is Kind.DOUBLE:
        try:
            float(text)
        except ValueError:
            raise InvalidConfig(f"{name}: {text!r} is no number.") from None


def _mapped(
    name: str, kind: Kind, default: str, about: str, apply: Apply, read: Read, *, resets: bool = True
) -> Setting:
    return Setting(name, kind, default, about, apply, read, resets)


SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        _mapped(
            "cleanup.policy", Kind.LIST, "delete",
            "compact: nothing is dropped, since there is no compaction yet; retention is refused with it, as with "
            "an empty list, which drops nothing either.",
            _cleanup, lambda config, _: "" if config.cleanup_policy == CleanupPolicy.NONE else config.cleanup_policy,
        ),
        _mapped(
            "retention.ms", Kind.LONG, "-1",
            "Records older than this are gone; -1 = never, which is the default here (Kafka's is 7 days).",
            _retention_ms, lambda config, _: _shown(config.ttl_ms),
        ),
        _mapped(
            "retention.bytes", Kind.LONG, "-1", "Most bytes of keys, values and headers; -1 = no limit.",
            _retention_bytes, lambda config, _: _shown(config.cap_bytes),
        ),
        _mapped(
            "max.message.bytes", Kind.INT, "0", "Largest record batch; 0 = as large as records may be.",
            _max_message, lambda config, largest: str(config.max_message_bytes or largest),
        ),
        _mapped(
            "topics.durability", Kind.STRING, "disk", "What an ack means: ephemeral, memory, disk or fsync.",
            _durability, lambda config, _: config.durability.value, resets=False,
        ),
        _mapped(
            "topics.type", Kind.STRING, "log", "log, or queue for share groups; cannot be changed later.",
            _type, lambda config, _: config.type.value, resets=False,
        ),
        _fixed("message.timestamp.type", Kind.STRING, "CreateTime", about="Producers say when."),
        _fixed("min.insync.replicas", Kind.INT, "1", about="There is one broker; see topics.durability for acks."),
        _fixed("unclean.leader.election.enable", Kind.BOOLEAN, "false", about="There are no elections."),
        _fixed("remote.storage.enable", Kind.BOOLEAN, "false", about="The cold tier is set for the whole broker."),
        _mapped(
            "compression.type", Kind.STRING, "producer",
            "How fetched batches are compressed; producer = as the producers of the partition compress theirs.",
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
    """The value that a topic has."""
    return setting.default if setting.read is None else setting.read(config, largest_record)


def is_default(setting: Setting, config: TopicConfig) -> bool:
    """Whether the topic has the default."""
    return setting.read is None or setting.read(config, 0) == setting.default


def made(values: Iterable[tuple[str, str | None]], config: TopicConfig) -> TopicConfig:
    """A config with these settings on top. Raises InvalidConfig."""
    for name, value in values:
        setting = _known(name)
        config = setting.apply(config, setting.default if value is None else value)
    return config


def replaced(values: Iterable[tuple[str, str | None]], config: TopicConfig) -> TopicConfig:
    """Apply AlterConfigs: Kafka's own settings that are left out return to their defaults."""
    for setting in SETTINGS.values():
        if setting.resets:
            config = setting.apply(config, setting.default)
    return made(values, config)


def altered(operations: Iterable[tuple[str, int, str | None]], config: TopicConfig) -> TopicConfig:
    """Apply the operations of IncrementalAlterConfigs in order. Raises InvalidConfig."""
    for name, operation, value in operations:
        setting = _known(name)
        if operation == Operation.DELETE:
            value = setting.default
        elif value is None:
            raise InvalidConfig(f"{name}: there is no value.")
        elif operation in (Operation.APPEND, Operation.SUBTRACT):
            value = _listed(setting, operation, value, config)
        elif operation != Operation.SET:
            raise InvalidConfig(f"{name}: there is no operation {operation}.")
        config = setting.apply(config, value)
    return config


def _listed(setting: Setting, operation: int, value: str, config: TopicConfig) -> str:
    if setting.kind is not Kind.LIST:
        raise InvalidConfig(f"{setting.name} is no list to add to or take from.")
    now = value_of(setting, config, 0).split(",")
    given = [each.strip() for each in value.split(",")]
    if operation == Operation.APPEND:
        return ",".join([*now, *(each for each in given if each not in now)])
    return ",".join(each for each in now if each not in given)


def _known(name: str) -> Setting:
    setting = SETTINGS.get(name)
    if setting is None:
        raise InvalidConfig(f"There is no setting {name!r}.")
    return setting
