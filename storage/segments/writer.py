"""The active segment of a log, to which flushed records are appended. Blocking; one thread at a time.

.data is synced before a byte of .idx is written, and .idx before `append` returns. Nothing counts before the caller's
CheckpointMark is synced. After a crash both files therefore hold everything that the mark covers, and anything after
that is cut off by `check.reconcile_active`.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import kernel
from kernel import Columns
from storage.format import ENTRY_SIZE, IdxDamaged, idx_entry
from storage.platform import File, FileSystem
from storage.segments import names
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.files import create_files, datasync, discard, make_folder, write_all, writing
from storage.segments.names import SegmentId

#: A gap of more seqs than this starts a new segment, because every seq takes an index entry.
MAX_JUMP = 1024


class Frames(NamedTuple):
    """Append frames of the log in `buffer`. `dead`: a byte of each, not 0 where it is left out; None: all live."""

    buffer: bytes
    columns: Columns
    dead: bytes | None


class ActiveSegment:
    """The files that a log's records are appended to."""

    __slots__ = (
        "_data",
        "_data_path",
        "_idx",
        "_idx_path",
        "_last_ts",
        "_ragged",
        "broken",
        "data_bytes",
        "end_seq",
        "id",
    )

    def __init__(self, root: str, id: SegmentId, data: File, idx: File) -> None:
        self.id = id
        #: The segment covers the seqs [first_seq, end_seq) in .data bytes [0, data_bytes); later bytes do not count.
        self.end_seq = id.first_seq
        self.data_bytes = 0
        #: After a failed write or sync: nothing may be appended, and the files must never be synced again.
        self.broken = False
        self._data_path = names.path(root, id, names.DATA)
        self._idx_path = names.path(root, id, names.IDX)
        self._data = data
        self._idx = idx
        self._last_ts = 0
        self._ragged = False

    @classmethod
    def create(
        cls, fs: FileSystem, root: str, id: SegmentId, *, folder: bool = False, named: bool = True
    ) -> ActiveSegment:
        """Make both files, empty, and the folders above them; durable on return. `folder`: these are durable already,
        which saves two syncs. Not `named`: the caller makes the files' names durable, by a sync of the folder, before
        a frame names them.

        Raises OSError; then none of its files is left, unless removing it failed too. EEXIST: a file exists. Only the
        caller knows whether the manifest names it or an earlier failure left it (`check.sweep`).
        """
        path = names.folder(root, id.topic_id) if folder else make_folder(fs, root, id.topic_id)
        data, idx = create_files(fs, root, id)
        segment = cls(root, id, data, idx)
        try:
            if named:
                fs.sync_dir(path)
        except BaseException:
            discard(fs, data, segment._data_path)
            discard(fs, idx, segment._idx_path)
            raise
        return segment

    @classmethod
    def open(cls, fs: FileSystem, root: str, id: SegmentId, end_seq: int) -> ActiveSegment:
        """Open a segment that `check.reconcile_active` has cut to the same end_seq. Raises SegmentCorrupt."""
        with contextlib.ExitStack() as opened:
            data = fs.open(names.path(root, id, names.DATA))
            opened.callback(data.close)
            idx = fs.open(names.path(root, id, names.IDX))
            opened.callback(idx.close)
            segment = cls(root, id, data, idx)
            segment._resume(end_seq)
            opened.pop_all()
        return segment

    def _resume(self, end_seq: int) -> None:
        if end_seq > self.id.first_seq:
            last = (end_seq - self.id.first_seq - 1) * ENTRY_SIZE
            try:
                entry = idx_entry.unpack(self._idx.pread(ENTRY_SIZE, last), 0)
            except IdxDamaged as error:
                raise SegmentCorrupt(self._idx_path, last, "the last entry marked fails its check") from error
            self.end_seq, self.data_bytes, self._last_ts = end_seq, entry.end, entry.ts
        if (size := self._data.size()) < self.data_bytes:
            raise SegmentCorrupt(self._data_path, size, f"{self.data_bytes} bytes were marked")
        self._ragged = True  # bytes after the end may exist, and do not count

    def append(self, parts: Iterable[Frames], lock: AbstractContextManager[Any] | None = None) -> None:
        """Add records from the log: on return both files are synced as far as end_seq, which is after the last one.
        `lock`: held while frames are copied, not while files are synced.

        The frames are verified, or known to be damaged; their seqs ascend from end_seq on. Seqs without a frame, and
        those whose frames are dead, become entries without a record. A part is written before the next is requested.
        ValueError: the frames do not fit. OSError: the disk is full. After both, and after an error of `parts`, nothing
        of it counts, and the call may be repeated. SegmentBroken: a write or sync failed, now or earlier; nothing of it
        counts.
        """
        if self.broken:
            raise SegmentBroken(f"{self._data_path}: a write or sync failed before")
        entries: list[bytes] = []
        offset, end_seq, last_ts = self.data_bytes, self.end_seq, self._last_ts
        try:
            self._truncate_torn()
            self._ragged = True
            with lock or nullcontext():
                for buffer, frames, dead in parts:
                    first_seq = frames.row(0)[2]
                    if first_seq > end_seq + MAX_JUMP:
                        raise ValueError(f"seq {first_seq} does not follow {end_seq - 1} by at most {MAX_JUMP}")
                    data, idx = kernel.to_segment(
                        buffer, frames, data_offset=offset, next_seq=end_seq, last_ts=last_ts, dead=dead
                    )
                    write_all(self._data, self._data_path, data, offset)
                    offset += len(data)
                    end_seq += len(idx) // ENTRY_SIZE
                    last_ts = idx_entry.unpack(idx[-ENTRY_SIZE:], 0).ts
                    entries.append(idx)
            datasync(self._data, self._data_path)
            write_all(self._idx, self._idx_path, b"".join(entries), self._idx_bytes)
            datasync(self._idx, self._idx_path)
        except SegmentBroken:
            self.broken = True
            raise
        self._ragged = False
        self.end_seq, self.data_bytes, self._last_ts = end_seq, offset, last_ts

    @property
    def _idx_bytes(self) -> int:
        return (self.end_seq - self.id.first_seq) * ENTRY_SIZE

    def close(self) -> None:
        """Close the files. Everything appended is already synced."""
        self._data.close()
        self._idx.close()

    def _truncate_torn(self) -> None:
        """Cut off what a failed append left after the end: a shorter append would leave some of it."""
        if not self._ragged:
            return
        for file, path, end in (
            (self._data, self._data_path, self.data_bytes),
            (self._idx, self._idx_path, self._idx_bytes),
        ):
            with writing(path):
                if file.size() > end:
                    file.truncate(end)
