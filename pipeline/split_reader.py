"""Reads the verified records of a split as Arrow batches. Runs in a task.

Segments may have changed since the plan: rewritten or moved (412, 404), or evicted. Then the rest of the split is
planned again in the task. No record is returned twice, and records that are gone are a gap. All frames of a chunk are
verified before any record of it is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from pipeline import frames
from pipeline.batches import Shape, from_frames, from_rows
from pipeline.broker import Page
from pipeline.errors import DataLoss, Gap, Recreated, SegmentDamaged, SourceUnreadable, TopicChanged
from pipeline.splits import Piece, Split, bare_view, pieces_of
from pipeline.values import Tally
from pipeline.view import LogView, SegmentInfo

#: The most consecutive plans without progress before the read fails.
_PLANS = 10

OnGap = Callable[[Gap], None]


def fail_on_gap(gap: Gap) -> None:
    """Raises DataLoss."""
    raise Recreated(gap) if gap.ends_log else DataLoss(gap)


class Origin(Protocol):
    """The calls of an origin that a task needs."""

    def view(self, topic: str, partition: int = 0) -> LogView: ...

    def data(
        self, topic: str, view: LogView, segment: SegmentInfo, start: int, end: int, ahead: int
    ) -> Iterator[tuple[int, bytes]]: ...

    def dead(self, topic: str, view: LogView, segment: SegmentInfo) -> bytes: ...

    def data_name(self, topic: str, view: LogView, segment: SegmentInfo) -> str: ...

    def page(self, topic: str, view: LogView, after_seq: int, *, limit: int = ..., from_ts: int = ...) -> Page: ...

    def reason(self, topic: str, view: LogView, seq: int) -> str: ...


class SplitReader:
    """Reads one split once. `on_gap` is called for losses that the plan did not contain, and may raise."""

    def __init__(self, origin: Origin, split: Split, shape: Shape, on_gap: OnGap, ahead: int = 2) -> None:
        #: The malformed values so far.
        self.tally = Tally()
        self._origin = origin
        self._split = split
        self._shape = shape
        self._on_gap = on_gap
        self._ahead = ahead
        self._view = split.view
        #: The next seq to return.
        self._next = split.start

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records, in seq order. Raises DataLoss, SegmentDamaged, SourceUnreadable."""
        pieces, tries = list(self._split.pieces), 0
        while True:
            reached = self._next
            try:
                for piece in pieces:
                    yield from self._piece(piece)
            except TopicChanged as error:
                tries = 0 if self._next > reached else tries + 1
                if tries >= _PLANS:
                    raise SourceUnreadable(f"{error} Planning again {tries} times did not help.") from error
                pieces = list(self._plan_again())
            else:
                return

    def _plan_again(self) -> Iterator[Piece]:
        split = self._split
        view = self._origin.view(split.topic, split.partition)
        if view.epoch != split.view.epoch or view.topic_id != split.view.topic_id:
            raise Recreated(Gap(split.topic, split.partition, self._next, split.end - 1, "recreated"))
        for gap in view.gaps(split.topic, self._next, split.end):
            self._lost(gap._replace(reason=gap.reason or self._origin.reason(split.topic, view, gap.first)))
        self._view = bare_view(view)
        return pieces_of(view, self._next, split.end)

    def _lost(self, gap: Gap) -> None:
        known = any(gap.first >= each.first and gap.last <= each.last for each in self._known())
        if not known:
            self._on_gap(gap)

    def _known(self) -> Iterator[Gap]:
        """The losses in the plan, which the planner has reported."""
        split = self._split
        return split.view.gaps(split.topic, split.start, split.end)

    def _piece(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        if piece.segment is None:
            yield from self._pages(piece)
        else:
            yield from self._segment(piece, piece.segment)
        self._next = piece.end

    def _segment(self, piece: Piece, segment: SegmentInfo) -> Iterator[pa.RecordBatch]:
        split, view = self._split, self._view
        start = max(piece.start, self._next, view.earliest_seq)
        last, base = segment.first_seq - 1, 0
        rest = b""
        dead = self._origin.dead(split.topic, view, segment)
        for offset, chunk in self._origin.data(split.topic, view, segment, start, piece.end, self._ahead):
            base = offset - len(rest)
            data = rest + chunk if rest else chunk
            try:
                found, used, last = frames.decode(data, view.topic_id, last, segment.end_seq)
            except frames.FrameDamaged as error:
                name = self._origin.data_name(split.topic, view, segment)
                what = f"{error.what} (after seq {last})"
                raise SegmentDamaged(name, base + error.offset, what, split.topic) from error
            rest, base = data[used:], base + used
            found = found.within(start, piece.end).without(dead, segment.first_seq)
            if len(found):
                yield from_frames(found, split.topic, split.partition, self._shape, self.tally)
            self._next = min(max(last + 1, self._next), piece.end)
        if rest:
            name = self._origin.data_name(split.topic, view, segment)
            raise SegmentDamaged(name, base, f"the file ends within a frame (after seq {last})", split.topic)

    def _pages(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        split = self._split
        after = max(piece.start, self._next) - 1
        while after + 1 < piece.end:
            page = self._origin.page(split.topic, self._view, after)
            if page.gap is not None:
                if page.gap.reason == "recreated":
                    raise Recreated(page.gap._replace(first=after + 1, last=piece.end - 1))
                last = min(page.gap.last, piece.end - 1)
                if page.gap.first <= last:
                    self._lost(page.gap._replace(last=last))
            rows = [row for row in page.rows if row.seq < piece.end]
            if rows:
                yield from_rows(rows, split.topic, split.partition, self._shape, self.tally)
            if page.last_seq <= after:
                raise TopicChanged(f"{split.topic}: no records are after seq {after}, but the plan contains some.")
            after = page.last_seq
            self._next = min(after + 1, piece.end)
