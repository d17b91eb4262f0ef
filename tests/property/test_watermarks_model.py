"""Watermarks against a set of lost seqs: a reader of the whole topic is told of every loss, and of nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.records.values import LossCause
from storage.state.watermarks import ANNOUNCED, Watermarks

HEAD = 60
SEQ = st.integers(1, HEAD)
RANGE_CAUSES = st.sampled_from([LossCause.CRASH, LossCause.SALVAGE, LossCause.SOURCE_TRIM])
FLOORS = st.dictionaries(st.sampled_from(list(LossCause)), st.integers(1, HEAD + 1), max_size=2)
RANGES = st.lists(
    st.tuples(SEQ, st.integers(0, 12), RANGE_CAUSES).map(lambda t: (t[0], min(HEAD, t[0] + t[1]), str(t[2]))),
    max_size=3,
)
CHANGES = st.lists(st.tuples(FLOORS, RANGES), min_size=1, max_size=5)


class Model:
    """The statements as they were made: ranges are kept apart, and floors are derived anew each time."""

    def __init__(self, changes: list[tuple[dict[LossCause, int], list[tuple[int, int, str]]]]) -> None:
        self.floors: dict[str, int] = {}
        self.ranges = [each for _, ranges in changes for each in ranges]
        for floors, _ in changes:
            for cause, floor in floors.items():
                self.floors[cause] = max(self.floors.get(cause, 1), floor)
        while True:
            before = dict(self.floors)
            for start, end, cause in self.joined():
                if start <= self.evict_floor:
                    self.floors[cause] = max(self.floors.get(cause, 1), end + 1)
            if self.floors == before:
                break

    def joined(self) -> list[tuple[int, int, str]]:
        """Ranges of one cause that touch are one range."""
        found: list[tuple[int, int, str]] = []
        for cause in {cause for _, _, cause in self.ranges}:
            seqs = {seq for a, b, own in self.ranges if own == cause for seq in range(a, b + 1)}
            for seq in sorted(seqs):
                if found and found[-1][2] == cause and found[-1][1] == seq - 1:
                    found[-1] = (found[-1][0], seq, cause)
                else:
                    found.append((seq, seq, cause))
        return found

    @property
    def evict_floor(self) -> int:
        return max([1, *(self.floors.get(cause, 1) for cause in ANNOUNCED)])

    def announced(self) -> set[int]:
        inside = {seq for a, b, _ in self.ranges for seq in range(a, b + 1)}
        return inside | set(range(1, self.evict_floor))


def merged(changes: list[tuple[dict[LossCause, int], list[tuple[int, int, str]]]]) -> Watermarks:
    marks = Watermarks()
    for floors, ranges in changes:
        marks.merge({str(cause): floor for cause, floor in floors.items()}, ranges)
    return marks


@given(CHANGES)
def test_each_floor_is_its_greatest_change_and_absorbs_adjacent_loss_ranges(changes: list) -> None:
    marks, model = merged(changes), Model(changes)
    assert marks.evict_floor == model.evict_floor
    assert marks.live_floor == max([1, *model.floors.values()])
    assert {cause: floor for cause, floor in marks.floors.items() if floor > 1} == {
        cause: floor for cause, floor in model.floors.items() if floor > 1
    }
    assert all(start > marks.evict_floor for start, _, _ in marks.loss)


@given(CHANGES)
def test_tombstones_of_a_full_read_cover_exactly_the_lost_seqs(changes: list) -> None:
    marks, model = merged(changes), Model(changes)
    told: set[int] = set()
    shown: set[int] = set()
    cursor = 0
    for _ in range(2 * HEAD):
        tombstone = marks.tombstone(cursor, earliest_seq=1, head_seq=HEAD)
        if tombstone is not None:
            assert tombstone.gap_from == cursor + 1
            assert tombstone.missed_estimate == tombstone.gap_to - tombstone.gap_from + 1 >= 1
            told |= set(range(tombstone.gap_from, tombstone.gap_to + 1))
            cursor = tombstone.gap_to
        stop = min(marks.next_loss(cursor) or HEAD + 1, HEAD + 1)
        shown |= set(range(cursor + 1, stop))
        cursor = max(cursor, stop - 1)
        if cursor >= HEAD:
            break
    assert told == model.announced()
    assert shown == set(range(1, HEAD + 1)) - told


@given(CHANGES, SEQ)
def test_a_tombstone_reason_is_its_single_cause_or_mixed(changes: list, seq: int) -> None:
    marks, model = merged(changes), Model(changes)
    causes = [str(cause) for cause in ANNOUNCED if model.floors.get(cause, 1) > seq]
    tombstone = marks.tombstone(seq - 1, earliest_seq=1, head_seq=HEAD)
    if seq < model.evict_floor:
        assert tombstone is not None
        assert tombstone.gap_to == model.evict_floor - 1
        assert tombstone.reason == (causes[0] if len(causes) == 1 else "mixed")
    elif tombstone is not None:
        assert any(a <= seq <= b and cause == tombstone.reason for a, b, cause in model.ranges)


@given(CHANGES, SEQ)
def test_only_lost_seqs_have_a_loss_reason(changes: list, seq: int) -> None:
    marks, model = merged(changes), Model(changes)
    why = marks.lost_to(seq)
    if seq < model.evict_floor:
        causes = [cause for cause in ANNOUNCED if model.floors.get(cause, 1) > seq]
        assert why == ("expired" if causes == [LossCause.TTL] else "evicted")
    elif seq in model.announced():
        assert why == "lost"
    else:
        assert why == ("deleted" if seq < marks.live_floor else None)


@given(CHANGES, st.randoms(use_true_random=False))
def test_order_and_repetition_of_changes_do_not_matter(changes: list, random: object) -> None:
    marks = merged(changes)
    again = list(changes) + changes[:2]
    random.shuffle(again)  # type: ignore[attr-defined]
    other = merged(again)
    assert (other.floors, other.evict_floor, other.live_floor) == (marks.floors, marks.evict_floor, marks.live_floor)
    lost = [{seq for a, b, _ in each.loss for seq in range(a, b + 1)} for each in (marks, other)]
    assert lost[0] == lost[1]


@given(CHANGES)
def test_watermarks_are_restored_from_their_snapshot_fields(changes: list) -> None:
    marks = merged(changes)
    restored = Watermarks(dict(marks.floors), list(marks.loss))
    assert (restored.floors, restored.loss, restored.evict_floor) == (marks.floors, marks.loss, marks.evict_floor)
