"""One consumer's cursor: what was handed out, what is durable of it, what has to be written when. Pure.

    durable_seq        the last cursor frame that is synced: where a crash takes it back to
    confirmed_seq      what the reader has for certain: it has come again since
    cursor_seq         what was handed out, the newest answer included

At least once, nothing beyond `confirmed_seq` is written while readers come: an answer on its way may be lost in the
crash that follows. The next read, a commit or a seek says that it has arrived. Without an attempt_key so do a second of
silence and a clean stop; with one, only the end of the time in which the key may come again (`awaited`).
At most `persist_every` records stand between `durable_seq` and `cursor_seq`, the newest answer included.

Strictly at once, the cursor is durable before an answer is given: `durable_seq` is `cursor_seq`, but for what was
passed over without being handed out.

One frame is on its way at a time, so they need no order of their own. Source: api.md §7; storage.md §9.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from storage.state.consumers.attempts import Span
from storage.state.consumers.values import Consistency, ConsumerConfig

#: So many seqs may be passed over, nothing of them handed out, before the log is told while readers come.
PASSED_SEQS = 10_000


class Awaited(NamedTuple):
    """The newest answer, given to an attempt_key that may come again until then (monotonic ms)."""

    key: str
    span: Span
    until_ms: int


class Consumer:
    """A named reader of one log. `durable_seq` and `config` are what the log says, all else is of this process."""

    __slots__ = (
        "awaited",
        "config",
        "confirmed",
        "confirmed_seq",
        "consumer_id",
        "cursor_seq",
        "desk",
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
        #: Records handed out behind `durable_seq`, up to `confirmed_seq` and up to `cursor_seq`.
        self.confirmed = 0
        self.unpersisted = 0
        #: What keeps silence from confirming the newest answer.
        self.awaited: Awaited | None = None
        #: A cursor frame is on its way: how many records it covers that no frame before it does. None: there is none.
        self.writing: int | None = None
        #: Where an engine serves it; None: nobody has asked yet.
        self.desk: Any = None

    @property
    def strict(self) -> bool:
        return self.config.consistency is Consistency.STRICTLY_AT_ONCE

    @property
    def behind(self) -> bool:
        """Whether the log does not know all of it, nor is being told."""
        return self.writing is None and self.cursor_seq != self.durable_seq

    def reset(self) -> None:
        """A crash, or a seek: the log is right."""
        self.confirmed_seq = self.cursor_seq = self.durable_seq
        self.confirmed = self.unpersisted = 0
        self.awaited = None

    def resume(self, awaited: Awaited) -> None:
        """A clean stop found this answer unconfirmed: it is so again."""
        self.cursor_seq = max(self.cursor_seq, awaited.span.to_seq)
        self.unpersisted = awaited.span.limit if self.cursor_seq > self.durable_seq else 0
        self.awaited = awaited

    def awaits(self, now_ms: int) -> Awaited | None:
        """The newest answer, if its key may still come again."""
        return self.awaited if self.awaited is not None and self.awaited.until_ms > now_ms else None

    def confirm(self) -> None:
        """The reader has come again, or is done: what it was handed has reached it."""
        self.confirmed_seq = self.cursor_seq
        self.confirmed = self.unpersisted
        self.awaited = None

    @property
    def due(self) -> bool:
        """Whether what is confirmed should be written now, with nobody waiting for it."""
        if self.writing is not None or self.confirmed_seq <= self.durable_seq:
            return False
        passed = self.confirmed_seq - self.durable_seq - self.confirmed
        return self.confirmed * 2 >= self.config.persist_every or passed >= PASSED_SEQS

    def has_room(self, records: int) -> bool:
        """Whether so many more may be handed out before another frame is durable."""
        return not records or not self.unpersisted or self.unpersisted + records <= self.config.persist_every

    def hand_out(self, seq: int, records: int) -> None:
        """An answer with so many records takes the cursor to `seq`; what was handed out before is confirmed."""
        self.cursor_seq = seq
        self.unpersisted += records

    def take_back(self, before_seq: int, seq: int, records: int) -> bool:
        """The answer that took the cursor from `before_seq` to `seq` has reached nobody: as if it had not been given.

        False, and nothing was done, where the cursor stands elsewhere by now. What the log knows stays for now.
        """
        if self.cursor_seq != seq:
            return False
        self.cursor_seq = before_seq
        self.confirmed_seq = min(self.confirmed_seq, before_seq)
        self.unpersisted = max(0, self.unpersisted - records)
        self.confirmed = min(self.confirmed, self.unpersisted)
        return True

    def write(self) -> int:
        """A frame that says what is confirmed is on its way: the seq."""
        assert self.writing is None, "one frame at a time"
        self.writing = self.confirmed
        return self.confirmed_seq

    def write_other(self) -> None:
        """A frame with another seq is on its way; once it is durable, `placed` or `reset` say what it means."""
        assert self.writing is None, "one frame at a time"
        self.writing = 0

    def written(self, *, durable: bool) -> None:
        """That frame is durable (and applied, so that `durable_seq` says so), or has failed."""
        covered, self.writing = self.writing or 0, None
        if durable:
            self.confirmed = max(0, self.confirmed - covered)
            self.unpersisted = max(0, self.unpersisted - covered)

    def placed(self, seq: int) -> None:
        """The log says that it stands at `seq`, because somebody has put it there: a commit in front, or a seek.

        What was handed out behind it stays handed out after a commit; a seek resets besides.
        """
        self.awaited = None
        self.cursor_seq = max(self.cursor_seq, seq)
        self.confirmed_seq = max(self.confirmed_seq, seq)
        self.unpersisted = min(self.unpersisted, self.cursor_seq - seq)
        self.confirmed = min(self.confirmed, self.confirmed_seq - seq, self.unpersisted)
