"""Timers by key: one task calls back at engine times. Runs on the loop, by the injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush

import structlog

from storage.platform import Clock

_log = structlog.get_logger("storage")


class Alarms:
    """Calls `ring(key)` when `now_ms()` has reached the time last set for the key."""

    def __init__(self, clock: Clock, now_ms: Callable[[], int], ring: Callable[[int], None]) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._ring = ring
        #: By key: when it rings.
        self.times: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []
        self._sleeper: asyncio.Task[None] | None = None
        self._sleeps_until = 0
        self._stopped = False

    def set(self, key: int, at_ms: int) -> None:
        """Ring for `key` at that time. An earlier time that is already set stays."""
        before = self.times.get(key)
        if self._stopped or (before is not None and before <= at_ms):
            return
        self.times[key] = at_ms
        heappush(self._heap, (at_ms, key))
        if self._sleeper is None or at_ms < self._sleeps_until:
            self._sleep()

    def forget(self, key: int) -> None:
        """Cancel the timer of a key."""
        self.times.pop(key, None)

    def _sleep(self) -> None:
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None
        heap = self._heap
        while heap and self.times.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        if heap:
            self._sleeps_until = heap[0][0]
            self._sleeper = asyncio.get_running_loop().create_task(self._wait(heap[0][0]), name="storage-alarms")

    async def _wait(self, at_ms: int) -> None:
        # Engine time may stand still after the wall clock was set back, so it is read again.
        while (left_ms := at_ms - self._now_ms()) > 0:
            await self._clock.sleep(left_ms / 1000)
        self._sleeper = None
        now, due = self._now_ms(), list[int]()
        while self._heap and self._heap[0][0] <= now:
            at, key = heappop(self._heap)
            if self.times.get(key) == at:
                del self.times[key]
                due.append(key)
        for key in due:
            try:
                self._ring(key)
            except Exception:  # it must not stop the others
                _log.exception("alarm_failed", topic_id=key)
        if self._sleeper is None:
            self._sleep()

    async def stop(self) -> None:
        """Cancel all timers."""
        self._stopped = True
        if self._sleeper is not None:
            sleeper, self._sleeper = self._sleeper, None
            sleeper.cancel()
            with suppress(asyncio.CancelledError):
                await sleeper
