"""Decides whose records are delivered first when there is no time for all. Pure: time is an argument.

A topic's priority is the configured one, or one that decays with the time since its last write. Work waits in bands
by priority. A band is served in proportion to its weight, and work that waits long counts as of a higher band. So
nothing starves: with every band full, the lowest is served once in as many times as all weights together.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Automatic priority at the moment of a write;
RECENT_PRIORITY: Final = 100
#: it halves in this time,
HALF_LIFE_MS: Final = 30_000
#: and is 0 after this time.
FORGOTTEN_MS: Final = 300_000

#: The lowest priority of each band; below the second value it is band 0.
BAND_FLOORS: Final = (0, 50, 500)
WEIGHTS: Final = (1, 2, 4, 8)
#: Work that has waited this long counts one band higher; after twice the time, two.
AGEING_MS: Final = 50


def effective_priority(priority: int | None, *, auto: bool, last_write_ts: int | None, now_ms: int) -> int:
    """The priority that counts now: -1000 to 1000 when configured, 0 to 100 when automatic. Times are ms."""
    if priority is not None:
        return priority
    if not auto or last_write_ts is None:
        return 0
    age_ms = max(0, now_ms - last_write_ts)
    return 0 if age_ms >= FORGOTTEN_MS else round(RECENT_PRIORITY * 0.5 ** (age_ms / HALF_LIFE_MS))


def band_of(priority: int) -> int:
    """0 (lowest) to 3."""
    return sum(priority >= floor for floor in BAND_FLOORS)


class Bands(Generic[T]):
    """Waiting work, first in first out within a band."""

    __slots__ = ("_bands", "_credit", "_size")

    def __init__(self) -> None:
        self._bands: tuple[deque[tuple[float, T]], ...] = tuple(deque() for _ in WEIGHTS)
        self._credit = [0] * len(WEIGHTS)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, item: T, priority: int, now_ms: float) -> None:
        self._bands[band_of(priority)].append((now_ms, item))
        self._size += 1

    def take(self, now_ms: float) -> T:
        """The next one; there must be one."""
        total, chosen = 0, -1
        for index, band in enumerate(self._bands):
            if not band:
                continue
            weight = WEIGHTS[min(len(WEIGHTS) - 1, index + int((now_ms - band[0][0]) / AGEING_MS))]
            self._credit[index] += weight
            total += weight
            if chosen < 0 or self._credit[index] >= self._credit[chosen]:
                chosen = index
        self._credit[chosen] -= total
        self._size -= 1
        return self._bands[chosen].popleft()[1]
