"""Copies records from the log into the active segment of theirs: what an flush does to files. Blocking.

It knows nothing but files, so that it can be done in another process. Done again from the same end it leaves the same
files, whatever an earlier time had come to: nothing behind the end counts.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import NamedTuple, TypeAlias

from storage.format import segment_frame
from storage.format.blocks import total
from storage.format.idx_entry import set_bits
from storage.format.segment_frame import Sizes
from storage.log.fetch import WalReader
from storage.platform.filesystem import Buffer, FileSystem
from storage.records.batch_slices import BatchSlice, SliceColumns
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.writer import ActiveSegment

#: Frames of the log that are read, changed and written before the next ones are: what is in the processor's caches
#: then is cheap, and turns of many MiB would only run through main memory four times.
PART_BYTES = 256 << 10
_FLAGS_AT = 4  # in a segment frame
_IDX_FLAGS = bytes(segment_frame.idx_flags(flags) for flags in range(256))

#: Frames as they are in a segment, one behind the other, and the flags of their seqs.
Part: TypeAlias = tuple[Buffer, bytes]


class Copy(NamedTuple):
    """Records to be copied: `columns`, but for those whose bits of `dead` are set (from the first row's seq on).

    The segment, of the data directory `root`, is marked up to `end_seq`.
    """

    root: str
    id: SegmentId
    end_seq: int
    columns: SliceColumns
    dead: int


class Copied(NamedTuple):
    """Bytes of the segment's .data now, and how many of them are new."""

    data_bytes: int
    written: int


class Reading(NamedTuple):
    """What is to be appended: bytes of its frame and time of every seq from the first row's on, 0 bytes where there is
    no record, and the frames and flags part by part, each read from the log when it is asked for."""

    lens: list[int]
    stamps: list[int]
    parts: Iterator[Part]


def read(wal: WalReader, shard: int, job: Copy) -> Reading:
    """The first part has been read on return. Raises WalFileGone, FrameError, OSError, as asking for a part does."""
    columns, first_seq = job.columns, job.columns.seqs[0]
    slices = columns.slices()
    if columns.end_seq - first_seq == len(columns.sizes):
        lens = columns.sizes.tolist()
        stamps = list(chain.from_iterable(map(repeat, columns.stamps, columns.counts)))
    else:
        lens, stamps = _with_gaps(slices, first_seq)
    for index in set_bits(job.dead):
        lens[index] = 0
    parts = _parts(wal, shard, job, slices, lens)
    return Reading(lens, stamps, chain((next(parts),), parts))


def append(writer: ActiveSegment, job: Copy, reading: Reading) -> Copied:
    """Write the records. Raises as `ActiveSegment.append_parts`; FrameError: the log holds something else."""
    before = writer.data_bytes
    writer.append_parts(job.columns.seqs[0], *reading)
    return Copied(writer.data_bytes, writer.data_bytes - before)


def copy(fs: FileSystem, wal_directory: str, job: Copy) -> Copied:
    """All of it, by itself, from log files in that directory.

    Raises SegmentError, WalFileGone, FrameError, OSError; then nothing of it counts.
    """
    wal = WalReader(fs, [wal_directory])
    try:
        reading = read(wal, 0, job)  # before there is a segment, which is none if the log is gone
        writer = open_writer(fs, job)
        try:
            return append(writer, job, reading)
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


def _parts(wal: WalReader, shard: int, job: Copy, slices: list[BatchSlice], lens: list[int]) -> Iterator[Part]:
    """Frames of the records that live, and the flags of every seq, from the first row's on."""
    first_seq, at = job.columns.seqs[0], 0
    for some in _portions(slices):
        found = wal.read(shard, some)
        frames = segment_frame.convert(_alive(found, some, first_seq, job.dead))
        del found  # one part is in memory at a time, for which the processor has room, too
        end = some[-1].first_seq + len(some[-1].sizes) - first_seq
        yield frames, bytes(_idx_flags(frames, lens[at:end]))
        del frames
        at = end


def _portions(slices: list[BatchSlice]) -> Iterator[list[BatchSlice]]:
    """All of them, so many at a time as make a part."""
    some: list[BatchSlice] = []
    size = 0
    for slice_ in chain.from_iterable(map(_pieces, slices)):
        slice_bytes = total(slice_.sizes)
        if some and size + slice_bytes > PART_BYTES:
            yield some
            some, size = [], 0
        some.append(slice_)
        size += slice_bytes
    yield some


def _pieces(slice_: BatchSlice) -> Iterator[BatchSlice]:
    """A span that is larger than a part in pieces that are about as large as one, of at least one record each."""
    size, count = total(slice_.sizes), len(slice_.sizes)
    step = max(1, count * PART_BYTES // max(size, PART_BYTES))
    offset = slice_.offset
    for at in range(0, count, step):
        sizes = slice_.sizes[at : at + step]
        yield slice_._replace(offset=offset, first_seq=slice_.first_seq + at, sizes=sizes)
        offset += total(sizes)


def _alive(
    found: dict[int, tuple[bytes, int]], slices: list[BatchSlice], first_seq: int, dead: int
) -> list[tuple[memoryview, int, Sizes]]:
    """What `segment_frame.convert` takes, of those records whose bits of `dead` are not set."""
    pieces: list[tuple[memoryview, int, Sizes]] = []
    for slice_ in slices:
        data, start = found[slice_.first_seq]
        view, sizes = memoryview(data), slice_.sizes
        gone = dead >> (slice_.first_seq - first_seq) & ((1 << len(sizes)) - 1) if dead else 0
        if gone:
            offsets = accumulate(sizes, initial=start)
            alive = (not gone >> number & 1 for number in range(len(sizes)))
            pieces += [
                (view, offset, [size]) for offset, size, lives in zip(offsets, sizes, alive, strict=False) if lives
            ]
        else:
            pieces.append((view, start, sizes))
    return pieces


def _with_gaps(slices: list[BatchSlice], first_seq: int) -> tuple[list[int], list[int]]:
    """Length and time of every seq, 0 where there is no record."""
    lens: list[int] = []
    stamps: list[int] = []
    for slice_ in slices:
        for column in (lens, stamps):
            column.extend(repeat(0, slice_.first_seq - first_seq - len(column)))
        lens.extend(slice_.sizes)
        stamps.extend(repeat(slice_.ts, len(slice_.sizes)))
    return lens, stamps


def _idx_flags(frames: memoryview, lens: Sequence[int]) -> Sequence[int]:
    """Of each seq; `lens` are those of the frames, 0 where there is none."""
    if len(lens) > 1 and len({*lens}) == 1 and lens[0]:
        return bytes(frames[_FLAGS_AT :: lens[0]]).translate(_IDX_FLAGS)
    offsets = accumulate(lens, initial=_FLAGS_AT)
    return [_IDX_FLAGS[frames[offset]] if size else 0 for offset, size in zip(offsets, lens, strict=False)]
