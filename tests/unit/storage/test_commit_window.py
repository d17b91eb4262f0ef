"""How long a writer waits for more writes: never for a lone write, and as long as it pays for many."""

from __future__ import annotations

from collections import deque

import pytest

from storage.log.writer import GROUPS_A_COUNT, GROUPS_A_LOOK, GROUPS_A_TRIAL, GROUPS_TO_COUNT, CommitWindow

US = 1000


@pytest.fixture
def window() -> CommitWindow:
    return CommitWindow(500, 10_000)


def test_the_first_write_does_not_wait(window: CommitWindow) -> None:
    assert window.wait_for(1) == (0, 0)


def test_a_lone_writer_never_waits(window: CommitWindow) -> None:
    for _ in range(50):
        assert window.wait_for(1) == (0, 0)
        window.committed(1)


def test_a_window_opens_at_its_minimum_after_concurrent_writes(window: CommitWindow) -> None:
    window.committed(9)
    expected, wait_ns = window.wait_for(1)
    assert 1 < expected <= 9
    assert wait_ns == 500 * US


def test_a_window_closes_when_the_expected_writes_are_there(window: CommitWindow) -> None:
    window.committed(8)
    expected, _ = window.wait_for(1)
    assert window.wait_for(expected) == (0, 0)
    assert window.wait_for(expected + 5) == (0, 0)


