"""Work on threads: limited in number, in order, and counted until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from broker.scheduling import Heavy


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_no_more_runs_at_once_than_may() -> None:
    heavy, go, running, most = Heavy(2), threading.Event(), [0], [0]
    lock = threading.Lock()

    def work(number: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        assert go.wait(20)
        with lock:
            running[0] -= 1
        return number

    tasks = [asyncio.ensure_future(heavy.run(work, number)) for number in range(6)]
    await until(lambda: running[0] == 2)
    go.set()
    assert await asyncio.gather(*tasks) == [*range(6)]
    assert most == [2]


async def test_cancelled_work_counts_until_it_ends() -> None:
    heavy, go, begun = Heavy(1), threading.Event(), threading.Event()

    def held() -> None:
        begun.set()
        assert go.wait(20)
        raise ValueError("nobody asks")

    first = asyncio.ensure_future(heavy.run(held))
    await until(begun.is_set)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.ensure_future(heavy.run(int))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not second.done()
    go.set()
    assert await second == 0


async def test_errors_of_work_are_raised() -> None:
    heavy = Heavy(1)
    with pytest.raises(ZeroDivisionError):
        await heavy.run(divmod, 1, 0)
    assert await heavy.run(int, "7", base=8) == 7


async def test_failed_work_releases_its_objects_at_once() -> None:
    class Thing:
        pass

    seen: list[weakref.ref[Thing]] = []

    def work() -> None:
        thing = Thing()
        seen.append(weakref.ref(thing))
        raise ValueError("it failed")

    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            await Heavy(1).run(work)
        await asyncio.sleep(0)
        assert seen[0]() is None
    finally:
        gc.enable()
