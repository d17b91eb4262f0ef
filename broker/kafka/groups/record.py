"""What outlives the process of a group: a value of kind `group` in the engine's states, by group id (MessagePack).

    g   generation: the last one that was begun
    t   protocol type: consumer, connect, sr, …; "" for a group that only ever committed offsets
    e   since when nobody is in it, ms since the epoch; 0: somebody is
    o   prefixes of the key whose member made it, [] for a key without any; nil: not known

Members are not among it: after a restart they join again. Fields that are not known are ignored. Pure.
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
        """Raises ValueError for bytes that no broker has written."""
        return msgspec.msgpack.decode(value, type=cls)
