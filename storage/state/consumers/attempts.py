"""Remembers answers for readers that retry with the same attempt_key. In memory, bounded.

Empty answers are remembered too: a first try that arrives after its retry must not get records under a key that
nobody will use again. Over the limit, the records of the oldest answers are dropped, and a retry reads them again: only
the range of such an answer stays, which takes little memory. docs/reference/guarantees.md says what a reader may rely
on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from storage.state.consumers.values import ConsumerRead

ANSWER_TTL_MS = 60_000
#: Bytes counted for an answer, for each of its records (beside the record's own bytes), and for an answer without
#: records.
_OVERHEAD, _RECORD_OVERHEAD, _BARE = 1024, 200, 400


class AnswerRange(NamedTuple):
    """The range of an answer (from exclusive, to inclusive), and the limits of the read.

    `limit` 0: the answer was empty.
    """

    from_seq: int
    to_seq: int
    limit: int
    max_bytes: int


class RememberedAnswer(NamedTuple):
    """An answer, or only its range."""

    until_ms: int
    size: int
    range: AnswerRange
    answer: ConsumerRead | None


class Attempts:
    """Answers by (consumer_id, attempt_key), oldest first. Over the limit the oldest are forgotten early.

    Times are monotonic ms.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._answers: OrderedDict[tuple[int, str], RememberedAnswer] = OrderedDict()
        #: Answers whose records are in memory, oldest first.
        self._whole: OrderedDict[tuple[int, str], None] = OrderedDict()
        self.bytes = 0
        #: Answers repeated, and answers forgotten for lack of room, since the start.
        self.repeated = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._answers)

    def remember(
        self,
        consumer_id: int,
        key: str,
        range_: AnswerRange,
        answer: ConsumerRead | None,
        now_ms: int,
        until_ms: int = 0,
    ) -> None:
        """Remember an answer that is about to be returned; None: the answer was returned before a clean stop."""
        self._drop((consumer_id, key))
        size = _BARE
        if answer is not None and range_.limit:
            # A copy, so that no more memory is held than is counted.
            records = answer.result.records = [*answer.result.records]
            size = _OVERHEAD + sum(len(record.body) + _RECORD_OVERHEAD for record in records)
            self._whole[consumer_id, key] = None
        self._answers[consumer_id, key] = RememberedAnswer(until_ms or now_ms + ANSWER_TTL_MS, size, range_, answer)
        self.bytes += size
        self.expire(now_ms)
        while self.bytes > self._max_bytes:
            if self._whole:
                self._let_go(next(iter(self._whole)))
            else:
                self._drop(next(iter(self._answers)))
                self.forgotten += 1

    def find(self, consumer_id: int, key: str, now_ms: int) -> RememberedAnswer | None:
        """The answer of an earlier read with this key, unless it has expired."""
        answer_ = self._answers.get((consumer_id, key))
        if answer_ is None or answer_.until_ms <= now_ms:
            return None
        self.repeated += 1
        return answer_

    def expire(self, now_ms: int) -> None:
        """Forget expired answers."""
        while self._answers:
            key, answer_ = next(iter(self._answers.items()))
            if answer_.until_ms > now_ms:
                return
            self._drop(key)

    def _let_go(self, key: tuple[int, str]) -> None:
        """Drop the records of an answer, and keep its range."""
        del self._whole[key]
        answer_ = self._answers[key]
        self._answers[key] = answer_._replace(size=_BARE, answer=None)
        self.bytes -= answer_.size - _BARE

    def _drop(self, key: tuple[int, str]) -> None:
        answer_ = self._answers.pop(key, None)
        self._whole.pop(key, None)
        if answer_ is not None:
            self.bytes -= answer_.size
