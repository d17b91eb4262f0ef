"""A consumer instance and its encoding. Pure.

The engine stores it as a state in MessagePack, with the key `group/name`. Changes are stored before they are answered,
except read positions, which are stored within a second: after a crash, the instance continues from the stored ones, so
that some records are delivered again and none is skipped.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from broker.proxy.assignment import Partition
from broker.proxy.errors import InvalidConsumerConfig, Unprocessable
from broker.proxy.media import Format

KIND: Final = "proxy_instance"
#: The longest name of a group or an instance, in UTF-8.
MAX_NAME_BYTES: Final = 255
_RESETS: Final = ("earliest", "latest", "none")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an instance, from its creation."""

    format: Format = Format.BINARY
    #: Where to begin in a partition without a committed offset.
    reset: str = "latest"
    #: Whether a read commits the records of the previous read.
    auto_commit: bool = True
    timeout_ms: int | None = None
    min_bytes: int = 1


class Instance(msgspec.Struct, kw_only=True):
    """A member of a group. `positions`: for each of its partitions, the offset that it reads next.

    `topics` or `pattern`: its subscription; `chosen`: manually assigned partitions, outside the group. `known`: its
    topics that existed when it subscribed; others are read from their beginning. `prefixes`: of the key that created it
    or last subscribed it; its pattern only matches topics that these cover.
    """

    group: str
    name: str
    config: Config
    topics: list[str] = []
    pattern: str | None = None
    prefixes: list[str] = []
    known: list[str] = []
    chosen: list[Partition] | None = None
    positions: dict[Partition, int] = {}

    @property
    def key(self) -> str:
        """The key of its state. Neither name contains "/"."""
        return f"{self.group}/{self.name}"

    @property
    def subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def encode(self) -> bytes:
        fields_ = msgspec.to_builtins(self, builtin_types=(bytes,), str_keys=False)
        fields_["positions"] = [[topic, number, offset] for (topic, number), offset in self.positions.items()]
        return msgspec.msgpack.encode(fields_)

    @classmethod
    def decode(cls, value: bytes) -> Instance:
        """Raises msgspec.DecodeError."""
        fields_: dict[str, Any] = msgspec.msgpack.decode(value)
        positions: list[Any] = fields_.pop("positions")
        instance = msgspec.convert(fields_, cls)
        instance.positions = {(topic, number): offset for topic, number, offset in positions}
        return instance


def check_name(name: str, field: str) -> None:
    """Raises Unprocessable for an invalid name of a group or instance."""
    if not 0 < len(name.encode()) <= MAX_NAME_BYTES or "/" in name or not name.isprintable():
        raise Unprocessable(f"{field}: expected 1 to {MAX_NAME_BYTES} bytes of printable characters without a slash.")


def config_of(given: dict[str, Any]) -> Config:
    """The config in the body that creates an instance. Ignores unknown fields. Raises InvalidConsumerConfig."""
    format = given.get("format") or "binary"
    if format not in list(Format):
        raise InvalidConsumerConfig(f"Invalid format type. The format was {format!r}; expected binary, json or text.")
    reset = given.get("auto.offset.reset") or "latest"
    if reset not in _RESETS:
        raise InvalidConsumerConfig(f"auto.offset.reset is {reset!r}; expected earliest, latest or none.")
    timeout_ms = _number(given, "consumer.request.timeout.ms")
    min_bytes = _number(given, "fetch.min.bytes")
    return Config(
        format=Format(format),
        reset=reset,
        auto_commit=_flag(given, "auto.commit.enable", True),
        timeout_ms=timeout_ms,
        min_bytes=1 if min_bytes is None else max(1, min_bytes),
    )


def _flag(given: dict[str, Any], name: str, default: bool) -> bool:
    value = given.get(name)
    match value:
        case None:
            return default
        case bool():
            return value
        case "true" | "false":
            return value == "true"
        case _:
            raise InvalidConsumerConfig(f"{name} is {value!r}; expected true or false.")


def _number(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None or value == -1:
        return None
    try:
        number = int(value) if isinstance(value, str | int) and not isinstance(value, bool) else -1
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise InvalidConsumerConfig(f"{name} is {value!r}; expected a number.")
    return number
