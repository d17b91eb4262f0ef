"""Arguments and results of consumer operations: plain values, no behaviour.

Source: docs/reference/api.md#consumers, docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from storage.records import ReadResult

#: A position for a cursor. A seq counts as done, like `from_seq` of a read: the record after it is delivered first.
#: "earliest": before the oldest record; "head": after the newest.
Start: TypeAlias = int | Literal["earliest", "head"]


class Consistency(enum.StrEnum):
    """What a crash of the broker does to a consumer: some records are delivered again, or none."""

    AT_LEAST_ONCE = "at_least_once"
    STRICTLY_AT_ONCE = "strictly_at_once"


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's settings. `persist_every` counts delivered records, at least 1; for at_least_once only.

    After a crash at most that many records are delivered again, and one read returns no more than that.
    """

    consistency: Consistency = Consistency.AT_LEAST_ONCE
    persist_every: int = 1000

    def to_map(self) -> dict[str, Any]:
        """As stored in frames and snapshots, and as shown: every field by name."""
        return msgspec.to_builtins(self)

    @classmethod
    def from_map(cls, value: dict[str, Any]) -> ConsumerConfig:
        """Reads the result of `to_map`. Ignores unknown fields; missing ones get their defaults."""
        return msgspec.convert(value, cls)


class ConsumerState(msgspec.Struct, kw_only=True):
    """A consumer as it is now.

    `cursor_seq`: everything up to here was delivered, skipped or committed. `durable_seq`: a crash takes the cursor
    back to here. `unread`: live records after the cursor. `lag`: head_seq - cursor_seq.
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
    """The result of a read. `cursor_seq` and `unread` are the consumer's after the read (a peek changes neither).

    `repeated`: this is the answer of an earlier read with the same attempt_key, including `cursor_seq`. `take_back`:
    what `undo` calls; None when there is nothing to undo.
    """

    result: ReadResult
    consumer: str
    cursor_seq: int
    unread: int
    repeated: bool = False
    take_back: Callable[[], None] | None = None

    def undo(self) -> None:
        """The answer reached nobody: the next reader gets it, unless later records were delivered already.

        An answer with an attempt_key stays, for its retry.
        """
        if self.take_back is not None:
            self.take_back()
