"""The time with which records are stamped follows the wall clock, and never goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.platform.clock import EngineTime
from tests.support.fake_clock import FakeClock

NOON_MS = 1_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(wall_ms=NOON_MS)


def test_engine_time_follows_the_wall_clock(clock: FakeClock) -> None:
    time = EngineTime(clock)
    first = time.now_ms()
    clock.tick(1500)
    assert (first, time.now_ms()) == (NOON_MS, NOON_MS + 1500)


def test_a_wall_clock_set_ahead_is_followed_at_once(clock: FakeClock) -> None:
    time = EngineTime(clock)
    clock.set_wall(NOON_MS + HOUR_MS)
    assert time.now_ms() == NOON_MS + HOUR_MS


def test_time_continues_forward_when_the_wall_clock_is_set_back(clock: FakeClock) -> None:
    time = EngineTime(clock)
    clock.set_wall(NOON_MS - HOUR_MS)
    assert time.now_ms() == NOON_MS
    clock.tick(250)
    assert time.now_ms() == NOON_MS + 250


def test_a_wall_clock_ahead_and_back_again_leaves_time_ahead_and_going_on(clock: FakeClock) -> None:
    time = EngineTime(clock)
    clock.set_wall(NOON_MS + HOUR_MS)
    ahead = time.now_ms()
    clock.set_wall(NOON_MS)
    clock.tick(10)
    assert (ahead, time.now_ms()) == (NOON_MS + HOUR_MS, NOON_MS + HOUR_MS + 10)


def test_a_wall_clock_that_has_caught_up_is_followed_again(clock: FakeClock) -> None:
    time = EngineTime(clock)
    clock.set_wall(NOON_MS - 100)
    clock.tick(50)
    assert time.now_ms() == NOON_MS + 50
    clock.set_wall(NOON_MS + 75)
    assert time.now_ms() == NOON_MS + 75


def test_engine_time_is_never_below_the_greatest_stored_time(clock: FakeClock) -> None:
    time = EngineTime(clock)
    time.raise_to(NOON_MS + HOUR_MS)
    assert time.now_ms() == NOON_MS + HOUR_MS
    clock.tick(30)
    assert time.now_ms() == NOON_MS + HOUR_MS + 30


def test_a_stored_time_in_the_past_has_no_effect(clock: FakeClock) -> None:
    time = EngineTime(clock)
    time.raise_to(NOON_MS - HOUR_MS)
    assert time.now_ms() == NOON_MS


def test_time_before_raise_to_is_not_added_to_the_stored_time(clock: FakeClock) -> None:
    time = EngineTime(clock)
    clock.tick(500)
    time.raise_to(NOON_MS + HOUR_MS)
    assert time.now_ms() == NOON_MS + HOUR_MS


def test_parts_of_a_millisecond_add_up_while_the_wall_clock_is_behind(clock: FakeClock) -> None:
    time = EngineTime(clock)
    clock.set_wall(NOON_MS - HOUR_MS)
    seen = []
    for _ in range(10):
        clock.tick(0.4)
        seen.append(time.now_ms() - NOON_MS)
    assert seen == [0, 0, 1, 1, 2, 2, 2, 3, 3, 4]


def test_steps_of_more_than_a_minute_are_reported_with_their_direction(clock: FakeClock) -> None:
    steps: list[int] = []
    time = EngineTime(clock, steps.append)
    clock.set_wall(NOON_MS + HOUR_MS)
    time.now_ms()
    clock.set_wall(NOON_MS)
    time.now_ms()
    assert steps == [HOUR_MS, -HOUR_MS]


def test_steps_of_a_minute_or_less_are_not_reported(clock: FakeClock) -> None:
    steps: list[int] = []
    time = EngineTime(clock, steps.append)
    clock.set_wall(NOON_MS + 60_000)
    time.now_ms()
    clock.set_wall(NOON_MS)
    time.now_ms()
    assert steps == []


def test_a_wall_clock_behind_is_reported_once_until_it_has_caught_up(clock: FakeClock) -> None:
    steps: list[int] = []
    time = EngineTime(clock, steps.append)
    for _ in range(2):
        clock.set_wall(time.now_ms() - HOUR_MS)
        for _ in range(5):
            clock.tick(10)
            time.now_ms()
        clock.set_wall(time.now_ms())
        time.now_ms()
    assert len(steps) == 2


@given(st.lists(st.tuples(st.sampled_from(["tick", "wall", "stored"]), st.integers(-10_000, 10_000)), max_size=30))
def test_engine_time_never_goes_back(moves: list[tuple[str, int]]) -> None:
    clock = FakeClock(wall_ms=NOON_MS)
    time = EngineTime(clock)
    last = stored = 0
    for kind, by in moves:
        if kind == "tick":
            clock.tick(abs(by) / 7)
        elif kind == "wall":
            clock.set_wall(clock.wall_ms() + by)
        else:
            stored = max(stored, NOON_MS + by)
            time.raise_to(NOON_MS + by)
        now = time.now_ms()
        assert now >= max(last, stored, clock.wall_ms())
        last = now


@given(st.lists(st.integers(1, 3_000_000), min_size=1, max_size=50), st.integers(1, HOUR_MS))
def test_engine_time_follows_monotonic_time_while_the_wall_clock_is_behind(steps_ns: list[int], behind_ms: int) -> None:
    clock = FakeClock(wall_ms=NOON_MS)
    time = EngineTime(clock)
    clock.set_wall(NOON_MS - behind_ms - 1000)
    start_ns = clock.monotonic_ns()
    for step_ns in steps_ns:
        clock.tick(step_ns / 1_000_000)
        assert time.now_ms() == NOON_MS + (clock.monotonic_ns() - start_ns) // 1_000_000
