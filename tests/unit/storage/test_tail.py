"""The tail index, case by case; the model test has the combinations."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records.batches import AppendedRecords
from storage.state.tail import TailIndex

FILE = 1 << 40


def index_of(*rows: tuple[int, int, int]) -> TailIndex:
    """Rows of (first seq, records, ts), 10 bytes a frame and 1 a payload, 100 bytes a batch in the log."""
    index = TailIndex()
    for number, (first_seq, count, ts) in enumerate(rows):
        run = AppendedRecords(first_seq, ts, array("I", [10] * count), array("I", [1] * count), [])
        index.set_lsn(index.append(run), FILE + 100 * number, 5)
    return index


@pytest.fixture
def index() -> TailIndex:
    """1 2 3 | 4 5 | hole | 10 11 12"""
    return index_of((1, 3, 100), (4, 2, 200), (10, 3, 300))


@pytest.mark.parametrize(
    ("seq", "oldest", "end", "floor"),
    [
        (1, 100, 99, 1),
        (1, 101, 99, 4),
        (1, 200, 99, 4),
        (1, 201, 99, 6),
        (1, 999, 99, 13),
        (1, 999, 5, 5),
        (5, 101, 99, 5),
        (8, 201, 99, 8),
        (20, 999, 99, 20),
        (1, 0, 99, 1),
    ],
)
def test_the_expired_floor_is_found(index: TailIndex, seq: int, oldest: int, end: int, floor: int) -> None:
    assert index.expired_floor(seq, oldest, end) == floor


@pytest.mark.parametrize(("ts", "seq"), [(0, 1), (100, 1), (101, 4), (200, 4), (201, 10), (300, 10), (301, None)])
def test_the_first_seq_since_a_time_is_found(index: TailIndex, ts: int, seq: int | None) -> None:
    assert index.first_seq_since(ts) == seq


@pytest.mark.parametrize(
    ("seq", "records", "size", "floor"),
    [
        (1, 1, 0, 2),
        (1, 3, 0, 4),
        (1, 5, 0, 6),
        (1, 6, 0, 11),
        (6, 1, 0, 11),
        (1, 0, 4, 5),
        (1, 2, 4, 5),
        (1, 99, 0, 13),
    ],
)
def test_plan_eviction_returns_the_lowest_sufficient_floor(
    index: TailIndex, seq: int, records: int, size: int, floor: int
) -> None:
    assert index.plan_eviction(seq, records, size) == (floor, *index.totals(seq, floor))


def test_deleted_records_free_no_space(index: TailIndex) -> None:
    assert [index.delete(seq) for seq in (1, 3, 6, 10, 99)] == [1, 1, None, 1, None]
    assert index.plan_eviction(1, 2, 0) == (5, 2, 2)
    assert index.totals(1, 13) == (5, 5)
    assert index.first_live(1, 13) == 2
    assert index.first_live(6, 13) == 11
    assert index.first_live(6, 11) is None
    assert index.dead_seqs() == [1, 3, 10]


def test_a_hole_holds_no_record(index: TailIndex) -> None:
    assert [seq for seq in range(14) if index.holds(seq)] == [1, 2, 3, 4, 5, 10, 11, 12]
    assert index.totals(6, 10) == (0, 0)
    assert list(index.slices(6, 10)) == []


def test_spans_have_the_positions_of_the_frames(index: TailIndex) -> None:
    spans = [(span.batch_seq, span.first_seq, span.lsn + span.offset, len(span.sizes)) for span in index.slices(2, 12)]
    assert spans == [(1, 2, FILE + 15, 2), (4, 4, FILE + 105, 2), (10, 10, FILE + 205, 2)]


def test_the_log_is_needed_from_the_beginning_of_the_batch(index: TailIndex) -> None:
    assert [index.oldest_lsn(seq) for seq in (1, 3, 4, 6, 12, 13)] == [
        FILE,
        FILE,
        FILE + 100,
        FILE + 200,
        FILE + 200,
        None,
    ]


def test_rows_in_memory_only_need_no_log() -> None:
    index = index_of((1, 1, 100), (2, 1, 100))
    index.set_batch_lsn(1, 0, 0)
    assert index.oldest_lsn(1) == FILE + 100


@pytest.mark.parametrize(("first_seq", "last"), [(4, 5), (10, 12), (5, 0), (6, 0), (99, 0)])
def test_setting_the_lsn_of_a_batch_returns_its_last_seq(index: TailIndex, first_seq: int, last: int) -> None:
    assert index.set_batch_lsn(first_seq, FILE + 7000, 3) == last
    places = [span.lsn for span in index.slices(1, 13)]
    assert (FILE + 7003 in places) == (last > 0)


@pytest.mark.parametrize(("seq", "left"), [(1, []), (2, [1, 2, 3]), (4, [1, 2, 3]), (5, [1, 2, 3, 4, 5]), (13, None)])
def test_truncating_removes_whole_rows(index: TailIndex, seq: int, left: list[int] | None) -> None:
    index.delete(2)
    index.delete(11)
    index.truncate(seq)
    everything = [1, 2, 3, 4, 5, 10, 11, 12]
    kept = everything if left is None else left
    assert [seq for seq in range(14) if index.holds(seq)] == [seq for seq in kept if seq not in (2, 11)]
    assert len(index) == len(kept)


def test_only_rows_entirely_below_a_seq_are_dropped() -> None:
    index = index_of(*((3 * n + 1, 3, 100 + n) for n in range(100)))
    index.drop_below(200)
    assert len(index) < 150
    assert [seq for seq in range(199, 301) if index.holds(seq)] == list(range(199, 301))
    assert index.append(AppendedRecords(301, 999, array("I", [10]), array("I", [1]), [])) == 100, "row numbers go on"


def test_an_index_with_all_rows_dropped_accepts_appends() -> None:
    index = index_of((1, 3, 100))
    index.delete(2)
    index.drop_below(99)
    assert (len(index), index.dead, index.first_live(1, 99), index.oldest_lsn(1)) == (0, None, None, None)
    index.set_lsn(index.append(AppendedRecords(50, 7, array("I", [10]), array("I", [1]), [])), FILE, 0)
    assert index.totals(1, 99) == (1, 1)


@given(st.sets(st.integers(1, 14)), st.integers(0, 15), st.integers(0, 15), st.integers(1, 9))
def test_the_first_live_seqs_skip_deleted_seqs(dead: set[int], seq: int, end_seq: int, count: int) -> None:
    index = index_of((1, 3, 100), (4, 2, 200), (8, 7, 300))
    there = [*range(1, 6), *range(8, 15)]
    for each in dead & {*there}:
        index.delete(each)
    wanted = [each for each in there if seq <= each < end_seq and each not in dead]
    assert index.live_seqs(seq, end_seq, count) == wanted[:count]
