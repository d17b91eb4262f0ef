"""What the tasks of a read do: ranges of seqs, and from which files they come. Pure.

A split is one task's work: pieces that follow one another. A piece is a sealed segment or part of it, or a range
that is in no sealed one and is read as records are. Small segments share a split, so that a task is worth its start;
large ones are cut by seqs, whose places in the file their index tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.view import LogView, SegmentInfo

#: What a task reads at least, unless more partitions are asked for, and at most; bytes of .data.
SPLIT_BYTES = 32 << 20
#: Bytes taken for a record of which nothing is known.
RECORD_BYTES = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Seqs start <= seq < end. `segment` is None where no sealed segment has them."""

    start: int
    end: int
    segment: SegmentInfo | None

    @property
    def bytes(self) -> int:
        """About how many bytes are read for it."""
        if self.segment is None:
            return (self.end - self.start) * RECORD_BYTES
        count = max(1, self.segment.end_seq - self.segment.first_seq)
        return self.segment.size * (self.end - self.start) // count


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Seqs start <= seq < end of a partition, as a log was at one instant (`view` without its segments)."""

    topic: str
    partition: int
    view: LogView
    start: int
    end: int
    pieces: tuple[Piece, ...]


def pieces_of(view: LogView, start: int, end: int) -> Iterator[Piece]:
    """The pieces of seqs start <= seq < end, in order; nothing of what is below earliest_seq."""
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
    """Splits of `step` seqs each for seqs start <= seq < end: which ones follows from these numbers alone.

    However the log is stored by then, a batch that is run again has the same tasks, and each of them the same records.
    """
    bare = bare_view(view)
    for at in range(start, end, step):
        stop = min(at + step, end)
        pieces = tuple(pieces_of(view, at, stop))
        yield Split(topic=topic, partition=view.partition, view=bare, start=at, end=stop, pieces=pieces)


def target_for(planned: Iterable[tuple[LogView, int, int]], partitions: int) -> int:
    """Bytes a split, so that there are about as many as are asked for, and none is too large."""
    total = sum(piece.bytes for view, start, end in planned for piece in pieces_of(view, start, end))
    return max(1, min(SPLIT_BYTES, -(-total // max(1, partitions))))


def bare_view(view: LogView) -> LogView:
    """What a task needs to know of a log; the segments it reads are named by its pieces."""
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
            yield piece  # a file at hand is read from its beginning: parts of it would read it again and again
            continue
        step = -(-(piece.end - piece.start) // parts)
        for at in range(piece.start, piece.end, step):
            yield replace(piece, start=at, end=min(at + step, piece.end))


def _split(topic: str, view: LogView, group: Sequence[Piece]) -> Split:
    return Split(
        topic=topic, partition=view.partition, view=view, start=group[0].start, end=group[-1].end, pieces=tuple(group)
    )
