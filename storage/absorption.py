"""What goes from a log's tail into its active segment, and the bytes of it. Pure but for `open_writer`.

Shared by the absorber of a running engine and by a start that changes the number of shards. Source: storage.md §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from storage.filesystem import FileSystem
from storage.format import segment_frame
from storage.log import Log
from storage.manifest import Segment
from storage.options import Options
from storage.segment.names import SegmentId
from storage.segment.writer import MAX_JUMP, ActiveSegment
from storage.tail import Span

#: Most bytes of one log moved in one go: what a turn holds in memory.
_TURN_BYTES = 8 << 20
_IDX_FLAGS = bytes(segment_frame.idx_flags(flags) for flags in range(256))


class Plan(NamedTuple):
    """What goes into a log's active segment: seqs from `first_seq`, and the spans of those that live."""

    segment: Segment
    spans: list[Span]
    last_seq: int

    @property
    def first_seq(self) -> int:
        return self.spans[0].first_seq


class Source(NamedTuple):
    """Bytes that hold a span's frames, and where in them these begin."""

    data: bytes
    start: int
    span: Span


def plan_turn(log: Log, options: Options) -> Plan | None:
    """The next records for the active segment; None when there are none, or none that it has room for."""
    segment = log.held.manifest.active
    begin = log.oldest_unabsorbed()
    if segment is None or begin is None:
        return None
    spans: list[Span] = []
    size, count, last_seq = 0, segment.count, 0
    for span in log.tail.spans(begin, log.head + 1):
        if not span.place or (spans and span.first_seq - last_seq > MAX_JUMP):
            break
        more = sum(span.sizes)
        full = count + len(span.sizes) > options.segment_max_events
        if (spans or segment.count) and (
            size + more > _TURN_BYTES or full or segment.data_bytes + size + more > options.segment_max_bytes
        ):
            break
        spans.append(span)
        size += more
        last_seq = span.first_seq + len(span.sizes) - 1
        count = last_seq + 1 - segment.first_seq
    if not spans or spans[0].first_seq - segment.end_seq > MAX_JUMP:
        return None
    return Plan(segment, spans, last_seq)


def append(writer: ActiveSegment, plan: Plan, sources: Sequence[Source], dead: int) -> int:
    """Write a plan's records but for those whose bits of `dead` are set, from its first seq on; the bytes of frames.

    Blocking. Raises as `ActiveSegment.append`.
    """
    before = writer.data_bytes
    frames, lens, stamps, flags = _columns(sources, plan.first_seq, dead)
    writer.append(plan.first_seq, frames, lens, stamps, flags)
    return writer.data_bytes - before


def open_writer(fs: FileSystem, root: str, id: SegmentId, segment: Segment) -> ActiveSegment:
    """The files of an active segment, to go on from what is marked of them. Blocking. Raises SegmentError, OSError."""
    if segment.count or segment.gen:
        return ActiveSegment.open(fs, root, id, segment.end_seq)
    return _begin(fs, root, id)


def _begin(fs: FileSystem, root: str, id: SegmentId) -> ActiveSegment:
    """The empty files of a segment of which nothing is marked. Blocking. Raises OSError."""
    try:
        return ActiveSegment.create(fs, root, id)
    except FileExistsError:
        # Left by a turn that failed: nothing of it is marked, so opening it at its beginning cuts it.
        return ActiveSegment.open(fs, root, id, id.first_seq)


def _columns(
    sources: Sequence[Source], first_seq: int, dead: int
) -> tuple[memoryview, list[int], list[int], list[int]]:
    """Frames of the records that live, and length, time and flags of every seq from `first_seq` on."""
    pieces: list[tuple[bytes, int, Sequence[int]]] = []
    lens: list[int] = []
    stamps: list[int] = []
    flags: list[int] = []
    for data, start, span in sources:
        gap = span.first_seq - first_seq - len(lens)
        if gap:
            for column in (lens, stamps, flags):
                column.extend([0] * gap)
        sizes = list(span.sizes)
        offsets = list(accumulate(sizes, initial=start))
        gone = dead >> (span.first_seq - first_seq) & ((1 << len(sizes)) - 1)
        if len(sizes) > 1 and len({*sizes}) == 1:
            flags.extend(data[start + 5 : offsets[-1] : sizes[0]].translate(_IDX_FLAGS))
        else:
            flags.extend([segment_frame.idx_flags(data[offset + 5]) for offset in offsets[:-1]])
        stamps.extend([span.ts] * len(sizes))
        if not gone:
            pieces.append((data, start, sizes))
            lens.extend(sizes)
            continue
        for number, size in enumerate(sizes):
            alive = not gone >> number & 1
            lens.append(size if alive else 0)
            if alive:
                pieces.append((data, offsets[number], [size]))
    return segment_frame.convert(pieces), lens, stamps, flags
