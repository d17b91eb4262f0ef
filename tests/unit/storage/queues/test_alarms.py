"""Alarms of queues."""

from __future__ import annotations

from structlog.testing import capture_logs

from storage.queues.alarms import Alarms
from tests.support.fake_clock import FakeClock


async def test_an_alarm_that_fails_does_not_stop_the_others() -> None:
    clock, rung = FakeClock(), list[int]()

    def ring(key: int) -> None:
        rung.append(key)
        if key == 1:
            raise RuntimeError("a defect in one queue")

    def now_ms() -> int:
        return clock.monotonic_ns() // 1_000_000

    alarms = Alarms(clock, now_ms, ring)
    for key in (1, 2, 3):
        alarms.set(key, now_ms() + 100)
    with capture_logs() as logs:
        for _ in range(5):
            await clock.advance(1000)
    assert rung == [1, 2, 3]
    assert [(each["event"], each["topic_id"]) for each in logs] == [("alarm_failed", 1)]
