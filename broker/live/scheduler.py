"""Schedules deliveries: a limited amount in each round of the event loop, so that requests are not delayed.

Below the limit nobody waits. Above it the topics' priorities decide (see `priority`). Work is counted in writes to a
connection, about 15 µs each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from broker.live.priority import Bands

#: Writes in one round of the loop: about 2 ms.
ROUND: Final = 128
#: The cost of reading and rendering records, in writes.
READING: Final = 8


class DeliveryScheduler:
    """`await take(cost, priority)` before each piece of work of at most `ROUND`.

    `now_ns` is a clock that never goes back. A round takes 1/`share` of its limit: `share` is above 1 under
    pressure.
    """

    def __init__(self, now_ns: Callable[[], int] = monotonic_ns, share: Callable[[], int] = lambda: 1) -> None:
        self._now_ns = now_ns
        self._share = share
        self._left = ROUND
        self._waiting: Bands[tuple[asyncio.Future[None], int]] = Bands()
        self._round_is_due = False
        #: How often a delivery had to wait.
        self.waits_total = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def take(self, cost: int, priority: Callable[[], int]) -> None:
        """Return when this work may run. A round always finishes the work it has begun, however large."""
        if not self.try_take(cost):
            await self.wait(cost, priority)

    def try_take(self, cost: int) -> bool:
        """Whether it is this work's turn already; if not, it may `wait`."""
        if not self._round_is_due:
            self._round_is_due = True
            asyncio.get_running_loop().call_soon(self._next_round)
        if self._left <= 0 or self._waiting:
            return False
        self._left -= cost
        return True

    def wait(self, cost: int, priority: Callable[[], int]) -> asyncio.Future[None]:
        """Is done when it is the turn of work for which `try_take` had no room."""
        self.waits_total += 1
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add((waiter, cost), priority(), self._now_ns() / 1e6)
        return waiter

    def _next_round(self) -> None:
        loop = asyncio.get_running_loop()
        self._left = ROUND // self._share()
        self._round_is_due = len(self._waiting) > 0
        while self._left > 0 and self._waiting:
            waiter, cost = self._waiting.take(self._now_ns() / 1e6)
            if not waiter.done():  # otherwise its caller is gone
                waiter.set_result(None)
                self._left -= cost
        if self._round_is_due:
            loop.call_soon(self._next_round)
