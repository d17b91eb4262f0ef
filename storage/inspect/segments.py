"""Checks the files of segments against what the log says of them, and every frame against its index entry.

    what is there                                          verdict
    .data or .idx missing, or shorter than was marked      problem
    a frame or an entry that fails its check               problem; checking goes on behind it
    a frame that is not the record its entry says          problem
    a delete byte ahead of the .idx, as the log says       note: a start, or the broker right now, finishes it
    any other delete byte that is not what .idx says       problem
    bytes behind what was marked                           note: the next start cuts them off
    a .tag that is damaged or of something else            note: it is made anew at first use
    a packed segment                                       as any other; its file is uncompressed on the way
    a block of one that fails its check                    problem, and so is every record in it
    a cold segment                                         its .idx is checked; its records are elsewhere
    .data of a cold segment                                note: the next start removes it

Both files are streamed.

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
_REBUILT = "The index can be made anew from .data."
_FETCHED = "The next start fetches the index from the cold tier."


class Checked(NamedTuple):
    """How much of a segment is in order, and what is not."""

    records: int
    bytes: int
    findings: list[Finding]
    cold: bool
    """Its records are in the cold tier, and were not looked at."""

    @property
    def wrong(self) -> bool:
        return any(each.problem for each in self.findings)


def check_segment(directory: DataDirectory, topic_id: int, log: LogSegments, segment: SegmentState) -> Checked:
    """Check the files of one segment that the log names. Raises OSError."""
    return _Check(directory, topic_id, log, segment).run()


class _Window:
    """A file's bytes, read forward by chunks: at most a chunk or one frame is in memory."""

    def __init__(self, file: Readable, size: int) -> None:
        self._file = file
        self.size = size
        self._base = 0
        self._bytes = b""

    def take(self, offset: int, count: int) -> bytes:
        """Bytes at `offset`, fewer at the end of what counts."""
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
        #: Of a packed segment: it has the delete bytes, and they are in no frame.
        self._packed: PackedData | None = None
        self._count = segment.end_seq - segment.first_seq
        self._findings: list[Finding] = []
        self._records = self._bytes = 0
        #: Where the next frame begins; None behind damage that leaves it open.
        self._next: int | None = 0
        self._ts = 0

    def run(self) -> Checked:
        tier = self._segment.tier
        if tier == COLD:
            self._cold()
            self._tags()
        elif tier != HOT:
            self._say(self._data_path, f"Its tier is {tier}, which this version does not know.")
        elif self._count:
            self._files()
            self._tags()
        return Checked(self._records, self._bytes, self._findings, tier == COLD)

    def _cold(self) -> None:
        """What is kept here of a cold segment."""
        if self._directory.size(self._data_path):
            self._say(self._data_path, "The segment is in the cold tier: the next start removes this.", problem=False)
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
            text = f"Its records end at {last.end}, the log says at {self._segment.data_bytes}."
            self._say(self._idx_path, text, offset=at)

    def _say(self, path: str, text: str, *, offset: int | None = None, problem: bool = True) -> None:
        self._findings.append(Finding(path=path, offset=offset, problem=problem, text=text))

    def _files(self) -> None:
        try:
            opened = self._directory.open_records(self._data_path)
        except FileNotFoundError:
            self._say(
                self._data_path, "The file is missing, though the log says that it holds records: a start refuses."
            )
            return
        except SegmentCorrupt as error:
            self._say(self._data_path, f"Nothing of it can be read: {error.what}.", offset=error.offset)
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
        """Whether it is what the log says, and its delete bytes can be told."""
        size, header = self._directory.size(self._data_path), data.header
        found = (size, header.seqs, header.data_bytes)
        expected = (self._segment.packed_bytes, self._count, self._segment.data_bytes)
        if found != expected:
            text = f"It should have (bytes, seqs, bytes of .data) {expected}, and has {found}: a start refuses."
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
        """Each entry, None for one that fails its check."""
        marked = self._count * ENTRY_SIZE
        size = idx.size()
        if size > marked:
            self._behind(self._idx_path, marked, size - marked)
        elif size < marked:
            self._say(self._idx_path, f"The file ends here; {marked} bytes were synced. {self._remedy}", offset=size)
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
            f"{count} bytes lie behind what was marked. A crash leaves such an end, and so does a write under way "
            "right now; the next start cuts them off.",
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
            self._say(self._data_path, f"Its records end at {end}, the log says at {sealed_bytes}.", offset=end)
        elif end is not None and size < end:
            self._say(self._data_path, f"The file ends here; {end} bytes were synced: a start refuses.", offset=size)
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
            return f"The entry says that its frame begins at {entry.offset}, where it must be {self._next}."
        if entry.ts < self._ts:
            return f"Time goes back in the index: from {self._ts} to {entry.ts}."
        if not entry.len and (entry.flags or entry.ts != self._ts) and self._next is not None:
            return "The entry has no record, yet flags or a time of its own."
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
                f"Here must be (bytes, topic, seq, time, flags) {expected}, and {found} is. {_UNREADABLE}",
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
                f"The frame of seq {seq} is flagged as deleted, and the index does not say so yet: a deletion under "
                "way, which a start goes on with.",
                offset=entry.offset,
                problem=False,
            )
            return
        says = "deleted" if frame.deleted else "live"
        self._say(
            self._data_path,
            f"The delete byte of seq {seq} says that it is {says}, and the index that it is not. {_UNREADABLE}",
            offset=entry.end - 1,
        )

    def _without_entry(self, window: _Window, seq: int) -> None:
        """The entry is damaged: the frame tells itself, if it is known where it begins."""
        if self._next is None or self._next >= window.size:
            return
        try:
            frame = segment_frame.decode(
                window.take(self._next, _size_of(window.take(self._next, segment_frame.HEADER_SIZE)))
            )
        except FrameError as error:
            self._say(
                self._data_path,
                f"A frame of seq {seq} or a later one is damaged, like the index entry: {error}. {_UNREADABLE}",
                offset=self._next,
            )
            self._next = None
            return
        if frame.seq > seq:
            return  # there is no record with this seq
        if (frame.topic_id, frame.seq) != (self._id.topic_id, seq) or frame.ts < self._ts:
            self._say(
                self._data_path,
                f"Here is record {frame.seq} of topic {frame.topic_id}, where seq {seq} must be. {_UNREADABLE}",
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
            return  # made of what was there then
        try:
            tag_file = self._directory.open(self._tag_path)
        except FileNotFoundError:
            return
        with tag_file as file:
            try:
                tags = TagFile.open(file.pread, file.size())
            except (TagFileDamaged, TagFileUnsupported) as error:
                self._say(self._tag_path, f"It is made anew at first use: {error}.", problem=False)
                return
        if (tags.first_seq, tags.gen, tags.data_bytes) != (self._id.first_seq, self._id.gen, self._segment.data_bytes):
            self._say(
                self._tag_path, "It was made of other bytes than the segment has, and is made anew.", problem=False
            )


def _size_of(header: bytes) -> int:
    """Bytes of a frame as its lengths say; the least there can be when they do not fit each other."""
    if len(header) < segment_frame.HEADER_SIZE:
        return segment_frame.OVERHEAD
    length, *_, node_len, tag_len, data_len = segment_frame.HEADER.unpack(header)
    size = segment_frame.OVERHEAD + node_len + tag_len + data_len
    return size if size == length + 4 else segment_frame.OVERHEAD
