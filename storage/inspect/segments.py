"""Checks the files of segments against the log, and every frame against its index entry.

    finding                                                verdict
    .data or .idx is missing or too short                  problem
    a frame or an index entry fails its check              problem; the check continues after it
    a frame is not the record of its index entry           problem
    a delete byte is set, the index entry is not flagged   note if the log has deleted the record: the broker or the
                                                           next start finishes the deletion; otherwise a problem
    any other difference between delete byte and index     problem
    bytes after the marked end                             note: the next start removes them
    a .tag is damaged or belongs to other data             note: it is rebuilt at its first use
    a block of a packed segment fails its check            problem, and so is every record in the block
    .data of a cold segment exists                         note: the next start removes it

A packed segment is decompressed and checked like any other. Of a cold segment, only the .idx is checked. All files are
streamed.

Source: docs/reference/format.md#segments, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from storage.format import (
    ENTRY_SIZE,
    Entry,
    FrameError,
    IdxDamaged,
    SegmentFrame,
    TagFile,
    TagFileDamaged,
    TagFileUnsupported,
    idx_entry,
    segment_frame,
)
from storage.inspect.directory import DataDirectory
from storage.inspect.manifest import LogSegments
from storage.inspect.wal import Finding
from storage.platform import File, Readable
from storage.segments import PackedData, SegmentCorrupt, SegmentId, names
from storage.state import COLD, HOT, SegmentState

_IDX_CHUNK = 3200 * ENTRY_SIZE
_DATA_CHUNK = 1 << 20
_UNREADABLE = "Reading this record fails with segment_corrupt."
_REBUILT = "The index can be rebuilt from .data."
_FETCHED = "The next start fetches the index from the cold tier."


class Checked(NamedTuple):
    """The result of checking a segment. `records` and `bytes` count the valid frames."""

    records: int
    bytes: int
    findings: list[Finding]
    cold: bool
    """The records are in the cold tier and were not checked."""

    @property
    def wrong(self) -> bool:
        return any(each.problem for each in self.findings)


def check_segment(directory: DataDirectory, topic_id: int, log: LogSegments, segment: SegmentState) -> Checked:
    """Check the files of one segment that the log names. Raises OSError."""
    return _Check(directory, topic_id, log, segment).run()


class _Window:
    """A file, read forward in chunks. At most a chunk, or one frame if larger, is in memory."""

    def __init__(self, file: Readable, size: int) -> None:
        self._file = file
        self.size = size
        self._base = 0
        self._bytes = b""

    def take(self, offset: int, count: int) -> bytes:
        """`count` bytes at `offset`, fewer at the end."""
        count = min(count, self.size - offset)
        if count <= 0:
            return b""
        if not self._base <= offset <= offset + count <= self._base + len(self._bytes):
            self._bytes = self._file.pread(max(count, min(_DATA_CHUNK, self.size - offset)), offset)
            self._base = offset
        return self._bytes[offset - self._base : offset - self._base + count]


class _Check:
    def __init__(self, directory: DataDirectory, topic_id: int, log: LogSegments, segment: SegmentState) -> None:
        self._directory = directory
        self._log = log
        self._segment = segment
        self._id = SegmentId(topic_id, segment.first_seq, segment.gen, bool(segment.packed_bytes))
        self._data_path, self._idx_path, self._tag_path = (
            names.path("", self._id, ext).lstrip("/") for ext in (self._id.records_ext, names.IDX, names.TAG)
        )
        #: The file of a packed segment, which has the delete bytes outside of the frames.
        self._packed: PackedData | None = None
        self._count = segment.end_seq - segment.first_seq
        self._findings: list[Finding] = []
        self._records = self._bytes = 0
        #: Where the next frame begins; None: unknown, because of damage.
        self._next: int | None = 0
        self._ts = 0

    def run(self) -> Checked:
        tier = self._segment.tier
        if tier == COLD:
            self._cold()
            self._tags()
        elif tier != HOT:
            self._say(self._data_path, f"The segment is in the tier {tier}, which this version does not know.")
        elif self._count:
            self._files()
            self._tags()
        return Checked(self._records, self._bytes, self._findings, tier == COLD)

    def _cold(self) -> None:
        """Check the local files of a cold segment."""
        if self._directory.size(self._data_path):
            self._say(
                self._data_path, "The segment is in the cold tier; the next start removes this file.", problem=False
            )
        try:
            idx_file = self._directory.open(self._idx_path)
        except FileNotFoundError:
            self._say(self._idx_path, f"The file is missing. {_FETCHED}")
            return
        with idx_file as idx:
            last: Entry | None = None
            for seq, entry in enumerate(self._entries(idx), self._id.first_seq):
                last = entry
                if entry is None:
                    self._next = None
                    continue
                wrong = self._entry_problem(entry)
                if wrong:
                    self._say(self._idx_path, wrong, offset=(seq - self._id.first_seq) * ENTRY_SIZE)
                self._next, self._ts = entry.end, entry.ts
        if last is not None and last.end != self._segment.data_bytes:
            at = (self._count - 1) * ENTRY_SIZE
            text = f"The records end at {last.end}, but according to the log at {self._segment.data_bytes}."
            self._say(self._idx_path, text, offset=at)

    def _say(self, path: str, text: str, *, offset: int | None = None, problem: bool = True) -> None:
        self._findings.append(Finding(path=path, offset=offset, problem=problem, text=text))

    def _files(self) -> None:
        try:
            opened = self._directory.open_records(self._data_path)
        except FileNotFoundError:
            self._say(
                self._data_path, "The file is missing, although the log says that it has records. A start refuses."
            )
            return
        except SegmentCorrupt as error:
            self._say(self._data_path, f"The file cannot be read: {error.what}.", offset=error.offset)
            return
        with closing(opened) as data:
            if isinstance(data, PackedData) and not self._begin_packed(data):
                return
            self._both(data)
            if isinstance(data, PackedData):
                for number, what in sorted(data.damage.items()):
                    at = data.block_offset(number)
                    self._say(self._data_path, f"Block {number} is damaged: {what}.", offset=at)

    def _begin_packed(self, data: PackedData) -> bool:
        """Check the header against the log, and the delete bytes. Returns whether the records can be checked."""
        size, header = self._directory.size(self._data_path), data.header
        found = (size, header.seqs, header.data_bytes)
        expected = (self._segment.packed_bytes, self._count, self._segment.data_bytes)
        if found != expected:
            text = f"It must have (bytes, seqs, bytes of .data) {expected}, but has {found}. A start refuses."
            self._say(self._data_path, text)
            return False
        self._packed = data
        try:
            data.delete_bytes()
        except SegmentCorrupt as error:
            self._say(self._data_path, f"A delete byte is damaged: {error.what}.", offset=error.offset)
            return False
        return True

    def _both(self, data: Readable) -> None:
        try:
            idx_file = self._directory.open(self._idx_path)
        except FileNotFoundError:
            self._say(self._idx_path, f"The file is missing. {_REBUILT}")
            self._records_of(data, self._damaged_entries())
            return
        with idx_file as idx:
            self._records_of(data, self._entries(idx))

    # -- entries -----------------------------------------------------------------------------------------------------

    def _damaged_entries(self) -> Iterator[Entry | None]:
        yield from [None] * self._count

    def _entries(self, idx: File) -> Iterator[Entry | None]:
        """The index entries in order; None for an entry that fails its check."""
        marked = self._count * ENTRY_SIZE
        size = idx.size()
        if size > marked:
            self._behind(self._idx_path, marked, size - marked)
        elif size < marked:
            self._say(
                self._idx_path, f"The file ends here, but {marked} bytes were synced. {self._remedy}", offset=size
            )
        for begin in range(0, marked, _IDX_CHUNK):
            content = idx.pread(min(_IDX_CHUNK, marked - begin), begin)
            for index in range(min(_IDX_CHUNK, marked - begin) // ENTRY_SIZE):
                try:
                    yield idx_entry.unpack(content, index)
                except IdxDamaged:
                    if begin + (index + 1) * ENTRY_SIZE <= size:
                        self._say(
                            self._idx_path,
                            f"The entry of seq {self._id.first_seq + begin // ENTRY_SIZE + index} fails its check. "
                            f"{self._remedy}",
                            offset=begin + index * ENTRY_SIZE,
                        )
                    yield None

    @property
    def _remedy(self) -> str:
        return _FETCHED if self._segment.tier == COLD else _REBUILT

    def _behind(self, path: str, offset: int, count: int) -> None:
        self._say(
            path,
            f"{count} bytes follow the marked end. A crash or a write in progress leaves such bytes; the next start "
            "removes them.",
            offset=offset,
            problem=False,
        )

    # -- records -----------------------------------------------------------------------------------------------------

    def _records_of(self, data: Readable, entries: Iterator[Entry | None]) -> None:
        size = data.size()
        sealed_bytes = self._segment.data_bytes if self._segment.sealed else None
        window = _Window(data, size if sealed_bytes is None else min(size, sealed_bytes))
        last: Entry | None = None
        for seq, entry in enumerate(entries, self._id.first_seq):
            last = entry
            if entry is None:
                self._without_entry(window, seq)
            else:
                self._with_entry(window, seq, entry)
        end = last.end if last is not None else self._next
        if sealed_bytes is not None and end is not None and end != sealed_bytes:
            self._say(
                self._data_path, f"The records end at {end}, but according to the log at {sealed_bytes}.", offset=end
            )
        elif end is not None and size < end:
            self._say(
                self._data_path, f"The file ends here, but {end} bytes were synced. A start refuses.", offset=size
            )
        elif end is not None and size > end and (last is not None or sealed_bytes is not None):
            self._behind(self._data_path, end, size - end)

    def _with_entry(self, window: _Window, seq: int, entry: Entry) -> None:
        wrong = self._entry_problem(entry)
        if wrong:
            self._say(self._idx_path, f"{wrong} {_REBUILT}", offset=(seq - self._id.first_seq) * ENTRY_SIZE)
        self._next, self._ts = entry.end, entry.ts
        if not entry.len:
            return
        try:
            frame = segment_frame.decode(window.take(entry.offset, entry.len))
        except FrameError as error:
            self._say(
                self._data_path, f"The frame of seq {seq} is damaged: {error}. {_UNREADABLE}", offset=entry.offset
            )
            return
        self._judge(seq, entry, frame)

    def _entry_problem(self, entry: Entry) -> str:
        if self._next is not None and entry.offset != self._next:
            return f"According to this entry, its frame begins at {entry.offset}, but it must begin at {self._next}."
        if entry.ts < self._ts:
            return f"Time goes back in the index: from {self._ts} to {entry.ts}."
        if not entry.len and (entry.flags or entry.ts != self._ts) and self._next is not None:
            return "This entry has no record, but has flags or another time than the entry before."
        return ""

    def _judge(self, seq: int, entry: Entry, frame: SegmentFrame) -> None:
        if self._packed is not None:
            frame = frame._replace(deleted=self._packed.is_deleted(seq - self._id.first_seq))
        flags = segment_frame.idx_flags(frame.flags, frame.deleted)
        found = (frame.size, frame.topic_id, frame.seq, frame.ts, flags & ~idx_entry.DELETED)
        expected = (entry.len, self._id.topic_id, seq, entry.ts, entry.flags & ~idx_entry.DELETED)
        if found != expected:
            self._say(
                self._data_path,
                f"The frame must have (bytes, topic, seq, time, flags) {expected}, but has {found}. {_UNREADABLE}",
                offset=entry.offset,
            )
            return
        self._count_in(frame)
        if flags != entry.flags:
            self._disagree(seq, entry, frame)

    def _disagree(self, seq: int, entry: Entry, frame: SegmentFrame) -> None:
        if frame.deleted and self._log.gone(seq, frame.tag):
            self._say(
                self._data_path,
                f"The frame of seq {seq} is flagged as deleted, but its index entry is not yet: the deletion was "
                "interrupted or is in progress. The next start finishes it.",
                offset=entry.offset,
                problem=False,
            )
            return
        says = "deleted" if frame.deleted else "live"
        self._say(
            self._data_path,
            f"The delete byte of seq {seq} says that it is {says}, but the index says that it is not. {_UNREADABLE}",
            offset=entry.end - 1,
        )

    def _without_entry(self, window: _Window, seq: int) -> None:
        """Check a record whose index entry is damaged by its frame alone, if the start of the frame is known."""
        if self._next is None or self._next >= window.size:
            return
        try:
            frame = segment_frame.decode(
                window.take(self._next, _size_of(window.take(self._next, segment_frame.HEADER_SIZE)))
            )
        except FrameError as error:
            self._say(
                self._data_path,
                f"The frame of seq {seq} or of a later seq is damaged, like the index entry: {error}. {_UNREADABLE}",
                offset=self._next,
            )
            self._next = None
            return
        if frame.seq > seq:
            return  # there is no record with this seq
        if (frame.topic_id, frame.seq) != (self._id.topic_id, seq) or frame.ts < self._ts:
            self._say(
                self._data_path,
                f"This is record {frame.seq} of topic {frame.topic_id}, but it must be seq {seq}. {_UNREADABLE}",
                offset=self._next,
            )
        else:
            self._count_in(frame)
        self._next += frame.size
        self._ts = frame.ts

    def _count_in(self, frame: SegmentFrame) -> None:
        self._records += 1
        self._bytes += frame.size

    # -- tags --------------------------------------------------------------------------------------------------------

    def _tags(self) -> None:
        if not self._segment.sealed:
            return  # the file of an active segment is out of date after each append
        try:
            tag_file = self._directory.open(self._tag_path)
        except FileNotFoundError:
            return
        with tag_file as file:
            try:
                tags = TagFile.open(file.pread, file.size())
            except (TagFileDamaged, TagFileUnsupported) as error:
                self._say(self._tag_path, f"The file is rebuilt at its first use: {error}.", problem=False)
                return
        if (tags.first_seq, tags.gen, tags.data_bytes) != (self._id.first_seq, self._id.gen, self._segment.data_bytes):
            self._say(
                self._tag_path,
                "The file belongs to other data than the segment has. It is rebuilt at its first use.",
                problem=False,
            )


def _size_of(header: bytes) -> int:
    """The size of a frame according to its lengths; the minimum size if they contradict each other."""
    if len(header) < segment_frame.HEADER_SIZE:
        return segment_frame.OVERHEAD
    length, *_, node_len, tag_len, data_len = segment_frame.HEADER.unpack(header)
    size = segment_frame.OVERHEAD + node_len + tag_len + data_len
    return size if size == length + 4 else segment_frame.OVERHEAD
