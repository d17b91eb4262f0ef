"""The topics with the most appended records a second, since the walk over topics before.

Bounds: two numbers for each topic that a walk looks at, at most 20,000: 5 MB.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

import msgspec

#: The most topics that are named.
BUSIEST: Final = 10


class Busy(msgspec.Struct):
    """A topic that is appended to. The rate is that of all its partitions."""

    topic: str
    appended_per_s: float


class Busiest:
    """Compares the heads of each topic in two walks."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] = {}
        self._before_ts = 0
        self._heads: dict[str, tuple[int, int]] = {}
        self._appended: dict[str, int] = {}

    def see(self, topic: str, epoch: int, head: int) -> None:
        """Take the head of a topic in this walk, summed over its partitions."""
        self._heads[topic] = epoch, head
        before = self._before.get(topic)
        if before is not None and before[0] == epoch and head > before[1]:
            self._appended[topic] = head - before[1]

    def finish(self, ts: int) -> list[Busy]:
        """End the walk. Returns the busiest topics, the busiest first; the first walk finds none."""
        elapsed_s = (ts - self._before_ts) / 1000
        appended, self._appended = self._appended, {}
        self._before, self._heads, self._before_ts = self._heads, {}, ts
        if elapsed_s <= 0:
            return []
        return busiest(Busy(topic, round(count / elapsed_s, 1)) for topic, count in appended.items())


def busiest(found: Iterable[Busy]) -> list[Busy]:
    """The busiest of these, by rate, then by name."""
    return nlargest(BUSIEST, sorted(found, key=lambda busy: busy.topic), key=lambda busy: busy.appended_per_s)
