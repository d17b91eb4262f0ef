"""The test clock moves only on request, and wakes the tasks that are due."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from storage.platform.clock import Clock
from tests.support.fake_clock import FakeClock


def _in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Start `work` in a thread. Its answer is added to the list."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    return thread, answers


def _wait_on(clock: FakeClock, condition: threading.Condition, seconds: float | None) -> bool:
    with condition:
        return clock.wait(condition, seconds)


def test_time_stands_still_until_a_tick() -> None:
    clock: Clock = FakeClock(wall_ms=5000, monotonic_ns=7)
    assert [(clock.wall_ms(), clock.monotonic_ns()) for _ in range(3)] == [(5000, 7)] * 3


def test_a_tick_moves_wall_and_monotonic_time_alike() -> None:
    clock = FakeClock(wall_ms=5000, monotonic_ns=0)
    clock.tick(0.4)
    clock.tick(0.7)
    assert (clock.wall_ms(), clock.monotonic_ns()) == (5001, 1_100_000)


def test_setting_the_wall_does_not_touch_monotonic_time() -> None:
    clock = FakeClock(wall_ms=5000, monotonic_ns=7)
    clock.set_wall(100)
    assert (clock.wall_ms(), clock.monotonic_ns()) == (100, 7)


# ---- sleeping on the loop


async def test_a_sleeper_wakes_exactly_when_its_time_has_come() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1.0))
    await clock.advance(999)
    assert not task.done()
    await clock.advance(1)
    assert task.done()


async def test_advance_wakes_each_sleeper_at_its_time_and_in_order() -> None:
    clock = FakeClock(wall_ms=0)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.wall_ms()))

    tasks = [asyncio.create_task(sleeper(name, at)) for name, at in (("c", 0.3), ("a", 0.1), ("b", 0.2), ("a2", 0.1))]
    await clock.advance(1000)
    await asyncio.gather(*tasks)
    assert woken == [("a", 100), ("a2", 100), ("b", 200), ("c", 300)]
    assert clock.wall_ms() == 1000


async def test_a_timer_loop_runs_at_each_of_its_times_within_one_advance() -> None:
    clock = FakeClock(wall_ms=0)
    moments: list[int] = []

    async def timer() -> None:
        while True:
            await clock.sleep(0.05)
            moments.append(clock.wall_ms())

    task = asyncio.create_task(timer())
    await clock.advance(220)
    task.cancel()
    assert moments == [50, 100, 150, 200]


async def test_setting_the_wall_clock_wakes_no_sleeper() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.advance(0)
    clock.set_wall(clock.wall_ms() + 10_000)
    await clock.advance(0)
    assert not task.done()
    task.cancel()


async def test_sleeping_for_no_time_only_lets_others_run() -> None:
    clock = FakeClock()
    await clock.sleep(0)
    await clock.sleep(-1)
    assert clock.sleeping == 0


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.advance(0)
    assert clock.sleeping == 1
    task.cancel()
    await clock.advance(0)
    assert clock.sleeping == 0


async def test_a_tick_from_another_thread_wakes_a_sleeper_on_the_loop() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(1))
    await clock.advance(0)
    await asyncio.to_thread(clock.tick, 1000)
    await asyncio.wait_for(task, 10)


def test_sleepers_of_a_closed_loop_are_left_alone() -> None:
    clock = FakeClock()
    loop = asyncio.new_event_loop()
    coroutine = clock.sleep(1)
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    clock.tick(2000)
    task._log_destroy_pending = False
    coroutine.close()
    assert clock.sleeping == 0


# ---- waiting in a thread


def test_a_waiting_thread_times_out_when_time_reaches_its_deadline() -> None:
    clock = FakeClock()
    thread, answers = _in_thread(lambda: _wait_on(clock, threading.Condition(), 0.5))
    clock.until_waiting()
    clock.tick(499)
    assert clock.waiting == 1
    clock.tick(1)
    thread.join(timeout=10)
    assert (answers, clock.waiting) == ([False], 0)


def test_a_notified_thread_does_not_wait_for_time() -> None:
    clock, condition = FakeClock(), threading.Condition()
    thread, answers = _in_thread(lambda: _wait_on(clock, condition, 0.5))
    clock.until_waiting()
    with condition:
        condition.notify()
    thread.join(timeout=10)
    assert (answers, clock.waiting) == ([True], 0)


def test_a_wait_without_a_time_ends_only_by_notify() -> None:
    clock, condition = FakeClock(), threading.Condition()
    thread, answers = _in_thread(lambda: _wait_on(clock, condition, None))
    clock.until_waiting()
    clock.tick(1_000_000)
    assert (clock.waiting, answers) == (1, [])
    with condition:
        condition.notify_all()
    thread.join(timeout=10)
    assert answers == [True]


def test_a_wait_for_no_time_returns_at_once() -> None:
    assert _wait_on(FakeClock(), threading.Condition(), 0) is False


def test_threads_time_out_each_at_its_deadline() -> None:
    clock = FakeClock()
    early, early_answers = _in_thread(lambda: _wait_on(clock, threading.Condition(), 1))
    late, late_answers = _in_thread(lambda: _wait_on(clock, threading.Condition(), 2))
    clock.until_waiting(2)
    clock.tick(1000)
    early.join(timeout=10)
    assert (early_answers, late_answers) == ([False], [])
    clock.tick(1000)
    late.join(timeout=10)
    assert late_answers == [False]


async def test_advance_wakes_waiting_threads_too() -> None:
    clock = FakeClock()
    thread, answers = _in_thread(lambda: _wait_on(clock, threading.Condition(), 0.5))
    clock.until_waiting()
    await clock.advance(1000)
    thread.join(timeout=10)
    assert answers == [False]


def test_waiting_for_threads_that_never_wait_is_an_error() -> None:
    with pytest.raises(TimeoutError):
        FakeClock().until_waiting(timeout_s=0.001)
