"""A log's losses, and what readers are told of them: floors, loss ranges, tombstones. One row of the rules for each
test."""

from __future__ import annotations

import pytest

from storage.records.values import LossCause, Tombstone
from storage.state.watermarks import ANNOUNCED, Watermarks


def told(marks: Watermarks, from_seq: int) -> tuple[int, int, str] | None:
    found = marks.tombstone(from_seq, earliest_seq=1, head_seq=100)
    return None if found is None else (found.gap_from, found.gap_to, found.reason)


def test_a_new_log_has_no_loss() -> None:
    marks = Watermarks()
    assert (marks.evict_floor, marks.live_floor, marks.floors, marks.loss) == (1, 1, {}, [])
    assert told(marks, 0) is None
    assert marks.lost_to(1) is None


@pytest.mark.parametrize("cause", ANNOUNCED)
def test_a_floor_is_announced_with_its_cause(cause: LossCause) -> None:
    marks = Watermarks({cause: 11})
    assert (marks.evict_floor, marks.live_floor) == (11, 11)
    assert told(marks, 0) == (1, 10, str(cause))
    assert told(marks, 9) == (10, 10, str(cause))
    assert told(marks, 10) is None, "from_seq + 1 is the floor: it is there"


@pytest.mark.parametrize("cause", [LossCause.DELETE, LossCause.CONSUMED])
def test_deletions_and_consumed_records_are_silent(cause: LossCause) -> None:
    marks = Watermarks({cause: 11})
    assert (marks.evict_floor, marks.live_floor) == (1, 11)
    assert told(marks, 0) is None
    assert (marks.lost_to(10), marks.lost_to(11)) == ("deleted", None)


def test_a_tombstone_is_complete() -> None:
    marks = Watermarks({LossCause.CAP: 5})
    assert marks.tombstone(1, earliest_seq=7, head_seq=9) == Tombstone(
        gap_from=2, gap_to=4, reason="cap", missed_estimate=3, earliest_seq=7, head_seq=9
    )


def test_floors_only_rise() -> None:
    marks = Watermarks({LossCause.CAP: 11})
    marks.merge({LossCause.CAP: 5, LossCause.TTL: 1})
    assert (marks.floors, marks.evict_floor) == ({LossCause.CAP: 11}, 11)


def test_several_causes_above_the_reader_are_mixed() -> None:
    marks = Watermarks({LossCause.CAP: 11, LossCause.TTL: 8})
    assert told(marks, 0) == (1, 10, "mixed")
    assert told(marks, 6) == (7, 10, "mixed")


def test_a_cause_at_or_below_the_reader_does_not_count() -> None:
    marks = Watermarks({LossCause.CAP: 11, LossCause.TTL: 8})
    assert told(marks, 7) == (8, 10, "cap")


def test_a_silent_cause_never_makes_a_reason_mixed() -> None:
    marks = Watermarks({LossCause.CAP: 11, LossCause.DELETE: 50})
    assert told(marks, 0) == (1, 10, "cap")
    assert (marks.evict_floor, marks.live_floor) == (11, 50)


def test_a_loss_range_is_reported_when_the_reader_reaches_the_range() -> None:
    marks = Watermarks(loss=[(20, 29, "crash")])
    assert (marks.evict_floor, marks.live_floor) == (1, 1)
    assert told(marks, 0) is None
    assert told(marks, 18) is None
    assert told(marks, 19) == (20, 29, "crash")
    assert told(marks, 24) == (25, 29, "crash")
    assert told(marks, 29) is None


def test_a_read_stops_before_a_loss_range_and_continues_after_the_range() -> None:
    marks = Watermarks(loss=[(20, 29, "crash"), (40, 49, "salvage")])
    assert [marks.next_loss(seq) for seq in (0, 18, 19, 29, 30, 38, 49, 60)] == [20, 20, 20, 40, 40, 40, None, None]


def test_a_loss_range_is_merged_into_an_adjacent_floor() -> None:
    marks = Watermarks({LossCause.CAP: 19}, [(20, 29, "crash")])
    assert (marks.evict_floor, marks.loss) == (19, [(20, 29, "crash")])
    marks.merge({LossCause.CAP: 20})
    assert (marks.evict_floor, marks.loss) == (30, [])
    assert marks.floors == {LossCause.CAP: 20, LossCause.CRASH: 30}
    assert told(marks, 0) == (1, 29, "mixed")
    assert told(marks, 19) == (20, 29, "crash")


def test_a_joined_loss_range_may_reach_the_next_range() -> None:
    marks = Watermarks(loss=[(20, 29, "crash"), (25, 39, "salvage"), (41, 44, "crash")])
    marks.merge({LossCause.TTL: 20})
    assert (marks.evict_floor, marks.loss) == (40, [(41, 44, "crash")])
    assert marks.floors == {LossCause.TTL: 20, LossCause.CRASH: 30, LossCause.SALVAGE: 40}


def test_a_deletion_does_not_take_ranges_in() -> None:
    marks = Watermarks({LossCause.DELETE: 100}, [(20, 29, "crash")])
    assert (marks.evict_floor, marks.loss) == (1, [(20, 29, "crash")])


def test_a_range_from_the_first_seq_on_is_a_floor_at_once() -> None:
    marks = Watermarks(loss=[(1, 9, "crash")])
    assert (marks.evict_floor, marks.loss, marks.floors) == (10, [], {LossCause.CRASH: 10})


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ([(20, 29), (30, 39)], [(20, 39)]),
        ([(20, 29), (25, 39)], [(20, 39)]),
        ([(25, 39), (20, 29)], [(20, 39)]),
        ([(20, 39), (25, 29)], [(20, 39)]),
        ([(20, 29), (20, 29)], [(20, 29)]),
        ([(20, 29), (31, 39)], [(20, 29), (31, 39)]),
    ],
)
def test_adjacent_loss_ranges_of_a_cause_are_merged(said: list[tuple[int, int]], kept: list[tuple[int, int]]) -> None:
    together = Watermarks(loss=[(*each, "crash") for each in said])
    one_by_one = Watermarks()
    for each in said:
        one_by_one.merge(loss=[(*each, "crash")])
    assert together.loss == one_by_one.loss == [(*each, "crash") for each in kept]


def test_adjacent_loss_ranges_of_two_causes_are_reported_separately() -> None:
    marks = Watermarks(loss=[(20, 29, "crash"), (30, 39, "salvage")])
    assert told(marks, 19) == (20, 29, "crash")
    assert marks.next_loss(29) == 30
    assert told(marks, 29) == (30, 39, "salvage")


@pytest.mark.parametrize(
    ("floors", "seq", "why"),
    [
        ({LossCause.TTL: 11}, 10, "expired"),
        ({LossCause.CAP: 11}, 10, "evicted"),
        ({LossCause.CAP: 11, LossCause.TTL: 11}, 10, "evicted"),
        ({LossCause.CAP: 11, LossCause.TTL: 10}, 10, "evicted"),
        ({LossCause.CAP: 10, LossCause.TTL: 11}, 10, "expired"),
        ({LossCause.DELETE: 11}, 10, "deleted"),
        ({LossCause.DELETE: 11, LossCause.CAP: 5}, 10, "deleted"),
        ({}, 25, "lost"),
        ({LossCause.DELETE: 90}, 25, "lost"),
        ({}, 30, None),
    ],
)
def test_why_a_record_is_gone(floors: dict[str, int], seq: int, why: str | None) -> None:
    assert Watermarks(dict(floors), [(20, 29, "crash")]).lost_to(seq) == why
