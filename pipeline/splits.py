"""Divides a range of seqs into splits, one for each task. Pure.

A split is a sequence of adjacent pieces. A piece is a sealed segment or a part of it, or a range that is not in a
sealed segment, and is read through the API for records. Small segments share a split, to save the cost of starting
tasks. Large ones are divided by seqs, whose offsets are in the index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.view import LogView, SegmentInfo

#: Bytes of .data that a task reads: at least, unless more partitions are requested, and at most.
SPLIT_BYTES = 32 << 20
#: The assumed bytes of a record, if nothing is known.
RECORD_BYTES = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Seqs start <= seq < end. `segment` None: they are not in a sealed segment."""

    start: int
    end: int
    segment: SegmentInfo | None

    @property
    def bytes(self) -> int:
        """The approximate bytes that are read for it."""
        if self.segment is None:
            return (self.end - self.start) * RECORD_BYTES
        count = max(1, self.segment.end_seq - self.segment.first_seq)
        return self.segment.size * (self.end - self.start) // count


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Seqs start <= seq < end of a partition, with the log's state at one instant (`view`, without segments)."""

    topic: str
    partition: int
    view: LogView
    start: int
    end: int
    pieces: tuple[Piece, ...]


def pieces_of(view: LogView, start: int, end: int) -> Iterator[Piece]:
    """The pieces of seqs start <= seq < end, in order, from earliest_seq on."""
    at = max(start, view.earliest_seq)
    for segment in view.segments:
        if not segment.sealed or segment.end_seq <= at:
            continue
        if segment.first_seq >= end or at >= end:
            break
        if segment.first_seq > at:
            yield Piece(start=at, end=segment.first_seq, segment=None)
            at = segment.first_seq
        stop = min(end, segment.end_seq)
        yield Piece(start=at, end=stop, segment=segment)
        at = stop
    if at < end:
        yield Piece(start=at, end=end, segment=None)


def splits_of(topic: str, view: LogView, start: int, end: int, *, target_bytes: int = SPLIT_BYTES) -> Iterator[Split]:
    """Splits of about `target_bytes` each for seqs start <= seq < end."""
    bare = bare_view(view)
    group: list[Piece] = []
    size = 0
    for piece in _divide(pieces_of(view, start, end), target_bytes):
        if group and size + piece.bytes > target_bytes:
            yield _split(topic, bare, group)
            group, size = [], 0
        group.append(piece)
        size += piece.bytes
    if group:
        yield _split(topic, bare, group)


def even_splits_of(topic: str, view: LogView, start: int, end: int, *, step: int) -> Iterator[Split]:
    """Splits of `step` seqs each for seqs start <= seq < end. They depend only on these numbers.

    So a repeated batch has the same tasks with the same records, even if the log is stored in another way by then.
    """
    bare = bare_view(view)
    for at in range(start, end, step):
        stop = min(at + step, end)
        pieces = tuple(pieces_of(view, at, stop))
        yield Split(topic=topic, partition=view.partition, view=bare, start=at, end=stop, pieces=pieces)


def target_for(planned: Iterable[tuple[LogView, int, int]], partitions: int) -> int:
    """The bytes of a split, for about the requested number of splits, and none too large."""
    total = sum(piece.bytes for view, start, end in planned for piece in pieces_of(view, start, end))
    return max(1, min(SPLIT_BYTES, -(-total // max(1, partitions))))


def bare_view(view: LogView) -> LogView:
    """The view for a task, without segments: the pieces contain those."""
    return LogView(
        cluster_id=view.cluster_id,
        topic_id=view.topic_id,
        epoch=view.epoch,
        earliest_seq=view.earliest_seq,
        evict_floor=view.evict_floor,
        head_seq=view.head_seq,
        durable_seq=view.durable_seq,
        loss=view.loss,
        evicted_by=view.evicted_by,
        mark=view.mark,
        partition=view.partition,
    )


def _divide(pieces: Iterable[Piece], target_bytes: int) -> Iterator[Piece]:
    for piece in pieces:
        parts = min(-(-piece.bytes // target_bytes), piece.end - piece.start)
        if parts <= 1 or (piece.segment is not None and piece.segment.file):
            yield piece  # a local file is always read from its start, so parts would read it several times
            continue
        step = -(-(piece.end - piece.start) // parts)
        for at in range(piece.start, piece.end, step):
            yield replace(piece, start=at, end=min(at + step, piece.end))


def _split(topic: str, view: LogView, group: Sequence[Piece]) -> Split:
    return Split(
        topic=topic, partition=view.partition, view=view, start=group[0].start, end=group[-1].end, pieces=tuple(group)
    )
