"""Makes segment files agree with the manifest and the marks: truncates, rebuilds .idx, removes the rest.

    found                                              verdict
    .data or .idx longer than marked                   cut: the rest was never marked, and is flushed again
    .zdata of another length than in the manifest      SegmentCorrupt: it was synced before it was named
    .data missing or shorter than marked               SegmentCorrupt: it was synced before the mark
    .idx missing, shorter than marked, or damaged      the entries that fail their check are rebuilt from .data
    a frame needed for that is not valid               SegmentCorrupt: two things are damaged at once
    files of no segment in the manifest                unlinked

Every step may be interrupted by a crash and repeated. `sweep` comes first. It makes durable the names of files whose
process was killed before it synced the folder, so that nothing is appended to a file whose name may vanish. An OSError
passes through, since it says nothing about the bytes. SegmentBroken means that a new .idx could not be written, and the
old one is still in place. Blocking.

Source: docs/reference/format.md#segments, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from itertools import groupby

import kernel
from storage.format import ENTRY_SIZE, LENGTH, Entry, SegmentFrame, idx_entry, segment_frame
from storage.platform import FileSystem, Readable, layout
from storage.segments import names
from storage.segments.errors import SegmentCorrupt
from storage.segments.files import make_folder, replace_file
from storage.segments.names import SegmentId
from storage.segments.packed import PackedData, read_as_data

_CHUNK_BYTES = 1 << 20


def reconcile_active(fs: FileSystem, root: str, id: SegmentId, end_seq: int) -> int:
    """Make the files of the segment that is still appended to hold [first_seq, end_seq) and nothing else.

    Returns the bytes of .data. `end_seq` is that of the last mark. After a power loss [first_seq, end_seq) is there. A
    truncation that was not synced may have been undone, and the next call repeats it.
    Raises SegmentCorrupt, OSError, SegmentBroken.
    """
    count = end_seq - id.first_seq
    if not count:
        _make_empty(fs, root, id)
        return 0
    entries = _read_idx(fs, names.path(root, id, names.IDX), count)
    whole = len(entries) == count * ENTRY_SIZE
    if not whole or idx_entry.damaged(entries):
        # The last entry says where .data ends. Without it, only a record at end_seq - 1 proves that nothing is missing.
        last = entries[-ENTRY_SIZE:] if whole else b""
        data_bytes = None if not last or idx_entry.damaged(last) else idx_entry.unpack(last, 0).end
        entries = _rebuild(fs, root, id, end_seq, entries, data_bytes)
    data_bytes = idx_entry.unpack(entries, count - 1).end
    _truncate(fs, names.path(root, id, names.DATA), data_bytes)
    _truncate(fs, names.path(root, id, names.IDX), count * ENTRY_SIZE)
    return data_bytes


def reconcile_sealed(
    fs: FileSystem, root: str, id: SegmentId, end_seq: int, data_bytes: int, packed_bytes: int = 0
) -> None:
    """The same for a sealed segment, by file sizes alone: two stats when nothing is wrong. Raises as
    `reconcile_active`.

    `data_bytes` and `packed_bytes`, the length of .zdata if there is one, come from the manifest. Damage inside the
    files is found by reads.
    """
    if end_seq == id.first_seq:
        _make_empty(fs, root, id)  # sealed while empty: it may never have had files
        return
    idx_bytes = (end_seq - id.first_seq) * ENTRY_SIZE
    data_path, idx_path = names.records_path(root, id), names.path(root, id, names.IDX)
    size, wanted = _size(fs, data_path), packed_bytes if id.packed else data_bytes
    if size is None or size < wanted:
        raise _too_short(data_path, size, wanted)
    if size > wanted:
        if id.packed:
            raise SegmentCorrupt(data_path, wanted, f"the file has {size} bytes, {wanted} were written")
        _truncate(fs, data_path, wanted)
    size = _size(fs, idx_path)
    if size is None or size < idx_bytes:
        rebuild_idx(fs, root, id, end_seq, data_bytes)
    elif size > idx_bytes:
        _truncate(fs, idx_path, idx_bytes)


def rebuild_idx(fs: FileSystem, root: str, id: SegmentId, end_seq: int, data_bytes: int) -> None:
    """Write a complete .idx: valid entries are kept, the others are made from the frames of .data (and the delete bytes
    of a packed segment).

    Deleted frames become deleted entries. Raises SegmentCorrupt, and changes nothing, when .data does not have them.
    """
    idx = _read_idx(fs, names.path(root, id, names.IDX), end_seq - id.first_seq)
    _rebuild(fs, root, id, end_seq, idx, data_bytes)


def sweep(fs: FileSystem, root: str, topic_id: int, keep: Collection[SegmentId]) -> list[str]:
    """Unlink the segment files of a log that belong to none of `keep`, and unfinished files; returns their names. A
    .data beside a packed segment, and a .zdata beside a plain one, belong to none.

    Files with other names stay. Durable on return. Raises OSError.
    """
    folder = names.folder(root, topic_id)
    try:
        found = fs.listdir(folder)
    except FileNotFoundError:
        return []
    gone: list[str] = []
    idx = {
        names.file_name(id.first_seq, id.gen, ext)
        for id in keep
        if id.topic_id == topic_id
        for ext in (id.records_ext, names.IDX, names.TAG, names.LEN)
    }
    for name in found:
        parsed = names.parse_name(name.removesuffix(layout.TMP_SUFFIX))
        unfinished = name.endswith(layout.TMP_SUFFIX)
        if parsed and (unfinished or name not in idx):
            fs.unlink(layout.join(folder, name))
            gone.append(name)
    # Also when nothing was found: a process may have been killed between an unlink and this sync.
    fs.sync_dir(folder)
    return gone


def _make_empty(fs: FileSystem, root: str, id: SegmentId) -> None:
    """Nothing is marked: empty both files, and make missing ones."""
    folder = make_folder(fs, root, id.topic_id)
    for ext in (names.DATA, names.IDX):
        path = names.path(root, id, ext)
        if fs.exists(path):
            _truncate(fs, path, 0)
        else:
            fs.open(path, create=True).close()
    fs.sync_dir(folder)


def _truncate(fs: FileSystem, path: str, size: int) -> None:
    """Cut a file to `size` bytes, durably; SegmentCorrupt when it has fewer."""
    found = _size(fs, path)
    if found is None or found < size:
        raise _too_short(path, found, size)
    if found == size:
        return
    file = fs.open(path)
    try:
        file.truncate(size)
        file.sync()
    finally:
        file.close()


def _size(fs: FileSystem, path: str) -> int | None:
    try:
        return fs.file_size(path)
    except FileNotFoundError:
        return None


def _too_short(path: str, size: int | None, wanted: int) -> SegmentCorrupt:
    found = "the file is missing" if size is None else f"the file ends after {size} bytes"
    return SegmentCorrupt(path, size or 0, f"{found}, {wanted} were marked")


def _read_idx(fs: FileSystem, path: str, count: int) -> bytes:
    """The first `count` entries, or as many whole ones as there are."""
    try:
        file = fs.open(path, write=False)
    except FileNotFoundError:
        return b""
    with contextlib.closing(file):
        found = file.pread(count * ENTRY_SIZE, 0)
    return found[: len(found) // ENTRY_SIZE * ENTRY_SIZE]


def _rebuild(fs: FileSystem, root: str, id: SegmentId, end_seq: int, idx: bytes, data_bytes: int | None) -> bytes:
    """Write a new .idx for [first_seq, end_seq) that keeps the valid entries of `idx`; returns its bytes."""
    path = names.records_path(root, id)
    try:
        file = fs.open(path, write=False)
    except FileNotFoundError as error:
        raise _too_short(path, None, data_bytes or segment_frame.OVERHEAD) from error
    with contextlib.closing(read_as_data(file, path, id)) as data:
        size = data.size()
        if data_bytes is not None and size < data_bytes:
            raise _too_short(path, size, data_bytes)
        entries = _Repair(path, data, id, end_seq, idx).entries(data_bytes)
    if data_bytes is None and not entries[-1].len:
        raise SegmentCorrupt(path, entries[-1].offset, f"nothing tells whether seq {end_seq - 1} had a record")
    content = b"".join([idx_entry.pack(*entry) for entry in entries])
    replace_file(fs, names.path(root, id, names.IDX), content)
    return content


class _Repair:
    """Fills the gaps between valid index entries from the frames that lie between them."""

    def __init__(self, path: str, file: Readable, id: SegmentId, end_seq: int, idx: bytes) -> None:
        self._path = path
        self._file = file
        #: The delete bytes of a packed segment, one for each seq: its frames have none.
        self._delete_bytes = file.delete_bytes() if isinstance(file, PackedData) else b""
        self._id = id
        self._count = end_seq - id.first_seq
        missing = set(idx_entry.damaged(idx))
        missing.update(range(len(idx) // ENTRY_SIZE, self._count))
        self._known = {index: idx_entry.unpack(idx, index) for index in range(self._count) if index not in missing}

    def entries(self, data_bytes: int | None) -> list[Entry]:
        """All entries, from the frames below `data_bytes` (None: as far as there are frames)."""
        made: list[Entry] = []
        for known, group in groupby(range(self._count), self._known.__contains__):
            if known:
                made.extend(map(self._known.__getitem__, group))
                continue
            indexes = list(group)
            following = self._known.get(indexes[-1] + 1)
            stop = following.offset if following else data_bytes
            made.extend(self._from_frames(indexes, made[-1] if made else Entry(0, 0, 0, 0), stop))
        return made

    def _from_frames(self, indexes: list[int], before: Entry, stop: int | None) -> Iterator[Entry]:
        """Entries for consecutive indexes, from the frames in .data[before.end:stop], which must all belong to them."""
        offset, ts = before.end, before.ts
        frames = iter_frames(self._path, self._file, offset, self._file.size() if stop is None else stop)
        frame: SegmentFrame | None = None
        for index in indexes:
            # Read one at a time: after the last seq there may be a torn write, which was never acknowledged.
            frame = frame or self._next(frames, offset, index, indexes[-1])
            if frame is None or frame.seq != self._id.first_seq + index:
                yield Entry(offset, 0, ts, 0)
                continue
            ts = frame.ts
            deleted = self._delete_bytes[index] == segment_frame.DELETED if self._delete_bytes else frame.deleted
            yield Entry(offset, frame.size, ts, segment_frame.idx_flags(frame.flags, deleted))
            offset += frame.size
            frame = None
        if stop is not None and offset != stop:
            what = f"the records up to seq {self._id.first_seq + indexes[-1]} end here, not at {stop}"
            raise SegmentCorrupt(self._path, offset, what)

    def _next(self, frames: Iterator[SegmentFrame], offset: int, index: int, last: int) -> SegmentFrame | None:
        """The next frame, of entry `index` or later; None when there is none up to entry `last`."""
        frame = next(frames, None)
        if frame is None:
            return None
        least = self._id.first_seq + index
        if frame.topic_id != self._id.topic_id or frame.seq < least:
            what = f"a frame of log {frame.topic_id}, seq {frame.seq}, where seq {least} or a later one must be"
            raise SegmentCorrupt(self._path, offset, what)
        return frame if frame.seq <= self._id.first_seq + last else None


def iter_frames(path: str, file: Readable, start: int, stop: int) -> Iterator[SegmentFrame]:
    """The adjacent frames in [start, stop) of a .data file, all of them verified.

    Raises SegmentCorrupt at a frame that is invalid or ends after `stop`, after it has yielded those before it.
    Holds at most _CHUNK_BYTES, or one frame.
    """
    at, want = start, _CHUNK_BYTES
    while at < stop:
        buffer = file.pread(min(want, stop - at), at)
        columns, end, reason = kernel.scan(buffer, kernel.Kind.SEGMENT)
        yield from segment_frame.frames_of(buffer, columns)
        at, had, want = at + end, want, _CHUNK_BYTES
        if reason == "short" and not columns and len(buffer) >= segment_frame.OVERHEAD:
            want = LENGTH.unpack_from(buffer)[0] + LENGTH.size
        if not columns and not had < want <= stop - at:
            raise SegmentCorrupt(path, at, segment_frame.WRONG[reason or "short"])
