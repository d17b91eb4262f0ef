"""The files of sealed segments for those who fetch them whole, without what was deleted. Source: api.md §8.

`.data` is sent as it lies on disk, frames unverified: they carry their checksums, and one damaged record must not keep
the others from a reader. The frame of a record that is withheld (`segments_view`), or that the files flag as deleted,
goes out with node, tag and data zeroed, the delete byte set and the checksum made anew: of the old one a short text
could be guessed, and a reader that verifies before it drops goes on. Lengths stay, so that offsets hold.

Files are opened for each read and closed behind it: whoever walks through a whole topic must not push out of
`OpenSegments` what readers of records use, nor keep descriptors for as long as a slow client takes.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from storage.catalog import Topic
from storage.errors import RecordCorrupt
from storage.filesystem import File, FileSystem
from storage.format import idx_entry
from storage.format.checksum import checksum
from storage.format.idx_entry import DELETED, ENTRY_SIZE, Entry
from storage.format.segment_frame import APPEND, HEADER_SIZE, OVERHEAD
from storage.format.segment_frame import DELETED as DELETE_BYTE
from storage.manifest import Segment
from storage.segment import names
from storage.segment.errors import SegmentCorrupt
from storage.segment.handles import SegmentFiles
from storage.segment.names import DATA, IDX, SegmentId
from storage.segment_store import id_of
from storage.segments_view import SegmentNotFound, sealed, withheld

if TYPE_CHECKING:
    from storage.engine import Engine

#: Entries looked at in one go.
_STRIDE = 2048
_FLAGS_AT = 16
_IS_DELETED = bytes(1 if flags & DELETED else 0 for flags in range(256))


class SegmentDownload:
    """One file of a sealed segment: `size` bytes named by `etag`. `open_download` makes it; nothing is kept open."""

    def __init__(self, engine: Engine, topic: Topic, segment: Segment) -> None:
        self._engine = engine
        self._topic = topic
        self._segment = segment
        self.id = id_of(topic.log.topic_id, segment)
        self.etag = f"{self.id.topic_id}.{self.id.first_seq}.{self.id.gen}"
        self.size = 0
        #: Of .idx all there is, so that it stays what the etag says.
        self._content: bytes | None = None

    async def open(self, ext: str) -> None:
        """Find out size and etag. Raises as `open_download`, FileNotFoundError when the files have gone."""
        engine, id, end_seq = self._engine, self.id, self._segment.end_seq
        if ext == DATA:
            self.size = await engine.run_segment_io(data_size, engine.fs, engine.path, id, end_seq)
            return
        hidden = withheld(self._topic.log, self._segment)
        content = await engine.run_segment_io(read_idx, engine.fs, engine.path, id, end_seq, hidden)
        self._content = content
        self.size = len(content)
        self.etag += f".{content[_FLAGS_AT::ENTRY_SIZE].translate(_IS_DELETED).count(1)}"

    async def read(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end) of the file, without what is deleted by now.

        Raises SegmentNotFound when the segment was dropped or rewritten since, RecordCorrupt, SegmentUnreadable.
        """
        if self._content is not None:
            return self._content[begin:end]
        engine, segment = self._engine, self._segment
        if self.current():
            hidden = withheld(self._topic.log, segment)
            try:
                return await engine.run_segment_io(
                    read_data, engine.fs, engine.path, self.id, segment.end_seq, hidden, begin, end
                )
            except FileNotFoundError as error:
                if self.current():
                    raise missing_file(self._topic, error) from error
        raise SegmentNotFound(
            f"Segment {self.id.first_seq} of {self._topic.name} went, or was rewritten, while it was being read.",
            reason="gone",
            first_seq=self.id.first_seq,
        )

    def current(self) -> bool:
        """Whether the manifest still names these files."""
        segment = self._segment
        return (
            self._engine.catalog.by_id.get(self.id.topic_id) is self._topic
            and self._topic.log.held.manifest.named(self.id.first_seq) is segment
            and segment.gen == self.id.gen
        )


async def open_download(engine: Engine, name: str, first_seq: int, ext: str) -> SegmentDownload:
    """A file (DATA or IDX) of the sealed segment that begins with `first_seq`.

    Raises TopicNotFound, SegmentNotFound (detail.reason: active, absent), RecordCorrupt, SegmentUnreadable.
    """
    while True:
        topic = engine.topic(name)
        download = SegmentDownload(engine, topic, sealed(topic, first_seq))
        try:
            await download.open(ext)
        except FileNotFoundError as error:
            if download.current():
                raise missing_file(topic, error) from error
            continue  # dropped or rewritten since: the manifest says what there is now
        return download


