"""Where loss ranges of two causes overlapped, a reader was told of the first one and then skipped the rest of the
second."""

from __future__ import annotations

from storage.state.watermarks import Watermarks


def test_a_read_after_a_loss_range_stops_at_an_overlapping_loss_range() -> None:
    marks = Watermarks(loss=[(10, 20, "crash"), (15, 30, "salvage")])
    first = marks.tombstone(9, earliest_seq=1, head_seq=40)
    assert first is not None
    assert (first.gap_to, first.reason) == (20, "crash")
    assert marks.next_loss(first.gap_to) == 21
    second = marks.tombstone(20, earliest_seq=1, head_seq=40)
    assert second is not None
    assert (second.gap_from, second.gap_to, second.reason) == (21, 30, "salvage")
