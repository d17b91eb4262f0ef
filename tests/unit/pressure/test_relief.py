"""Which work is postponed under pressure, and for how long at most."""

from __future__ import annotations

from storage.log.writer import CommitWindow
from storage.platform.load_shedding import MAX_DEFER_NS, LoadShedding
from tests.support.fake_clock import FakeClock


def test_no_work_is_deferred_without_pressure() -> None:
    assert not LoadShedding(FakeClock()).must_wait("housekeeping")


async def test_deferrable_work_is_deferred_for_a_bounded_time() -> None:
    clock = FakeClock()
    load_shedding = LoadShedding(clock)
    load_shedding.deferring = True
    rounds: list[bool] = []
    for _ in range(130):
        rounds.append(load_shedding.must_wait("housekeeping"))
        await clock.advance(1000)
    assert rounds.count(False) == 2
    assert rounds.index(False) == MAX_DEFER_NS // 1_000_000_000


async def test_the_bound_applies_to_each_worker_separately() -> None:
    clock = FakeClock()
    load_shedding = LoadShedding(clock)
    load_shedding.deferring = True
    assert load_shedding.must_wait("housekeeping")
    await clock.advance(MAX_DEFER_NS // 1_000_000)
    assert load_shedding.must_wait("relocator")
    assert not load_shedding.must_wait("housekeeping")
    assert load_shedding.must_wait("relocator")


async def test_ended_pressure_resets_the_bound() -> None:
    clock = FakeClock()
    load_shedding = LoadShedding(clock)
    load_shedding.deferring = True
    assert load_shedding.must_wait("relocator")
    load_shedding.deferring = False
    await clock.advance(MAX_DEFER_NS // 1_000_000)
    assert not load_shedding.must_wait("relocator")
    load_shedding.deferring = True
    assert load_shedding.must_wait("relocator")


def test_a_stretched_window_waits_longer_for_more_writes() -> None:
    window = CommitWindow(500, 10_000)
    window.committed(8)
    wanted, for_ns = window.wait_for(1)
    window.pressure_factor = 4
    assert window.wait_for(1) == (4 * wanted, 4 * for_ns)
    assert window.wait_for(wanted) == (4 * wanted, 4 * for_ns)


def test_a_lone_write_does_not_wait_in_a_stretched_window() -> None:
    window = CommitWindow(500, 10_000)
    window.pressure_factor = 4
    assert window.wait_for(1) == (0, 0)
