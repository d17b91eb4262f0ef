"""Copies records from the log into the active segment of their topic: the file part of a flush. Blocking.

A copy that is repeated from the same end leaves the same files, however far an earlier attempt came: bytes after the
end do not count.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, NamedTuple

import kernel
from kernel import Columns, total
from kernel.rows import ROW
from storage.format import LENGTH, FrameError, FrameType, wal_frame
from storage.log import WalReader
from storage.platform import FileSystem
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.writer import ActiveSegment, Frames
from storage.state import BatchSlice, SliceColumns

#: The most bytes of frames that are read, changed and written at a time. So few stay in the processor's caches; copies
#: of many MiB would pass through main memory four times.
PART_BYTES = 256 << 10
_BEGIN = LENGTH.pack
_APPEND = bytes((FrameType.APPEND,))
_FLAGS_AT = 5


class Copy(NamedTuple):
    """Records to be copied: `columns` without those whose bit in `dead` is set (counted from the first row's seq).

    The segment, of the data directory `root`, is marked up to `end_seq`. `folder`: the log has a segment already, so
    its folder exists durably.
    """

    root: str
    id: SegmentId
    end_seq: int
    columns: SliceColumns
    dead: int
    folder: bool = False


class Copied(NamedTuple):
    """Bytes of the segment's .data now, and how many of them are new."""

    data_bytes: int
    written: int


def read(wal: WalReader, shard: int, job: Copy) -> Iterator[Frames]:
    """The frames of the log to append, part by part. Each part is read on demand.

    The first part has been read on return. Raises WalFileGone, FrameError, OSError, also for later parts.
    """
    parts = _parts(wal, shard, job)
    return chain((next(parts),), parts)


def append(writer: ActiveSegment, parts: Iterator[Frames], lock: AbstractContextManager[Any] | None = None) -> Copied:
    """Write the records. Raises as `ActiveSegment.append`; FrameError: the log holds something else."""
    before = writer.data_bytes
    writer.append(parts, lock)
    return Copied(writer.data_bytes, writer.data_bytes - before)


def copy_anew(fs: FileSystem, wal: WalReader, shard: int, job: Copy, lock: AbstractContextManager[Any]) -> Copied:
    """Copy all of it into new files of a segment that no frame names yet: complete, synced and closed on return. The
    caller makes their names durable: it syncs the folder, once for many files. `lock`: as for `ActiveSegment.append`.

    Raises as `read`, `open_writer` and `ActiveSegment.append`; then the files may be left, and do not count.
    """
    with lock:
        parts = read(wal, shard, job)
        writer = open_writer(fs, job, named=False)
    with contextlib.closing(writer):
        return append(writer, parts, lock)


def open_writer(fs: FileSystem, job: Copy, *, named: bool = True) -> ActiveSegment:
    """The segment's files, to continue from what is marked of them. `named` as for `ActiveSegment.create`.

    Raises SegmentError, OSError.
    """
    if job.end_seq > job.id.first_seq or job.id.gen:
        return ActiveSegment.open(fs, job.root, job.id, job.end_seq)
    try:
        return ActiveSegment.create(fs, job.root, job.id, folder=job.folder, named=named)
    except FileExistsError:
        # A failed attempt or a killed process has left them: one file or both, with durable names or not. No mark
        # covers them.
        for ext in (names.DATA, names.IDX):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(names.path(job.root, job.id, ext))
        return ActiveSegment.create(fs, job.root, job.id, folder=job.folder, named=named)


def _parts(wal: WalReader, shard: int, job: Copy) -> Iterator[Frames]:
    first_seq = job.columns.seqs[0]
    for some in _portions(job.columns.slices()):
        found = wal.read(shard, some)
        table, buffer, begin = bytearray(), b"", some[0].first_seq
        for group in _adjacent(found, some):
            data, start = found[group[0].first_seq]
            if data is not buffer and table:
                yield _living(buffer, table, begin - first_seq, job.dead)
                table, begin = bytearray(), group[0].first_seq
            buffer = data
            table += _table_of(data, start, job.id.topic_id, group)
        yield _living(buffer, table, begin - first_seq, job.dead)
        del found, buffer  # one part is in memory at a time, and fits into the processor's caches


def _living(buffer: bytes, table: bytearray, number: int, dead: int) -> Frames:
    """The rows that are not dead. `number`: the index of the first row in `dead`, in seqs."""
    frames = Columns(bytes(table))
    bits = dead >> number
    if not bits:
        return Frames(buffer, frames, None)
    first = frames.row(0)[2]
    return Frames(buffer, frames, bytes([bits >> (seq - first) & 1 for seq in frames.seqs]))


def _adjacent(found: dict[int, tuple[bytes, int]], slices: list[BatchSlice]) -> Iterator[list[BatchSlice]]:
    """Slices with consecutive seqs and adjacent frames, each as long as possible."""
    group: list[BatchSlice] = []
    end, end_seq, buffer = -1, -1, b""
    for slice_ in slices:
        data, start = found[slice_.first_seq]
        if group and (data is not buffer or start != end or slice_.first_seq != end_seq):
            yield group
            group = []
        group.append(slice_)
        buffer, end, end_seq = data, start + total(slice_.sizes), slice_.first_seq + len(slice_.sizes)
    yield group


def _table_of(data: bytes, start: int, topic_id: int, group: list[BatchSlice]) -> bytes:
    """Rows of `kernel.Columns`: those of valid frames unchanged, those of others from the index.

    Damaged frames of the log are copied as they are, in place, and reported to their readers. Raises FrameError where
    no Append frame of the right size begins.
    """
    sizes = group[0].sizes if len(group) == 1 else array("I", chain.from_iterable(each.sizes for each in group))
    end = start + total(sizes)
    if end <= len(data):
        found = kernel.scan(data, start=start, stop=end, topic_id=topic_id, first_seq=group[0].first_seq)
        if not found.reason and found.columns.sizes == sizes:
            return found.columns.rows
    table, at = bytearray(), start
    for slice_ in group:
        for seq, size in enumerate(slice_.sizes, slice_.first_seq):
            if data[at : at + _FLAGS_AT] != _BEGIN(size - LENGTH.size) + _APPEND or at + size > len(data):
                raise FrameError(f"no frame of {size} bytes of seq {seq} begins at {at} of what was read")
            flags = data[at + _FLAGS_AT]
            fields = (size - wal_frame.OVERHEAD, 0, 0, FrameType.APPEND, flags, 0, wal_frame.HEADER_SIZE)
            table += ROW.pack(at, topic_id, seq, slice_.ts, size, *fields)
            at += size
    return bytes(table)


def _portions(slices: list[BatchSlice]) -> Iterator[list[BatchSlice]]:
    """The rows in portions of the size of a part."""
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
    """Split a slice that is larger than a part into pieces of about that size, of at least one record each."""
    size, count = total(slice_.sizes), len(slice_.sizes)
    if size <= PART_BYTES:
        yield slice_
        return
    step = max(1, count * PART_BYTES // max(size, PART_BYTES))
    offset = slice_.offset
    for at in range(0, count, step):
        sizes = slice_.sizes[at : at + step]
        yield slice_._replace(offset=offset, first_seq=slice_.first_seq + at, sizes=sizes)
        offset += total(sizes)