def test_useful_waits_double_the_window_up_to_its_maximum(window: CommitWindow) -> None:
    window.committed(100, syncing_ns=2000 * US)
    seen = []
    for _ in range(7):
        seen.append(window.wait_for(1)[1] // US)
        window.waited(10, 60, 500 * US)
    assert seen == [500, 1000, 2000, 4000, 8000, 10_000, 10_000]


def test_useless_waits_halve_the_window_until_closed(window: CommitWindow) -> None:
    window.committed(100, syncing_ns=2000 * US)
    for _ in range(7):
        window.waited(10, 60, 500 * US)
    seen = []
    for _ in range(7):
        seen.append(window.wait_for(1)[1] // US)
        window.waited(10, 12, 500 * US)  # as many come in 2 ms without waiting
    assert seen == [10_000, 5000, 2500, 1250, 625, 500, 0]


def test_a_closed_window_is_tried_again_later(window: CommitWindow) -> None:
    for _ in range(2):
        window.committed(100, syncing_ns=2000 * US)
        window.waited(10, 10, 500 * US)
    waits = []
    for _ in range(GROUPS_A_TRIAL):
        waits.append(window.wait_for(1)[1])
        window.committed(100, syncing_ns=2000 * US)
    assert set(waits) == {0}
    assert window.wait_for(1)[1] == 500 * US


def test_writes_that_arrive_during_a_sync_count_as_concurrent(window: CommitWindow) -> None:
    for _ in range(8):
        window.committed(32, 32)
    assert window.wait_for(32)[0] == 64


def test_a_single_write_after_concurrent_writes_does_not_wait(window: CommitWindow) -> None:
    window.committed(64)
    window.committed(1)
    assert window.wait_for(1) == (0, 0)


def test_the_expected_number_of_writes_grows_step_by_step(window: CommitWindow) -> None:
    seen = []
    for _ in range(8):
        window.committed(64)
        seen.append(window.wait_for(0)[0])
    assert seen == sorted(seen)
    assert seen[0] < 64
    assert seen[-1] == 64


def test_a_maximum_below_the_minimum_is_raised_to_the_minimum() -> None:
    window = CommitWindow(500, 100)
    window.committed(9, syncing_ns=1000 * US)
    for _ in range(3):
        window.waited(1, 9, 1)
    assert window.wait_for(1)[1] == 500 * US


def alternating(window: CommitWindow) -> CommitWindow:
    while not window.alternating:
        window.committed(64, gathering_ns=4000 * US, syncing_ns=2000 * US)
    return window


def test_the_window_alternates_when_gathering_takes_longer_than_a_sync(window: CommitWindow) -> None:
    for _ in range(2 * GROUPS_A_LOOK):
        alternating(window).committed(32, gathering_ns=2000 * US, syncing_ns=2000 * US)
        assert window.wait_for(1)[0] == 32
    window.waited(4, 32, 2000 * US)
    assert window.wait_for(1)[1] == 1000 * US


def test_a_late_group_of_an_alternating_window_does_not_raise_the_expected_number(window: CommitWindow) -> None:
    alternating(window)
    for _ in range(GROUPS_A_LOOK):
        window.committed(50, 14, gathering_ns=4000 * US, syncing_ns=2000 * US)
        assert window.wait_for(1)[0] == 32
    window.committed(50, 24, gathering_ns=4000 * US, syncing_ns=2000 * US)
    assert window.wait_for(1)[0] == 35, "half of those between 64 and 74"


def test_an_incomplete_group_lowers_the_expected_number_of_writes(window: CommitWindow) -> None:
    alternating(window).committed(20, 6, gathering_ns=4000 * US, syncing_ns=2000 * US)
    assert window.wait_for(1)[0] == 13


def test_alternating_writers_are_counted_periodically(window: CommitWindow) -> None:
    alternating(window)
    wanted: list[int] = []
    for _ in range(2 * GROUPS_A_COUNT):
        wanted.append(window.wait_for(1)[0])
        # There are only 40, so rounds of 32 do not show all.
        window.committed(min(wanted[-1], 40), gathering_ns=4000 * US, syncing_ns=2000 * US)
    counted = GROUPS_A_COUNT - GROUPS_TO_COUNT
    assert wanted[:counted] == [32] * counted
    assert wanted[counted] == 64
    assert set(wanted[counted + 1 : 2 * counted]) == {20}, "they did not come together: there are no more"


def test_complete_groups_are_combined_after_several_rounds(window: CommitWindow) -> None:
    alternating(window)
    wanted: list[int] = []
    for _ in range(GROUPS_A_COUNT):
        wanted.append(window.wait_for(1)[0])
        window.committed(wanted[-1], gathering_ns=4000 * US, syncing_ns=2000 * US)
    assert wanted == [32] * (GROUPS_A_COUNT - GROUPS_TO_COUNT) + [64] * GROUPS_TO_COUNT


def test_a_complete_group_of_an_alternating_window_counts_as_a_useful_wait(window: CommitWindow) -> None:
    alternating(window)
    before = window.wait_for(1)[1]
    window.waited(30, 32, 2000 * US)
    assert window.wait_for(1)[1] == 2 * before
    window.waited(30, 31, 2000 * US)
    assert window.wait_for(1)[1] == before


def test_an_idle_period_does_not_make_the_window_alternate(window: CommitWindow) -> None:
    window.committed(17, gathering_ns=2_000_000 * US, syncing_ns=2500 * US)
    for _ in range(GROUPS_A_LOOK - 1):
        window.committed(17, gathering_ns=500 * US, syncing_ns=2500 * US)
    assert not window.alternating


@pytest.mark.parametrize(("gathering_us", "goes_on"), [(250, False), (251, True)])
def test_turns_end_where_the_disk_never_has_to_wait(window: CommitWindow, gathering_us: int, goes_on: bool) -> None:
    alternating(window)
    for _ in range(GROUPS_A_LOOK):
        window.committed(32, 32, gathering_ns=gathering_us * US, syncing_ns=2000 * US)
    assert window.alternating == goes_on


def test_the_window_does_not_alternate_when_a_sync_takes_longer_than_gathering(window: CommitWindow) -> None:
    for _ in range(2 * GROUPS_A_LOOK):
        window.committed(64, gathering_ns=2000 * US, syncing_ns=4000 * US)
    assert not window.alternating
    assert window.wait_for(1)[0] == 64


def test_turns_end_where_the_disk_has_become_slow_or_under_pressure(window: CommitWindow) -> None:
    alternating(window).pressure_factor = 4
    assert window.wait_for(1)[0] == 4 * 64
    window.pressure_factor = 1
    assert window.wait_for(1)[0] == 32
    for _ in range(GROUPS_A_LOOK):
        window.committed(32, gathering_ns=0, syncing_ns=2000 * US)
    assert not window.alternating


def test_a_small_company_is_not_split(window: CommitWindow) -> None:
    for _ in range(2 * GROUPS_A_LOOK):
        window.committed(3, gathering_ns=4000 * US, syncing_ns=1000 * US)
    assert window.wait_for(1)[0] == 3


class _ClosedLoop:
    """Clients whose every request takes time on the loop and then waits for the writer's next group.

    `late_us`: the time until the writer notices that the awaited requests have arrived.
    """

    def __init__(self, window: CommitWindow, *, clients: int, cost_us: int, sync_us: int, late_us: int = 0) -> None:
        self._window = window
        self._cost, self._sync, self._late = cost_us * US, sync_us * US, late_us * US
        #: When the loop is done with each request in progress, in order.
        self._coming: deque[int] = deque()
        self._loop_free = self.now = self.idle = self.answered = 0
        self._arrive(clients)

    def _arrive(self, clients: int) -> None:
        self.idle += max(0, self.now - self._loop_free)
        at = max(self.now, self._loop_free)
        self._coming += [at + self._cost * (n + 1) for n in range(clients)]
        self._loop_free = at + self._cost * clients

    def group(self) -> None:
        """The writer waits, syncs and answers once."""
        ended = self.now
        self.now = max(self.now, self._coming[0])
        before, gathering = self._waiting(), self.now
        wanted, window_ns = self._window.wait_for(before)
        if wanted:
            all_there = self._coming[wanted - 1] if len(self._coming) >= wanted else self.now + window_ns
            self.now = min(max(self.now, all_there), self.now + window_ns) + self._late
            self._window.waited(before, self._waiting(), self.now - gathering)
        size = self._waiting()
        for _ in range(size):
            self._coming.popleft()
        began, self.now = self.now, self.now + self._sync
        there = sum(at <= self.now for at in self._coming)
        self._window.committed(size, there, gathering_ns=began - ended, syncing_ns=self._sync)
        self.answered += size
        self._arrive(size)

    def _waiting(self) -> int:
        return sum(at <= self.now for at in self._coming)


@pytest.mark.parametrize(
    ("clients", "cost_us", "sync_us"), [(64, 250, 2500), (64, 100, 2500), (16, 250, 1000), (64, 20, 300)]
)
def test_where_requests_cost_more_than_a_sync_the_loop_is_kept_busy(clients: int, cost_us: int, sync_us: int) -> None:
    load = _ClosedLoop(CommitWindow(500, 10_000), clients=clients, cost_us=cost_us, sync_us=sync_us)
    for _ in range(200):
        load.group()
    load.idle, before = 0, load.now
    for _ in range(200):
        load.group()
    assert load.idle < 0.03 * (load.now - before)


@pytest.mark.parametrize(
    ("clients", "cost_us", "sync_us", "late_us"),
    [(16, 500, 1400, 1000), (16, 250, 1000, 500), (64, 100, 2500, 500), (64, 100, 1000, 1000)],
)
def test_the_loop_stays_busy_with_a_writer_that_is_always_late(
    clients: int, cost_us: int, sync_us: int, late_us: int
) -> None:
    window = CommitWindow(500, 10_000)
    load = _ClosedLoop(window, clients=clients, cost_us=cost_us, sync_us=sync_us, late_us=late_us)
    for _ in range(300):
        load.group()
    load.idle, before = 0, load.now
    for _ in range(600):
        load.group()
    assert load.idle < 0.08 * (load.now - before), "0.2 to 0.3 when every turn that was too large made the next larger"


@pytest.mark.parametrize(("clients", "cost_us", "sync_us"), [(64, 20, 5000), (16, 10, 1000), (8, 20, 40_000)])
def test_an_expensive_sync_is_shared_by_all_writers(clients: int, cost_us: int, sync_us: int) -> None:
    load = _ClosedLoop(CommitWindow(500, 10_000), clients=clients, cost_us=cost_us, sync_us=sync_us)
    for _ in range(200):
        load.group()
    before = load.answered
    for _ in range(50):
        load.group()
    assert load.answered - before >= 0.9 * 50 * clients
