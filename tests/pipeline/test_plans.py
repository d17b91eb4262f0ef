"""How ranges of seqs are divided into tasks, and which of them are known to be lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import Gap
from pipeline.splits import splits_of, target_for
from pipeline.view import LogView, Loss, Renewal, SegmentInfo


def view(*ends: int, sealed: int, head: int, earliest: int = 1, floor: int = 1, loss: tuple[Loss, ...] = ()) -> LogView:
    """Segments that end before each of `ends`, the first `sealed` of them sealed; 100 bytes a record."""
    segments = [
        SegmentInfo(first_seq=begin, end_seq=end, size=(end - begin) * 100, sealed=index < sealed)
        for index, (begin, end) in enumerate(zip((1, *ends), ends, strict=False))
    ]
    return LogView(
        cluster_id="c",
        topic_id=1,
        epoch=1,
        earliest_seq=earliest,
        evict_floor=floor,
        head_seq=head,
        durable_seq=head,
        loss=loss,
        segments=segments,
    )


@given(
    st.lists(st.integers(1, 50), max_size=6),
    st.integers(0, 6),
    st.integers(0, 40),
    st.integers(1, 350),
    st.integers(1, 350),
    st.integers(1, 60),
    st.integers(1, 30_000),
)
def test_splits_cover_every_seq_once_and_in_order(
    counts: list[int], sealed: int, tail: int, start: int, end: int, earliest: int, target: int
) -> None:
    ends = [1 + sum(counts[: number + 1]) for number in range(len(counts))]
    head = sum(counts) + tail
    found = view(*ends, sealed=sealed, head=head, earliest=earliest)
    end = min(end, found.end)
    seqs: list[int] = []
    for split in splits_of("t", found, start, end, target_bytes=target):
        assert split.start == split.pieces[0].start
        assert split.end == split.pieces[-1].end
        for piece in split.pieces:
            seqs += range(piece.start, piece.end)
            segment = piece.segment
            assert segment is None or segment.first_seq <= piece.start < piece.end <= segment.end_seq
            assert segment is None or segment.sealed
    assert seqs == list(range(max(start, earliest), end))


def test_the_number_of_splits_is_near_the_requested_number() -> None:
    found = view(1001, 2001, sealed=2, head=2000)
    target = target_for([(found, 1, 2001)], 8)
    assert 8 <= len(list(splits_of("t", found, 1, 2001, target_bytes=target))) <= 10
    assert len(list(splits_of("t", found, 1, 2001))) == 1


@pytest.mark.parametrize(
    ("start", "end", "gaps"),
    [
        (1, 100, [(1, 9, "cap"), (20, 24, "crash")]),
        (5, 8, [(5, 7, "cap")]),
        (10, 20, []),
        (22, 30, [(22, 24, "crash")]),
        (12, 21, [(20, 20, "crash")]),
    ],
)
def test_gaps_are_evicted_and_lost_ranges(start: int, end: int, gaps: list[tuple[int, int, str]]) -> None:
    import msgspec

    found = view(sealed=0, head=200, earliest=10, floor=10, loss=(Loss(first=20, last=24, cause="crash"),))
    found = msgspec.structs.replace(found, evicted_by="cap")
    assert list(found.gaps("t", start, end)) == [Gap("t", 0, *each) for each in gaps]


@pytest.mark.parametrize(
    ("epoch", "kept"),
    [
        (1, 30),
        (3, 30),
        (5, 40),
        (7, None),
    ],
)
def test_an_earlier_epoch_shares_the_records_up_to_the_lowest_head_of_all_later_ones(
    epoch: int, kept: int | None
) -> None:
    import msgspec

    renewals = [Renewal(epoch=3, head_seq=50), Renewal(epoch=5, head_seq=30), Renewal(epoch=7, head_seq=40)]
    found = msgspec.structs.replace(view(sealed=0, head=60), epoch=7, renewals=renewals)
    assert found.shared_with(epoch) == kept
    assert msgspec.structs.replace(found, epoch=9).shared_with(epoch) is None
    assert msgspec.structs.replace(found, renewals=()).shared_with(epoch) is None
