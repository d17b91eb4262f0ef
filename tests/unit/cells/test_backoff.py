"""How long the supervisor waits before it starts a process again."""

from __future__ import annotations

from broker.supervisor import MAX_BACKOFF_S, MIN_BACKOFF_S, STEADY_S, STEADY_WAITS, backoff_after


def test_a_process_that_ends_at_once_is_started_less_and_less_often() -> None:
    waits = [0.0]
    for _ in range(12):
        waits.append(backoff_after(waits[-1], 0.5))
    assert waits[1:4] == [MIN_BACKOFF_S, 2 * MIN_BACKOFF_S, 4 * MIN_BACKOFF_S]
    assert waits[-1] == MAX_BACKOFF_S


def test_a_process_that_ran_long_enough_is_started_at_once() -> None:
    assert backoff_after(0.8, STEADY_S) == MIN_BACKOFF_S
    assert backoff_after(0.8, STEADY_S - 1) == 1.6
    assert backoff_after(MAX_BACKOFF_S, STEADY_WAITS * MAX_BACKOFF_S) == MIN_BACKOFF_S
    assert backoff_after(MAX_BACKOFF_S, STEADY_WAITS * MAX_BACKOFF_S - 1) == MAX_BACKOFF_S


def test_a_process_that_is_killed_every_half_minute_is_never_away_for_long() -> None:
    waited_s = 0.0
    for _ in range(100):
        waited_s = backoff_after(waited_s, 30.0)
        assert waited_s == MIN_BACKOFF_S
