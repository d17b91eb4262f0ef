"""The active segment of a log: where records go when they leave the write-ahead log. Blocking; one thread at a time.

What a crash leaves: .data is synced before a byte of .idx is written, .idx before `append` returns, and none of it
counts before the caller's CheckpointMark is synced. So whatever the mark covers is whole in both files, and whatever
else is there lies behind it, for `check.reconcile_active` to cut off.

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

#: A jump of more seqs than this starts a new segment, so that an entry a seq stays cheap.
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
        #: The segment covers [first_seq, end_seq) in .data bytes [0, data_bytes); what follows does not count.
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
        """Make both files, empty, and the folders above them; all of them are durable on return.

        Raises OSError; then no file of it is left, unless removing it failed too. EEXIST: the segment is there. Only
        the caller knows whether the manifest names it or an earlier failure left it (`check.sweep`).
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
        """Go on with a segment that `check.reconcile_active` has settled for the same end_seq. Raises
        SegmentCorrupt."""
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
        self._ragged = True  # nobody has looked at what lies behind the end

    def append(
        self,
        first_seq: int,
        frames: Buffer,
        lens: Sequence[int],
        stamps: Iterable[int],
        flags: Iterable[int],
    ) -> None:
        """Add the seqs [first_seq, first_seq + len(lens)): on return both files are synced as far as end_seq.

        `frames` are live segment frames one behind the other; `lens` their bytes, with 0 for a seq that has no record
        (its stamp and flags do not count); `stamps` ms, never falling; `flags` as `segment_frame.idx_flags` gives
        them. The seqs between end_seq and first_seq become entries without a record.

        ValueError: the arguments do not fit together; nothing was done.
        OSError: the disk is full; nothing of it counts, and it may be tried again.
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
        """`append` of frames and flags that are there bit by bit: a part is written before the next is asked for.

        Raises as `append`, and what asking for a part raises; then, and where it turns out that the parts do not fit
        (ValueError), some of them may have been written, and nothing of it counts.
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
        """The frames, which are to end at `data_end`; returns the flags of all parts."""
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
        """Close the files; what `append` returned from needs no sync."""
        self._data.close()
        self._idx.close()

    def _truncate_torn(self) -> None:
        """Cut what a failed append left behind the end: a shorter one now would leave some of it there."""
        if not self._ragged:
            return
        for file, path, end in (
            (self._data, self._data_path, self.data_bytes),
            (self._idx, self._idx_path, self._idx_bytes),
        ):
            with writing(path):
                if file.size() > end:
                    file.truncate(end)
