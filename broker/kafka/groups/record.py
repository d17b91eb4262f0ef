"""The durable record of a group: a value of kind `group` in the engine's states, by group id (MessagePack). Pure.

    g   the last generation
    t   protocol type: consumer, connect, sr, …; "" for a group that has only committed offsets
    e   when the last member left, ms since the epoch; 0: the group has members
    o   prefixes of the key that created it, [] for a key without prefixes; nil: unknown

Members are not recorded: after a restart they join again. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Final

import msgspec

KIND: Final = "group"


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    generation: int = msgspec.field(default=0, name="g")
    protocol_type: str = msgspec.field(default="", name="t")
    empty_ms: int = msgspec.field(default=0, name="e")
    owner: tuple[str, ...] | None = msgspec.field(default=None, name="o")

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> GroupRecord:
        """Decode a record. Raises ValueError for other bytes."""
        return msgspec.msgpack.decode(value, type=cls)
