"""How long a writer waits for company: a lone write never, a crowd for as long as it pays."""

from __future__ import annotations

import pytest

from storage.wal.commit_window import CommitWindow

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


def test_after_a_crowd_it_waits_for_as_many_with_the_shortest_window(window: CommitWindow) -> None:
    window.committed(9)
    expected, wait_ns = window.wait_for(1)
    assert 1 < expected <= 9
    assert wait_ns == 500 * US


def test_when_as_many_are_there_it_goes_at_once(window: CommitWindow) -> None:
    window.committed(8)
    expected, _ = window.wait_for(1)
    assert window.wait_for(expected) == (0, 0)
    assert window.wait_for(expected + 5) == (0, 0)


def test_waits_that_pay_double_the_window_up_to_its_bound(window: CommitWindow) -> None:
    window.committed(100)
    expected, _ = window.wait_for(1)
    seen = []
    for _ in range(7):
        seen.append(window.wait_for(1)[1] // US)
        window.waited(expected)
    assert seen == [500, 1000, 2000, 4000, 8000, 10_000, 10_000]


def test_waits_in_vain_halve_it_down_to_its_bound(window: CommitWindow) -> None:
    window.committed(100)
    expected, _ = window.wait_for(1)
    for _ in range(7):
        window.waited(expected)
    seen = []
    for _ in range(7):
        seen.append(window.wait_for(1)[1] // US)
        window.waited(expected - 1)
    assert seen == [10_000, 5000, 2500, 1250, 625, 500, 500]


def test_when_the_crowd_has_gone_nobody_waits_again(window: CommitWindow) -> None:
    window.committed(64)
    window.committed(1)
    assert window.wait_for(1) == (0, 0)


def test_what_is_expected_grows_towards_a_larger_crowd_step_by_step(window: CommitWindow) -> None:
    seen = []
    for _ in range(8):
        window.committed(64)
        seen.append(window.wait_for(0)[0])
    assert seen == sorted(seen)
    assert seen[0] < 64
    assert seen[-1] == 64


def test_a_bound_below_the_other_is_raised_to_it() -> None:
    window = CommitWindow(500, 100)
    window.committed(9)
    expected, _ = window.wait_for(1)
    window.waited(expected)
    assert window.wait_for(1)[1] == 500 * US
