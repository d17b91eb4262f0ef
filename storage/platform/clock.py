"""The only source of time: wall clock, monotonic clock, and waiting. Tests inject `tests/support/fake_clock.py`.

`EngineTime` is the time in records: it follows the wall clock, but never goes backwards, not even across a restart.

Source: docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Protocol

STEP_WORTH_A_WORD_MS = 60_000


class Clock(Protocol):
    """Wall time in ns since the epoch, monotonic time in ns, and two ways to wait."""

    def wall_ns(self) -> int: ...

    def monotonic_ns(self) -> int: ...

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        ...

    def wait(self, condition: threading.Condition, seconds: float | None, /) -> bool:
        """Wait in a thread that holds `condition`; False when the time ran out first."""
        ...


class SystemClock:
    """The machine's clocks."""

    #: The system's own functions: each write calls them several times.
    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
    wait = staticmethod(threading.Condition.wait)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class EngineTime:
    """now = max(wall, last now + monotonic elapsed), never below the greatest stored ts.

    Engine time ignores a wall clock that is set back until it has caught up, and follows a wall clock that jumps ahead
    at once. Steps of more than a minute are reported to `on_step(step_ms)`, positive when ahead.
    """

    __slots__ = ("_behind_reported", "_clock", "_last_mono_ns", "_last_ms", "_on_step")

    def __init__(self, clock: Clock, on_step: Callable[[int], None] | None = None) -> None:
        self._clock = clock
        self._on_step = on_step
        self._last_ms = clock.wall_ns() // 1_000_000
        self._last_mono_ns = clock.monotonic_ns()
        self._behind_reported = False

    def raise_to(self, stored_ms: int) -> None:
        """From now on, never return a time below `stored_ms` (the greatest ts found at recovery)."""
        if stored_ms > self._last_ms:
            self._last_ms = stored_ms
            self._last_mono_ns = self._clock.monotonic_ns()

    def now_ms(self) -> int:
        wall = self._clock.wall_ns() // 1_000_000
        mono = self._clock.monotonic_ns()
        elapsed_ms = (mono - self._last_mono_ns) // 1_000_000
        steady = self._last_ms + elapsed_ms
        if wall >= steady:
            if wall - steady > STEP_WORTH_A_WORD_MS and self._on_step:
                self._on_step(wall - steady)
            self._behind_reported = False
            self._last_ms = wall
            self._last_mono_ns = mono
            return wall
        if steady - wall > STEP_WORTH_A_WORD_MS and not self._behind_reported and self._on_step:
            self._behind_reported = True
            self._on_step(wall - steady)
        # Only whole milliseconds move the anchor, so that the remainder is not lost.
        self._last_mono_ns += elapsed_ms * 1_000_000
        self._last_ms = steady
        return steady
