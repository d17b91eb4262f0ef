"""Schedules deliveries: a limited amount in each round of the event loop, so that requests are not delayed.

Below the limit nobody waits. Above it the topics' priorities decide whose records are delivered first. Work is counted
in writes to a connection, about 15 µs each.

A topic's priority is the configured one, or one that decays with the time since its last write. Work waits in bands
by priority. A band is served in proportion to its weight, and work that waits long counts as of a higher band. So
nothing starves: with every band full, the lowest is served once in as many times as all weights together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Writes in one round of the loop: about 2 ms.
ROUND: Final = 128
#: The cost of reading and rendering records, in writes.
READING: Final = 8

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

    __slots__ = ("_bands", "_credit", "size")

    def __init__(self) -> None:
        self._bands: tuple[deque[tuple[float, T]], ...] = tuple(deque() for _ in WEIGHTS)
        self._credit = [0] * len(WEIGHTS)
        #: The number of waiting items; the same as `len`, without a call.
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def add(self, item: T, priority: int, now_ms: float) -> None:
        self._bands[band_of(priority)].append((now_ms, item))
        self.size += 1

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
        self.size -= 1
        return self._bands[chosen].popleft()[1]


class DeliveryScheduler:
    """`await take(cost, priority)` before each piece of work of at most `ROUND`.

    `now_ns` is a clock that never goes back. A round takes 1/`share` of its limit: `share` is above 1 under
    pressure.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns, share: Callable[[], int] | None = None) -> None:
        self._now_ns = now_ns
        self._share = share
        self._left = ROUND
        self._waiting: Bands[tuple[asyncio.Future[None], int]] = Bands()
        self._round_is_due = False
        #: How often a delivery had to wait.
        self.waits_total = 0

    @property
    def waiting(self) -> int:
        return self._waiting.size

    async def take(self, cost: int, priority: Callable[[], int]) -> None:
        """Return when this work may run. A round always finishes the work it has begun, however large."""
        if not self.try_take(cost):
            await self.wait(cost, priority)

    def try_take(self, cost: int) -> bool:
        """Whether this work may run at once; if not, it can `wait`."""
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._left <= 0 or self._waiting.size:
            return False
        self._left -= cost
        return True

    def wait(self, cost: int, priority: Callable[[], int]) -> asyncio.Future[None]:
        """A future that is done when work may run for which `try_take` had no room."""
        self.waits_total += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add((waiter, cost), priority(), self._now_ns() / 1e6)
        return waiter

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        self._left = ROUND if self._share is None else ROUND // self._share()
        self._round_is_due = self._waiting.size > 0
        while self._left > 0 and self._waiting.size:
            waiter, cost = self._waiting.take(self._now_ns() / 1e6)
            if not waiter.done():  # otherwise its caller is gone
                waiter.set_result(None)
                self._left -= cost
        if self._round_is_due:
            loop.call_soon(self._next_round)
