"""Going through many items in slices: all in order, and other tasks get their turns."""

from __future__ import annotations

import asyncio

from storage.platform.slices import SLICE_NS, in_slices
from tests.support.fake_clock import FakeClock


class TickingClock(FakeClock):
    """Each look at it takes this long."""

    step_ns = 0

    def monotonic_ns(self) -> int:
        self.ticks = getattr(self, "ticks", 0) + self.step_ns
        return super().monotonic_ns() + self.ticks


async def _turns(step_ns: int, count: int) -> int:
    """How often another task got a turn."""
    clock, turns = TickingClock(), 0
    clock.step_ns = step_ns

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert [each async for each in in_slices(range(count), clock)] == list(range(count))
    task.cancel()
    return turns


async def test_slow_work_yields_to_the_loop() -> None:
    assert await _turns(SLICE_NS + 1, 1000) == 1000 // 64


async def test_quick_work_does_not_yield() -> None:
    assert await _turns(0, 1000) == 0


async def test_no_items_do_not_yield() -> None:
    assert await _turns(SLICE_NS + 1, 0) == 0
