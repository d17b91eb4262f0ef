"""One consumer's cursor: which records were delivered, which seq is durable, and when a frame is due. Pure.

    durable_seq        the last cursor frame that is synced: a crash takes the cursor back to it
    confirmed_seq      the reader has received everything up to here for certain: it has read again since
    cursor_seq         everything up to here was delivered, including the newest answer

With at_least_once, nothing beyond `confirmed_seq` is written while readers come, because a crash may lose the newest
answer on its way. The next read, a commit or a seek confirms it. Without an attempt_key, a second of idleness or a
clean stop confirms it as well; with one, only the end of the time in which the key may be used again (`awaited`).
At most `persist_every` records lie between `durable_seq` and `cursor_seq`, including the newest answer.

With strictly_once, the cursor is durable before an answer is returned: `durable_seq` equals `cursor_seq`, except for
records that were skipped without being delivered.

Only one frame is in flight at a time, so frames need no order of their own.

Source: docs/reference/api.md#consumers, docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from storage.state.consumers.attempts import AnswerRange
from storage.state.consumers.values import Consistency, ConsumerConfig

#: While readers come, a cursor frame is written after this many skipped seqs.
UNPERSISTED_SEQS = 10_000


class Awaited(NamedTuple):
    """The newest answer, and the time until which its attempt_key may be used again (monotonic ms)."""

    key: str
    range: AnswerRange
    until_ms: int


class Consumer:
    """A named reader of one log. The log has `durable_seq` and `config`; only this process knows the rest."""

    __slots__ = (
        "awaited",
        "config",
        "confirmed",
        "confirmed_seq",
        "consumer_id",
        "cursor_seq",
        "cursor_writer",
        "durable_seq",
        "name",
        "unpersisted",
        "writing",
    )

    def __init__(self, consumer_id: int, name: str, config: ConsumerConfig, durable_seq: int) -> None:
        self.consumer_id = consumer_id
        self.name = name
        self.config = config
        self.durable_seq = durable_seq
        self.confirmed_seq = durable_seq
        self.cursor_seq = durable_seq
        #: Records delivered after `durable_seq`: up to `confirmed_seq`, and up to `cursor_seq`.
        self.confirmed = 0
        self.unpersisted = 0
        #: The answer that idleness must not confirm, if any.
        self.awaited: Awaited | None = None
        #: Records covered by the cursor frame in flight that no earlier frame covers. None: no frame is in flight.
        self.writing: int | None = None
        #: The engine's writer for this consumer; None until it is first used.
        self.cursor_writer: Any = None

    @property
    def strict(self) -> bool:
        return self.config.consistency is Consistency.STRICTLY_AT_ONCE

    @property
    def behind(self) -> bool:
        """Whether the log lacks some of the cursor's progress, and no frame in flight adds it."""
        return self.writing is None and self.cursor_seq != self.durable_seq

    def reset(self) -> None:
        """Go back to the position in the log: after a crash, or at a seek."""
        self.confirmed_seq = self.cursor_seq = self.durable_seq
        self.confirmed = self.unpersisted = 0
        self.awaited = None

    def resume(self, awaited: Awaited) -> None:
        """This answer was unconfirmed at the clean stop, and is unconfirmed again."""
        self.cursor_seq = max(self.cursor_seq, awaited.range.to_seq)
        self.unpersisted = awaited.range.limit if self.cursor_seq > self.durable_seq else 0
        self.awaited = awaited

    def awaits(self, now_ms: int) -> Awaited | None:
        """The newest answer, if its key may still be used again."""
        return self.awaited if self.awaited is not None and self.awaited.until_ms > now_ms else None

    def confirm(self) -> None:
        """The reader has read again or is done, so its last answer has arrived."""
        self.confirmed_seq = self.cursor_seq
        self.confirmed = self.unpersisted
        self.awaited = None

    @property
    def due(self) -> bool:
        """Whether the confirmed cursor should be written now, although nobody waits for it."""
        if self.writing is not None or self.confirmed_seq <= self.durable_seq:
            return False
        unpersisted_seqs = self.confirmed_seq - self.durable_seq - self.confirmed
        return self.confirmed * 2 >= self.config.persist_every or unpersisted_seqs >= UNPERSISTED_SEQS

    def has_room(self, records: int) -> bool:
        """Whether this many more records may be delivered before another frame is durable."""
        return not records or not self.unpersisted or self.unpersisted + records <= self.config.persist_every

    def deliver(self, seq: int, records: int) -> None:
        """Deliver this many records and move the cursor to `seq`. This confirms earlier answers."""
        self.cursor_seq = seq
        self.unpersisted += records

    def take_back(self, before_seq: int, seq: int, records: int) -> bool:
        """The answer that moved the cursor from `before_seq` to `seq` reached nobody: undo it.

        Returns False and does nothing when the cursor has moved since. The log is not written here.
        """
        if self.cursor_seq != seq:
            return False
        self.cursor_seq = before_seq
        self.confirmed_seq = min(self.confirmed_seq, before_seq)
        self.unpersisted = max(0, self.unpersisted - records)
        self.confirmed = min(self.confirmed, self.unpersisted)
        return True

    def write(self) -> int:
        """A frame with the confirmed cursor is now in flight; returns its seq."""
        assert self.writing is None, "one frame at a time"
        self.writing = self.confirmed
        return self.confirmed_seq

    def write_other(self) -> None:
        """A frame with another seq is in flight. Once it is durable, `moved_to` or `reset` apply it."""
        assert self.writing is None, "one frame at a time"
        self.writing = 0

    def written(self, *, durable: bool) -> None:
        """The frame in flight is durable (and applied: `durable_seq` has its value), or has failed."""
        covered, self.writing = self.writing or 0, None
        if durable:
            self.confirmed = max(0, self.confirmed - covered)
            self.unpersisted = max(0, self.unpersisted - covered)

    def moved_to(self, seq: int) -> None:
        """The log has a new position for the cursor: an earlier commit, or a seek.

        After a commit, records delivered beyond it stay delivered. A seek also resets.
        """
        self.awaited = None
        self.cursor_seq = max(self.cursor_seq, seq)
        self.confirmed_seq = max(self.confirmed_seq, seq)
        self.unpersisted = min(self.unpersisted, self.cursor_seq - seq)
        self.confirmed = min(self.confirmed, self.confirmed_seq - seq, self.unpersisted)
