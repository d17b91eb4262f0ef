"""Copies the live records of a segment to its next generation, and removes a segment's files.

The new files do not count before the caller's Segment{rewritten} frame names them; a crash before that leaves files
that a sweep removes. The old files stay unchanged until `remove`, which is called after the frame, and their readers
finish. An active segment whose sync failed continues in the same way: its marked part is copied to a new generation.

Source: docs/reference/guarantees.md#crash-points-of-a-write, docs/reference/format.md#segments.
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from operator import add
from typing import NamedTuple

import kernel
from kernel import total
from storage.format import ENTRY_SIZE, Entries, Header, IdxDamaged, idx_entry, segment_frame
from storage.platform import Buffer, File, FileSystem, Readable
from storage.segments import names
from storage.segments.errors import SegmentCorrupt
from storage.segments.files import create_files, datasync, discard, write_all
from storage.segments.names import SegmentId
from storage.segments.packed import PackedWriter, open_data

_CHUNK_BYTES = 1 << 20


class Rewritten(NamedTuple):
    """The new generation. `damaged_seqs`: records that fail their check. They were copied unchanged, so they still fail
    it.

    `packed_bytes`: length of the .zdata, 0 where there is a .data.
    """

    id: SegmentId
    data_bytes: int
    damaged_seqs: list[int]
    packed_bytes: int = 0


def rewrite(
    fs: FileSystem, root: str, id: SegmentId, end_seq: int, dead_bits: int, *, packed: bool = False
) -> Rewritten:
    """Write the live records of [first_seq, end_seq) to generation gen + 1, packed or not; durable on return.

    A record is dead when its bit (seq - first_seq) is set or .idx says that it is deleted. Dead records become entries
    without a record. Records deleted meanwhile are flagged in the new files (`flips.flip`) before these are named.

    SegmentCorrupt: the old .idx is damaged or .data too short. SegmentBroken, OSError: the new files could not be
    written. Whatever is raised, no new file is left, unless removing it failed too (FileExistsError the next time).
    """
    new = id._replace(gen=id.gen + 1, packed=packed)
    old_path = names.records_path(root, id)
    data_path, idx_path = names.records_path(root, new), names.path(root, new, names.IDX)
    content = _read_idx(fs, root, id, end_seq)
    entries = idx_entry.parse(content)
    dead = (dead_bits | idx_entry.dead_bits(content)) & ((1 << len(entries)) - 1)
    lens = entries.lens[:]
    for index in idx_entry.set_bits(dead):
        lens[index] = 0
    size = total(lens)
    damaged_seqs: list[int] = []
    with contextlib.closing(open_data(fs, root, id)) as old:
        with contextlib.suppress(FileNotFoundError):
            # An attempt to pack (or not to pack) it may have left this. It must not lie beside the file that counts.
            fs.unlink(names.records_path(root, new._replace(packed=not packed)))
        data, idx = create_files(fs, root, new)
        try:
            header = Header(new.topic_id, new.first_seq, new.gen, len(entries), size)
            writer = PackedWriter(data, data_path, header) if packed else _PlainWriter(data, data_path)
            for first, stop in _groups(entries, dead):
                frames = _read_group(old, old_path, entries.offsets[first], entries[stop - 1].end)
                damaged_seqs += [id.first_seq + index for index in _invalid(frames, entries, first, stop)]
                writer.add(frames)
            writer.finish()
            datasync(data, data_path)
            if dead:
                content = kernel.build_index(lens, entries.stamps, entries.flags)
            write_all(idx, idx_path, content, 0)
            datasync(idx, idx_path)
            fs.sync_dir(names.folder(root, id.topic_id))
        except BaseException:
            discard(fs, data, data_path)
            discard(fs, idx, idx_path)
            raise
    data.close()
    idx.close()
    return Rewritten(new, size, damaged_seqs, writer.size if packed else 0)


class _PlainWriter:
    """Writes a .data through the same calls as `PackedWriter` writes a .zdata."""

    def __init__(self, file: File, path: str) -> None:
        self._file, self._path = file, path
        self.size = 0

    def add(self, data: Buffer) -> None:
        write_all(self._file, self._path, data, self.size)
        self.size += len(data)

    def finish(self) -> None:
        """A .data ends with its records."""


def rewrite_anew(
    fs: FileSystem, root: str, id: SegmentId, end_seq: int, dead_bits: int, *, packed: bool = False
) -> Rewritten:
    """`rewrite`, also if an earlier attempt has left files that no manifest names."""
    try:
        return rewrite(fs, root, id, end_seq, dead_bits, packed=packed)
    except FileExistsError:
        remove(fs, root, id._replace(gen=id.gen + 1))
        return rewrite(fs, root, id, end_seq, dead_bits, packed=packed)


def remove(fs: FileSystem, root: str, id: SegmentId) -> None:
    """Unlink the files of a segment; durable on return. Missing files are fine. Raises OSError.

    To be called only once the frame that removes the segment is synced.
    """
    # .tag and .len last: those who write them check afterwards that .idx still exists.
    for ext in (names.DATA, names.PACKED, names.IDX, names.TAG, names.LEN):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(names.path(root, id, ext))
    # Also when nothing was there: a process may have been killed between the unlinks and this sync.
    with contextlib.suppress(FileNotFoundError):
        fs.sync_dir(names.folder(root, id.topic_id))


def _read_idx(fs: FileSystem, root: str, id: SegmentId, end_seq: int) -> bytes:
    """The whole .idx, with every entry valid and every frame adjacent to the one before."""
    path = names.path(root, id, names.IDX)
    file = fs.open(path, write=False)
    with contextlib.closing(file):
        content = file.pread((end_seq - id.first_seq) * ENTRY_SIZE, 0)
    try:
        entries = idx_entry.parse(content)
    except IdxDamaged as error:
        raise SegmentCorrupt(path, error.index * ENTRY_SIZE, "the entry fails its check") from error
    if len(entries) < end_seq - id.first_seq:
        raise SegmentCorrupt(path, len(content), f"{len(entries)} entries, not {end_seq - id.first_seq}")
    positions = array("I", accumulate(entries.lens, initial=0))
    positions.pop()
    if positions != entries.offsets:
        number = next(number for number, position in enumerate(positions) if position != entries.offsets[number])
        what = f"the entry says offset {entries.offsets[number]} of .data, those before it come to {positions[number]}"
        raise SegmentCorrupt(path, number * ENTRY_SIZE, what)
    return content


def _groups(entries: Entries, dead: int) -> Iterator[tuple[int, int]]:
    """(first, end) of ranges of live, adjacent records, about _CHUNK_BYTES each."""
    ends = list(map(add, entries.offsets, entries.lens))
    for first, end in _ranges(dead, len(entries)):
        while first < end:
            stop = max(first + 1, bisect_right(ends, entries.offsets[first] + _CHUNK_BYTES, lo=first, hi=end))
            yield first, stop
            first = stop


def _ranges(dead: int, count: int) -> Iterator[tuple[int, int]]:
    first = 0
    for index in idx_entry.set_bits(dead):
        if index > first:
            yield first, index
        first = index + 1
    if first < count:
        yield first, count


def _read_group(file: Readable, path: str, start: int, end: int) -> bytes:
    frames = file.pread(end - start, start)
    if len(frames) < end - start:
        raise SegmentCorrupt(path, start + len(frames), f"the file ends, records continue to {end}")
    return frames


def _invalid(frames: bytes, entries: Entries, first: int, stop: int) -> list[int]:
    """Numbers of the entries whose frames fail their check."""
    found, _, reason = kernel.scan(frames, kernel.Kind.SEGMENT)
    if not reason and found.sizes == entries.lens[first:stop]:
        return []
    start, verify = entries.offsets[first], segment_frame.verify
    group = zip(range(first, stop), entries.offsets[first:stop], entries.lens[first:stop], strict=True)
    return [number for number, offset, size in group if not verify(frames, offset - start, size)]
