"""The steps of the governor: what raises its level, what lowers it, and what it ignores."""

from __future__ import annotations

import pytest

from broker.pressure.governor import RECOVERY_MS, SUSTAINED, Governor, Limits, Signals, Step

LIMITS = Limits(loop_lag_ms=500, queue=0.8, commit_ms=2000)


class GovernorRun:
    """A governor and a clock that moves 100 ms a sample."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.governor = Governor(limits)
        self.now_ms = 0.0

    def feed(self, signals: Signals, times: int = SUSTAINED) -> Step:
        step = self.governor.step
        for _ in range(times):
            self.now_ms += 100
            step = self.governor.take(signals, self.now_ms)
        return step


@pytest.mark.parametrize(
    ("signals", "step"),
    [
        (Signals(), Step.NORMAL),
        (Signals(loop_lag_ms=124), Step.NORMAL),
        (Signals(loop_lag_ms=125), Step.COALESCE),
        (Signals(loop_lag_ms=250), Step.WIDEN),
        (Signals(loop_lag_ms=375), Step.DEFER),
        (Signals(loop_lag_ms=499), Step.DEFER),
        (Signals(loop_lag_ms=500), Step.REFUSE),
        (Signals(queue=0.2), Step.COALESCE),
        (Signals(queue=0.8), Step.REFUSE),
        (Signals(commit_ms=1000), Step.WIDEN),
        (Signals(commit_ms=60_000), Step.REFUSE),
        (Signals(loop_lag_ms=130, queue=0.61, commit_ms=1000), Step.DEFER),
    ],
)
def test_the_largest_share_decides(signals: Signals, step: Step) -> None:
    assert GovernorRun().feed(signals) is step


def test_a_short_pause_is_no_pressure() -> None:
    fed = GovernorRun()
    for _ in range(10):
        assert fed.feed(Signals(loop_lag_ms=5000), SUSTAINED - 1) is Step.NORMAL
        assert fed.feed(Signals(), 1) is Step.NORMAL


def test_alternating_signals_do_not_count_as_lasting_pressure() -> None:
    fed = GovernorRun()
    for index in range(30):
        fed.feed(Signals(loop_lag_ms=5000) if index % 2 else Signals(commit_ms=9000), 1)
        assert fed.governor.step is Step.NORMAL


def test_the_governor_steps_down_one_step_at_a_time() -> None:
    fed = GovernorRun()
    fed.feed(Signals(queue=1.0))
    steps = [fed.feed(Signals(), 1) for _ in range(40)]
    assert list(dict.fromkeys(steps)) == [Step.REFUSE, Step.DEFER, Step.WIDEN, Step.COALESCE, Step.NORMAL]
    per_step = RECOVERY_MS // 100
    assert steps.count(Step.DEFER) == per_step
    assert steps.count(Step.WIDEN) == per_step


def test_pressure_near_the_limit_keeps_the_step() -> None:
    fed = GovernorRun()
    fed.feed(Signals(loop_lag_ms=500))
    for index in range(60):
        fed.feed(Signals(loop_lag_ms=500 if index % 2 else 450), 1)
        assert fed.governor.step is Step.REFUSE


def test_returning_pressure_restarts_the_recovery_time() -> None:
    fed = GovernorRun()
    fed.feed(Signals(queue=0.8))
    for _ in range(5):
        fed.feed(Signals(), RECOVERY_MS // 100)
        fed.feed(Signals(queue=0.8))
        assert fed.governor.step is Step.REFUSE


def test_a_signal_with_limit_zero_is_ignored() -> None:
    fed = GovernorRun(Limits(loop_lag_ms=0, queue=0.8, commit_ms=0))
    assert fed.feed(Signals(loop_lag_ms=1e6, commit_ms=1e6)) is Step.NORMAL
    assert fed.feed(Signals(queue=0.9)) is Step.REFUSE


def test_the_wait_grows_with_the_pressure_within_bounds() -> None:
    waits: list[int] = []
    for lag in (500, 1000, 100_000):
        fed = GovernorRun()
        fed.feed(Signals(loop_lag_ms=lag))
        waits.append(fed.governor.retry_after_ms)
    assert waits == [1000, 2000, 5000]
    assert GovernorRun().governor.retry_after_ms == 200
