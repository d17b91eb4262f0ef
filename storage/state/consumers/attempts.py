"""Answers that may have got lost, for readers that ask again with the same attempt_key. In memory, bounded.

An empty answer is one, too: a first try that comes in late, behind its repetition, must not be given records under a
key that nobody asks for again. Over the limit the records of the oldest answers are let go first, and read again when
they are asked for: where an answer began and ended takes little. docs/guarantees.md says what a reader may rely on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from storage.state.consumers.values import ConsumerRead

KEPT_MS = 60_000
#: Of an answer, and of a record in it, beside its bytes; of an answer whose records have been let go.
_OVERHEAD, _RECORD_OVERHEAD, _BARE = 1024, 200, 400


class Span(NamedTuple):
    """Where an answer began (exclusive) and ended (inclusive), and by what limits it ended there.

    `limit` 0: it was empty.
    """

    from_seq: int
    to_seq: int
    limit: int
    max_bytes: int


class Kept(NamedTuple):
    """An answer, or only where it was."""

    until_ms: int
    size: int
    span: Span
    answer: ConsumerRead | None


class Attempts:
    """Answers by (consumer_id, attempt_key), the oldest first; those over the limit are forgotten early.

    Times are monotonic ms.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[int, str], Kept] = OrderedDict()
        #: Those whose records are here, the oldest first.
        self._whole: OrderedDict[tuple[int, str], None] = OrderedDict()
        self.bytes = 0
        #: Answers given again, and answers forgotten for want of room, since the start.
        self.repeated = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._kept)

    def remember(
        self, consumer_id: int, key: str, span: Span, answer: ConsumerRead | None, now_ms: int, until_ms: int = 0
    ) -> None:
        """The answer is about to be given, or (None) was before a clean stop."""
        self._drop((consumer_id, key))
        size = _BARE
        if answer is not None and span.limit:
            # Made now, so that no more is kept than is counted.
            records = answer.result.records = [*answer.result.records]
            size = _OVERHEAD + sum(len(record.body) + _RECORD_OVERHEAD for record in records)
            self._whole[consumer_id, key] = None
        self._kept[consumer_id, key] = Kept(until_ms or now_ms + KEPT_MS, size, span, answer)
        self.bytes += size
        self.expire(now_ms)
        while self.bytes > self._max_bytes:
            if self._whole:
                self._let_go(next(iter(self._whole)))
            else:
                self._drop(next(iter(self._kept)))
                self.forgotten += 1

    def find(self, consumer_id: int, key: str, now_ms: int) -> Kept | None:
        """The answer of an earlier read with this key, if it is not too long ago."""
        kept = self._kept.get((consumer_id, key))
        if kept is None or kept.until_ms <= now_ms:
            return None
        self.repeated += 1
        return kept

    def expire(self, now_ms: int) -> None:
        """Forget what nobody may ask for any more."""
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.until_ms > now_ms:
                return
            self._drop(key)

    def _let_go(self, key: tuple[int, str]) -> None:
        """Of the records of an answer; where it was stays known."""
        del self._whole[key]
        kept = self._kept[key]
        self._kept[key] = kept._replace(size=_BARE, answer=None)
        self.bytes -= kept.size - _BARE

    def _drop(self, key: tuple[int, str]) -> None:
        kept = self._kept.pop(key, None)
        self._whole.pop(key, None)
        if kept is not None:
            self.bytes -= kept.size
