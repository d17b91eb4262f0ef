"""The active segment of a log, to which flushed records are appended. Blocking; one thread at a time.

.data is synced before a byte of .idx is written, and .idx before `append` returns. Nothing counts before the caller's
CheckpointMark is synced. After a crash both files therefore hold everything that the mark covers, and anything after
that is cut off by `check.reconcile_active`.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from storage.format import idx_entry
from storage.format.idx_entry import ENTRY_SIZE, IdxDamaged
from storage.platform.filesystem import Buffer, File, FileSystem
from storage.segments import names
from storage.segments.entries import dense_entries
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.files import create_files, datasync, discard, make_folder, write_all, writing
from storage.segments.names import SegmentId

#: A gap of more seqs than this starts a new segment, because every seq takes an index entry.
MAX_JUMP = 1024


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
    def create(cls, fs: FileSystem, root: str, id: SegmentId) -> ActiveSegment:
        """Make both files, empty, and the folders above them; durable on return.

        Raises OSError; then none of its files is left, unless removing it failed too. EEXIST: a file exists. Only the
        caller knows whether the manifest names it or an earlier failure left it (`check.sweep`).
        """
        folder = make_folder(fs, root, id.topic_id)
        data, idx = create_files(fs, root, id)
        segment = cls(root, id, data, idx)
        try:
            fs.sync_dir(folder)
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
        self._ragged = True  # there may be bytes after the end

    def append(
        self,
        first_seq: int,
        frames: Buffer,
        lens: Sequence[int],
        stamps: Iterable[int],
        flags: Iterable[int],
    ) -> None:
        """Add the seqs [first_seq, first_seq + len(lens)); on return both files are synced up to end_seq.

        `frames` are live, adjacent segment frames; `lens` their sizes in bytes, 0 for a seq without a record (its stamp
        and flags are ignored); `stamps` are ms, never falling; `flags` come from `segment_frame.idx_flags`. The seqs
        between end_seq and first_seq become entries without a record.

        ValueError: the arguments do not fit together; nothing was done.
        OSError: the disk is full; nothing of it counts, and the call may be repeated.
        SegmentBroken: a write or sync failed, now or earlier; nothing of it counts.
        """
        stamps, flags = [*stamps], bytes(flags)
        if not len(lens) == len(stamps) == len(flags):
            raise ValueError(f"{len(lens)} lens, {len(stamps)} stamps and {len(flags)} flags")
        if sum(lens) != len(frames):
            raise ValueError(f"frames of {sum(lens)} bytes in all, {len(frames)} bytes of frames")
        self.append_parts(first_seq, lens, stamps, [(frames, flags)])

    def append_parts(
        self, first_seq: int, lens: Sequence[int], stamps: Iterable[int], parts: Iterable[tuple[Buffer, bytes]]
    ) -> None:
        """`append` of frames and flags in parts: each part is written before the next one is taken from the iterator.

        Raises as `append`, and whatever the iterator raises. In that case, and when the parts do not add up
        (ValueError), some of them may have been written, but nothing of it counts.
        """
        if self.broken:
            raise SegmentBroken(f"{self._data_path}: a write or sync failed before")
        if not self.end_seq <= first_seq <= self.end_seq + MAX_JUMP:
            raise ValueError(f"seq {first_seq} does not follow {self.end_seq - 1} by at most {MAX_JUMP}")
        data_end = self.data_bytes + sum(lens)
        if data_end > idx_entry.MAX_DATA_BYTES:
            raise ValueError(f"{data_end} bytes of .data, more than an index entry can say")
        count = first_seq - self.end_seq
        holes = idx_entry.build([self.data_bytes] * count, [0] * count, [self._last_ts] * count, bytes(count))
        try:
            self._truncate_torn()
            self._ragged = True
            flags = self._write_data(parts, data_end)
            entries, last_ts = dense_entries(self.data_bytes, lens, stamps, flags, self._last_ts)
            datasync(self._data, self._data_path)
            write_all(self._idx, self._idx_path, holes + entries, self._idx_bytes)
            datasync(self._idx, self._idx_path)
        except SegmentBroken:
            self.broken = True
            raise
        self._ragged = False
        self.end_seq = first_seq + len(lens)
        self.data_bytes = data_end
        self._last_ts = last_ts

    def _write_data(self, parts: Iterable[tuple[Buffer, bytes]], data_end: int) -> bytearray:
        """Write the frames, which must end at `data_end`; returns the flags of all parts."""
        flags, offset = bytearray(), self.data_bytes
        for frames, of_frames in parts:
            write_all(self._data, self._data_path, frames, offset)
            offset += len(frames)
            flags += of_frames
            del frames  # its memory is for the next part
        if offset != data_end:
            raise ValueError(f"frames up to {data_end} were announced, there are some up to {offset}")
        return flags

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
