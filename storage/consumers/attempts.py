"""Answers that may have got lost, for readers that ask again with the same attempt_key. In memory, bounded.

Source: api.md §7 (60 s).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from storage.consumers.values import ConsumerRead

KEPT_MS = 60_000
#: Of an answer, and of a record in it, beside its bytes.
_OVERHEAD, _RECORD_OVERHEAD = 1024, 200


class _Kept(NamedTuple):
    until_ms: int
    size: int
    answer: ConsumerRead


class Attempts:
    """Answers by (consumer_id, attempt_key), the oldest first; those over the limit are forgotten early.

    Times are monotonic ms.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[int, str], _Kept] = OrderedDict()
        self.bytes = 0
        #: Answers given again, and answers forgotten for want of room, since the start.
        self.repeated = 0
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._kept)

    def remember(self, consumer_id: int, key: str, answer: ConsumerRead, now_ms: int) -> None:
        """The answer is about to be given. One larger than the limit is not kept."""
        self._drop((consumer_id, key))
        # Made now, so that no more is kept than is counted.
        records = answer.result.records = [*answer.result.records]
        size = _OVERHEAD
        for record in records:
            size += len(record.body) + _RECORD_OVERHEAD
        self._kept[consumer_id, key] = _Kept(now_ms + KEPT_MS, size, answer)
        self.bytes += size
        self.expire(now_ms)
        while self.bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))
            self.forgotten += 1

    def find(self, consumer_id: int, key: str, now_ms: int) -> ConsumerRead | None:
        """The answer of an earlier read with this key, if it is not too long ago."""
        kept = self._kept.get((consumer_id, key))
        if kept is None or kept.until_ms <= now_ms:
            return None
        self.repeated += 1
        return kept.answer

    def expire(self, now_ms: int) -> None:
        """Forget what nobody may ask for any more."""
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.until_ms > now_ms:
                return
            self._drop(key)

    def _drop(self, key: tuple[int, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.bytes -= kept.size
