"""Marks records of a segment as deleted, in place.

First one byte of each record is overwritten in .data (in a packed segment: among the delete bytes of its .zdata), and
the file is synced. Then bytes 16-19 of each entry are overwritten in .idx, and that is synced. A crash in between
leaves records that are deleted in .data and not yet in .idx. The Delete frame does not count as flushed before `flip`
has returned, so it is replayed and flips them again. The opposite never happens.

The .data of a cold segment cannot be changed. `flip_idx` replaces its .idx, which alone says what is deleted.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from storage.format import ENTRY_SIZE, IdxDamaged, idx_entry, packed_file, segment_frame
from storage.platform import FileSystem
from storage.segments import names
from storage.segments.errors import SegmentCorrupt
from storage.segments.files import datasync, replace_file, write_all
from storage.segments.names import SegmentId
from storage.segments.packed import PackedData

_DELETE_BYTE = bytes((segment_frame.DELETED,))
_TAIL_AT = 16


def flip(fs: FileSystem, root: str, id: SegmentId, indexes: Sequence[int]) -> None:
    """Delete the records of the seqs first_seq + index; durable on return. Repeating it changes nothing.

    Indexes without a record are ignored.

    SegmentCorrupt: an entry is damaged or its frame is missing; nothing was changed.
    OSError: the disk is full (copy-on-write file systems); the call may be repeated.
    SegmentBroken: a write or sync failed: the segment must be rewritten, its files never synced again (nor through
    the ActiveSegment that has them open).
    """
    if not indexes:
        return
    data_path, idx_path = names.records_path(root, id), names.path(root, id, names.IDX)
    with contextlib.ExitStack() as opened:
        idx = fs.open(idx_path)
        opened.callback(idx.close)
        data = fs.open(data_path)
        opened.callback(data.close)
        first = min(indexes)
        entries = idx.pread((max(indexes) - first + 1) * ENTRY_SIZE, first * ENTRY_SIZE)
        data_bytes = PackedData(data, data_path, id).size() if id.packed else data.size()
        tails: list[tuple[int, bytes]] = []
        delete_bytes: list[int] = []
        for index in sorted(set(indexes)):
            try:
                entry = idx_entry.unpack(entries, index - first)
                tail = idx_entry.deleted_tail(entries, index - first)
            except IdxDamaged as error:
                raise SegmentCorrupt(idx_path, index * ENTRY_SIZE, "the entry fails its check") from error
            if not entry.len:
                continue
            if entry.end > data_bytes:
                raise SegmentCorrupt(data_path, data_bytes, f"seq {id.first_seq + index} should end at {entry.end}")
            delete_bytes.append(packed_file.HEADER_SIZE + index if id.packed else entry.end - 1)
            tails.append((index * ENTRY_SIZE + _TAIL_AT, tail))
        # Bytes that are flipped already are written again. A process that was killed before its sync may have written
        # them, or a sync may have failed, and then only a new write brings them to the disk.
        for offset in delete_bytes:
            write_all(data, data_path, _DELETE_BYTE, offset)
        datasync(data, data_path)
        for offset, tail in tails:
            write_all(idx, idx_path, tail, offset)
        datasync(idx, idx_path)


def flip_idx(fs: FileSystem, root: str, id: SegmentId, indexes: Sequence[int]) -> None:
    """The same for a cold segment, in .idx alone. After a crash the old or the new .idx is in place.

    SegmentCorrupt: an entry is damaged; nothing was changed. OSError, SegmentBroken: the new file could not be
    written, and the old one is still in place; the call may be repeated.
    """
    if not indexes:
        return
    path = names.path(root, id, names.IDX)
    with contextlib.closing(fs.open(path, write=False)) as idx:
        entries = idx.pread(idx.size(), 0)
    content = bytearray(entries)
    for index in indexes:
        try:
            entry, tail = idx_entry.unpack(entries, index), idx_entry.deleted_tail(entries, index)
        except IdxDamaged as error:
            raise SegmentCorrupt(path, index * ENTRY_SIZE, "the entry fails its check") from error
        if entry.len:
            content[index * ENTRY_SIZE + _TAIL_AT : (index + 1) * ENTRY_SIZE] = tail
    replace_file(fs, path, bytes(content))
