"""Copies records from the log into the active segment of theirs: what an absorber's turn does to files. Blocking.

It knows nothing but files, so that it can be done in another process. Done again from the same end it leaves the same
files, whatever an earlier time had come to: nothing behind the end counts. Source: storage.md §4.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from storage.filesystem import FileSystem
from storage.format import segment_frame
from storage.segment import names
from storage.segment.names import SegmentId
from storage.segment.writer import ActiveSegment
from storage.spans import Rows, Span
from storage.wal.fetch import WalReader

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
    frames, lens, stamps, flags = _columns(sources, first_seq, job.dead)
    writer.append(first_seq, frames, lens, stamps, flags)
    return Copied(writer.data_bytes, writer.data_bytes - before)


def copy(fs: FileSystem, wal_directory: str, job: Copy) -> Copied:
    """All of it, by itself, from log files in that directory. Raises SegmentError, WalFileGone, FrameError, OSError; then nothing of it counts."""
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
