"""Which segments all consumers have passed, found without extra state."""

from __future__ import annotations

import pytest

from storage import Retention, TopicConfig
from storage.records.values import LossCause
from storage.state.consumers.consumer import Consumer
from storage.state.consumers.progress import consumed_floor, reclaimable_floor
from storage.state.consumers.values import ConsumerConfig
from storage.state.log import Log
from storage.state.manifest import Manifest, SegmentState
from storage.state.usage import Usage
from storage.state.watermarks import Watermarks

CONSUMED = TopicConfig(retention=Retention.CONSUMED)


def segments(*bounds: tuple[int, int], active: bool) -> Manifest:
    """Segments [first_seq, end_seq). All are sealed, except the last one if `active`."""
    last = len(bounds) - 1
    return Manifest(
        [
            SegmentState(first_seq=first, end_seq=end, sealed=not (active and index == last), live=end - first)
            for index, (first, end) in enumerate(bounds)
        ]
    )


@pytest.mark.parametrize(
    ("seq", "end"), [(0, 0), (1, 0), (4, 0), (5, 5), (6, 5), (11, 5), (12, 12), (14, 12), (15, 12), (99, 12)]
)
def test_a_sealed_segment_entirely_below_the_cursor_counts(seq: int, end: int) -> None:
    assert segments((1, 5), (8, 12), (12, 15), active=True).sealed_end(seq) == end


@pytest.mark.parametrize(("seq", "end"), [(4, 0), (5, 5), (8, 5), (9, 9), (99, 9)])
def test_the_last_segment_counts_when_sealed(seq: int, end: int) -> None:
    assert segments((1, 5), (5, 9), active=False).sealed_end(seq) == end


def test_a_log_without_segments_has_no_consumed_segment() -> None:
    assert Manifest().sealed_end(99) == 0
    assert segments((1, 1), active=True).sealed_end(99) == 0


def log_with(*durable: int) -> Log:
    """A log of nine records, in two sealed segments and the tail, and consumers at those cursors."""
    log = Log(1, shard=0, epoch=1, usage=Usage())
    log.head = 9
    log.held.manifest = segments((1, 5), (5, 9), active=False)
    for number, seq in enumerate(durable):
        log.consumers.add(Consumer(number, f"c{number}", ConsumerConfig(), seq))
    return log


@pytest.mark.parametrize(
    ("durable", "passed", "floor"),
    [((), 1, None), ((0,), 1, None), ((3,), 4, None), ((4,), 5, 5), ((9,), 10, 9), ((9, 7), 8, 5), ((9, 3), 4, None)],
)
def test_the_slowest_consumer_decides(durable: tuple[int, ...], passed: int, floor: int | None) -> None:
    log = log_with(*durable)
    assert (consumed_floor(CONSUMED, log), reclaimable_floor(CONSUMED, log)) == (passed, floor)
    assert (consumed_floor(TopicConfig(), log), reclaimable_floor(TopicConfig(), log)) == (1, None)


def test_records_gone_for_another_reason_are_not_reclaimed() -> None:
    log = log_with(6)
    log.marks.merge({LossCause.DELETE: 5})
    assert reclaimable_floor(CONSUMED, log) is None
    log.marks.merge({LossCause.CAP: 9})
    assert reclaimable_floor(CONSUMED, log_with(9)) == 9
    assert reclaimable_floor(CONSUMED, log) is None


def test_the_trim_floor_includes_consumed_records() -> None:
    marks = Watermarks({LossCause.CAP: 3, LossCause.DELETE: 20, LossCause.CONSUMED: 9})
    assert (marks.evict_floor, marks.trim_floor, marks.live_floor) == (3, 9, 20)
    assert Watermarks({LossCause.CAP: 7}).trim_floor == 7
