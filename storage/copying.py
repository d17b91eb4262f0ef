"""Copies records from the log into the active segment of theirs: what an absorber's turn does to files. Blocking.

It knows nothing but files, so that it can be done in another process. Done again from the same end it leaves the same
files, whatever an earlier time had come to: nothing behind the end counts. Source: storage.md §4.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import accumulate, chain, repeat
from typing import NamedTuple

from storage.filesystem import FileSystem
from storage.format import segment_frame
from storage.format.idx_entry import set_bits
from storage.segment import names
from storage.segment.names import SegmentId
from storage.segment.writer import ActiveSegment
from storage.spans import Rows, Span
from storage.wal.fetch import WalReader

_FLAGS_AT = 4  # in a segment frame
_IDX_FLAGS = bytes(segment_frame.idx_flags(flags) for flags in range(256))


class Copy(NamedTuple):
    """Records to be copied: `rows`, but for those whose bits of `dead` are set (from the first row's seq on).

    The segment, of the data directory `root`, is marked up to `end_seq`.
    """

    root: str
    id: SegmentId
    end_seq: int
    rows: Rows
    dead: int


class Copied(NamedTuple):
    """Bytes of the segment's .data now, and how many of them are new."""

    data_bytes: int
    written: int


class Source(NamedTuple):
    """Bytes that hold a span's frames, and where in them these begin."""

    data: bytes
    start: int
    span: Span


def read_sources(wal: WalReader, shard: int, rows: Rows) -> list[Source]:
    """Where the rows' frames are, in memory. Raises WalFileGone, OSError."""
    spans = rows.spans()
    read = wal.read(shard, spans)
    return [Source(*read[span.first_seq], span) for span in spans]


def append(writer: ActiveSegment, job: Copy, sources: Sequence[Source]) -> Copied:
    """Write the records. Raises as `ActiveSegment.append`, and FrameError where the log holds something else."""
    before, first_seq = writer.data_bytes, job.rows.seqs[0]
    frames, lens, stamps, flags = _columns(sources, job.rows, job.dead)
    writer.append(first_seq, frames, lens, stamps, flags)
    return Copied(writer.data_bytes, writer.data_bytes - before)


def copy(fs: FileSystem, wal_directory: str, job: Copy) -> Copied:
    """All of it, by itself, from log files in that directory.

    Raises SegmentError, WalFileGone, FrameError, OSError; then nothing of it counts.
    """
    wal = WalReader(fs, [wal_directory])
    try:
        sources = read_sources(wal, 0, job.rows)
        writer = open_writer(fs, job)
        try:
            return append(writer, job, sources)
        finally:
            writer.close()
    finally:
        wal.close()


def open_writer(fs: FileSystem, job: Copy) -> ActiveSegment:
    """The segment's files, to go on from what is marked of them. Raises SegmentError, OSError."""
    if job.end_seq > job.id.first_seq or job.id.gen:
        return ActiveSegment.open(fs, job.root, job.id, job.end_seq)
    try:
        return ActiveSegment.create(fs, job.root, job.id)
    except FileExistsError:
        # Left by a turn that failed, or by a process that died in the middle: of both files or of one, their names
        # durable or not. Nothing of them is marked.
        for ext in (names.DATA, names.IDX):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(names.path(job.root, job.id, ext))
        return ActiveSegment.create(fs, job.root, job.id)


def _columns(
    sources: Sequence[Source], rows: Rows, dead: int
) -> tuple[memoryview, list[int], list[int], Sequence[int]]:
    """Frames of the records that live, and length, time and flags of every seq from the first row's on."""
    first_seq = rows.seqs[0]
    if rows.end_seq - first_seq == len(rows.sizes):
        lens = rows.sizes.tolist()
        stamps = list(chain.from_iterable(map(repeat, rows.stamps, rows.counts)))
    else:
        lens, stamps = _with_gaps(sources, first_seq)
    for index in set_bits(dead):
        lens[index] = 0
    pieces: list[tuple[memoryview, int, Sequence[int]]] = []
    for data, start, span in sources:
        view, sizes = memoryview(data), span.sizes
        gone = dead >> (span.first_seq - first_seq) & ((1 << len(sizes)) - 1) if dead else 0
        if gone:
            offsets = accumulate(sizes, initial=start)
            alive = (not gone >> number & 1 for number in range(len(sizes)))
            pieces += [
                (view, offset, [size]) for offset, size, lives in zip(offsets, sizes, alive, strict=False) if lives
            ]
        else:
            pieces.append((view, start, sizes))
    frames = segment_frame.convert(pieces)
    return frames, lens, stamps, _idx_flags(frames, lens)


def _with_gaps(sources: Sequence[Source], first_seq: int) -> tuple[list[int], list[int]]:
    """Length and time of every seq, 0 where there is no record."""
    lens: list[int] = []
    stamps: list[int] = []
    for _, _, span in sources:
        for column in (lens, stamps):
            column.extend(repeat(0, span.first_seq - first_seq - len(column)))
        lens.extend(span.sizes)
        stamps.extend(repeat(span.ts, len(span.sizes)))
    return lens, stamps


def _idx_flags(frames: memoryview, lens: Sequence[int]) -> Sequence[int]:
    """Of each seq; `lens` are those of the frames, 0 where there is none."""
    if len(lens) > 1 and len({*lens}) == 1 and lens[0]:
        return bytes(frames[_FLAGS_AT :: lens[0]]).translate(_IDX_FLAGS)
    offsets = accumulate(lens, initial=_FLAGS_AT)
    return [_IDX_FLAGS[frames[offset]] if size else 0 for offset, size in zip(offsets, lens, strict=False)]