def missing_file(topic: Topic, error: FileNotFoundError) -> RecordCorrupt:
    """What to raise for a file that the manifest names and that is not there."""
    file = str(error.filename).rpartition("/")[2]
    return RecordCorrupt(f"A file of a segment of {topic.name} is missing: {file}.", topic=topic.name, file=file)


# -- blocking, on the I/O pool. Each raises SegmentCorrupt and OSError; FileNotFoundError when the segment has gone. -----


@contextmanager
def _opened(fs: FileSystem, root: str, id: SegmentId) -> Generator[SegmentFiles]:
    paths = names.path(root, id, DATA), names.path(root, id, IDX)
    with ExitStack() as closing:
        data, idx = (closing.enter_context(_file(fs, path)) for path in paths)
        yield SegmentFiles(id, paths, data, idx)


@contextmanager
def _file(fs: FileSystem, path: str) -> Generator[File]:
    file = fs.open(path, write=False)
    try:
        yield file
    finally:
        file.close()


def data_size(fs: FileSystem, root: str, id: SegmentId, end_seq: int) -> int:
    """Bytes of .data: what its last entry ends with."""
    with _opened(fs, root, id) as files:
        return files.entry(end_seq - id.first_seq - 1).end


def read_idx(fs: FileSystem, root: str, id: SegmentId, end_seq: int, hidden: int) -> bytes:
    """All of .idx, every entry verified, with bit 2 set for the records whose bit is set in `hidden`."""
    with _opened(fs, root, id) as files:
        content = files.read_idx(0, end_seq - id.first_seq)
        for number in idx_entry.damaged(content):
            raise files.damaged_entry(number)
    # An entry without a record counts as dead here, and stays as it is.
    missing = hidden & ~idx_entry.dead_bits(content)
    if not missing:
        return content
    out = bytearray(content)
    for number, digit in enumerate(reversed(f"{missing:b}")):
        if digit == "1":
            at = number * ENTRY_SIZE
            out[at + _FLAGS_AT : at + ENTRY_SIZE] = idx_entry.deleted_tail(content, number)
    return bytes(out)


def read_data(fs: FileSystem, root: str, id: SegmentId, end_seq: int, hidden: int, begin: int, end: int) -> bytes:
    """The bytes [begin, end) of .data; frames whose bit is set in `hidden`, or that are flagged, as `blank` has them."""
    with _opened(fs, root, id) as files:
        content = files.read_data(begin, end)
        out: bytearray | None = None
        for entry, gone in _overlapping(files, end_seq - id.first_seq, hidden, begin, end):
            last = entry.end - 1
            flag = content[last - begin] if last < end else files.read_data(last, last + 1)[0]
            if not gone and flag != DELETE_BYTE:
                continue
            if entry.len < OVERHEAD:
                raise SegmentCorrupt(files.data_path, entry.offset, f"{entry.len} bytes are too few for a frame")
            frame = blank(files.read_data(entry.offset, entry.offset + HEADER_SIZE), entry.len)
            out = bytearray(content) if out is None else out
            first, stop = max(entry.offset, begin), min(entry.end, end)
            out[first - begin : stop - begin] = frame[first - entry.offset : stop - entry.offset]
        return content if out is None else bytes(out)


def _overlapping(files: SegmentFiles, count: int, hidden: int, begin: int, end: int) -> Generator[tuple[Entry, bool]]:
    """Entries of records with a byte in [begin, end), and whether their records are hidden or flagged."""
    number, high = 0, count
    while number < high:  # the first entry that ends behind `begin`
        middle = (number + high) // 2
        if files.entry(middle).end > begin:
            high = middle
        else:
            number = middle + 1
    while number < count:
        entries = files.entries(number, min(_STRIDE, count - number))
        gone = hidden >> number & ((1 << len(entries)) - 1)
        for entry in entries:
            if entry.offset >= end:
                return
            if entry.len:
                yield entry, bool(gone & 1 or entry.flags & DELETED)
            gone >>= 1
        number += len(entries)


def blank(header: bytes, size: int) -> bytes:
    """A deleted frame of `size` bytes with nothing in it, valid: all that is kept is the header. Pure."""
    body = header + bytes(size - OVERHEAD)
    return body + checksum(APPEND + body[4:]).to_bytes(8, "little") + bytes((DELETE_BYTE,))
