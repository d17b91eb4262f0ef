"""What goes into consumers and what comes out: plain values, no behaviour. Source: api.md §7; storage.md §9."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from storage.records.values import ReadResult

#: Where a cursor is put. A seq counts as done, as `from_seq` of a read does: the first record handed out is the next
#: one. "earliest": in front of the oldest record there is; "head": behind the newest.
Start: TypeAlias = int | Literal["earliest", "head"]


class Consistency(enum.StrEnum):
    """What a crash of the broker does to a consumer: some records come again, or none does."""

    AT_LEAST_ONCE = "at_least_once"
    STRICTLY_AT_ONCE = "strictly_at_once"


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's settings. `persist_every` counts records handed out, at least 1; at_least_once only.

    After a crash at most so many come again, and one read hands out no more than that.
    """

    consistency: Consistency = Consistency.AT_LEAST_ONCE
    persist_every: int = 1000

    def to_map(self) -> dict[str, Any]:
        """As stored in frames and snapshots, and as echoed: every field by name."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_map(cls, value: dict[str, Any]) -> ConsumerConfig:
        """Reads what `to_map` made; fields it does not know are ignored, missing ones take their defaults."""
        return msgspec.convert(value, cls)


class ConsumerState(msgspec.Struct, kw_only=True):
    """A consumer as it is now.

    `cursor_seq`: everything up to here was handed out, left out or committed. `durable_seq`: where a crash takes the
    cursor back to. `unread`: live records behind the cursor. `lag`: head_seq - cursor_seq.
    """

    topic: str
    consumer: str
    consumer_id: int
    config: ConsumerConfig
    cursor_seq: int
    durable_seq: int
    unread: int
    lag: int
    head_seq: int


class ConsumerRead(msgspec.Struct, kw_only=True):
    """What a read gave. `cursor_seq` and `unread` are the consumer's behind it (a peek does not change them).

    `repeated`: the answer of an earlier read with the same attempt_key, given again, `cursor_seq` and all.
    `take_back`: what `undo` does; None where there is nothing to be undone.
    """

    result: ReadResult
    consumer: str
    cursor_seq: int
    unread: int
    repeated: bool = False
    take_back: Callable[[], None] | None = None

    def undo(self) -> None:
        """For an answer that certainly reaches nobody: the next reader is given it, unless one was given more already.

        One with an attempt_key stands, for its repetition.
        """
        if self.take_back is not None:
            self.take_back()
