"""Serves whole files of sealed segments to clients, without deleted records.

`.data` is sent as it is on disk, with unverified frames: they have checksums, and one damaged record must not keep the
others from a client. If a record is withheld (see `view`) or flagged as deleted, its frame is sent with node, tag and
data zeroed, the delete byte set and a new checksum: a short text could be guessed from the old one, and a client that
verifies every frame can continue. Lengths do not change, so offsets stay valid.

Files are opened for each read and closed after it. A client that fetches a whole topic must not displace from
`OpenSegments` what readers of records use, nor keep descriptors open during the whole download.

Source: docs/reference/api.md#segments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator
from contextlib import closing, contextmanager
from operator import add
from typing import Protocol

from kernel import all_equal
from storage.format import APPEND, ENTRY_SIZE, Entries, checksum, idx_entry, segment_frame
from storage.log import Logs
from storage.platform import File, Readable
from storage.segments import names
from storage.segments.errors import SegmentCorrupt, SegmentShort
from storage.segments.handles import SegmentFiles
from storage.segments.io import SegmentGone, run_local_job, run_segment_job
from storage.segments.names import DATA, IDX, SegmentId
from storage.segments.packed import PackedData, open_data
from storage.segments.store import SegmentStore, id_of
from storage.segments.view import SegmentNotFound, sealed, withheld
from storage.state import COLD, Segment, Topic

#: Entries read at a time.
_STRIDE = 2048
_FLAGS_AT = 16
_DELETED = bytes((segment_frame.DELETED,))
_IS_DELETED = bytes(1 if flags & idx_entry.DELETED else 0 for flags in range(256))


class Opened(Protocol):
    """The parts of an engine that a download uses. Recovery is over."""

    logs: Logs
    store: SegmentStore


class SegmentDownload:
    """One file of a sealed segment: `size` bytes named by `etag`. `open_download` makes it; it keeps nothing open."""

    def __init__(self, logs: Logs, store: SegmentStore, topic: Topic, segment: Segment) -> None:
        self._logs = logs
        self._store = store
        self._topic = topic
        self._segment = segment
        self.id = id_of(topic.log.topic_id, segment)
        self.etag = f"{self.id.topic_id}.{self.id.first_seq}.{self.id.gen}"
        self.size = 0
        #: The whole .idx, so that it stays what the etag names.
        self._content: bytes | None = None

    async def open(self, ext: str) -> None:
        """Find out size and etag. Raises SegmentGone, RecordCorrupt, SegmentUnreadable."""
        logs, store, log, segment = self._logs, self._store, self._topic.log, self._segment
        if ext == DATA:
            self.size = await run_local_job(logs, log, segment, data_size, store, self.id, segment.end_seq)
            return
        hidden = withheld(log, segment)
        content: bytes = await run_local_job(logs, log, segment, read_idx, store, self.id, segment.end_seq, hidden)
        self._content = content
        self.size = len(content)
        self.etag += f".{content[_FLAGS_AT::ENTRY_SIZE].translate(_IS_DELETED).count(1)}"

    async def read(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end) of the file, without records that are deleted by now.

        Raises SegmentNotFound when the segment was dropped or rewritten since, RecordCorrupt, SegmentUnreadable.
        """
        if self._content is not None:
            return self._content[begin:end]
        log, segment = self._topic.log, self._segment
        while self.current():
            cold, hidden = segment.tier == COLD, withheld(log, segment)
            try:
                return await run_segment_job(
                    self._logs,
                    log,
                    segment,
                    read_data,
                    self._store,
                    self.id,
                    cold,
                    segment.end_seq,
                    hidden,
                    begin,
                    end,
                )
            except SegmentGone:
                continue  # it may have moved: read it from its new place
        raise SegmentNotFound(
            f"Segment {self.id.first_seq} of {self._topic.name} went, or was rewritten, while it was being read.",
            reason="gone",
            first_seq=self.id.first_seq,
        )

    def current(self) -> bool:
        """Whether the manifest still names these files."""
        segment = self._segment
        return (
            self._logs.catalog.by_id.get(self.id.topic_id) is self._topic
            and self._topic.log.held.manifest.named(self.id.first_seq) is segment
            and segment.gen == self.id.gen
        )


async def open_download(engine: Opened, name: str, first_seq: int, ext: str) -> SegmentDownload:
    """A file (DATA or IDX) of the sealed segment that begins with `first_seq`.

    Raises TopicNotFound, SegmentNotFound (detail.reason: active, absent), RecordCorrupt, SegmentUnreadable.
    """
    while True:
        topic = engine.logs.topic(name)
        download = SegmentDownload(engine.logs, engine.store, topic, sealed(topic, first_seq))
        try:
            await download.open(ext)
        except SegmentGone:
            continue  # look at the manifest again
        return download


# -- blocking: SegmentCorrupt, OSError, FileNotFoundError when the segment has gone, ColdError of what is cold ---------


def data_size(store: SegmentStore, id: SegmentId, end_seq: int) -> int:
    """Bytes of .data: the end of its last entry."""
    last = end_seq - id.first_seq - 1
    return idx_entry.unpack(_read_entries(store, id, last, 1), 0).end


def read_idx(store: SegmentStore, id: SegmentId, end_seq: int, hidden: int) -> bytes:
    """The whole .idx, every entry verified, with bit 2 set for the records whose bit is set in `hidden`."""
    content = _read_entries(store, id, 0, end_seq - id.first_seq)
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


def _read_entries(store: SegmentStore, id: SegmentId, first: int, count: int) -> bytes:
    """`count` verified entries from number `first` on, as bytes."""
    path, offset = names.path(store.root, id, IDX), first * ENTRY_SIZE
    with _opened(store, path) as file:
        content = file.pread(count * ENTRY_SIZE, offset)
    if len(content) < count * ENTRY_SIZE:
        raise SegmentShort(path, offset + len(content), "the index ends before the segment does")
    for number in idx_entry.damaged(content):
        raise SegmentCorrupt(path, offset + number * ENTRY_SIZE, "the index entry fails its check")
    return content


@contextmanager
def _opened(store: SegmentStore, path: str) -> Generator[File]:
    file = store.fs.open(path, write=False)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def _data_of(store: SegmentStore, id: SegmentId, cold: bool) -> Generator[Readable]:
    if cold and store.cold is not None:
        yield store.cold.data(id)
    else:
        with closing(open_data(store.fs, store.root, id)) as file:
            yield file


def read_data(store: SegmentStore, id: SegmentId, cold: bool, end_seq: int, hidden: int, begin: int, end: int) -> bytes:
    """The bytes [begin, end) of .data. Frames with a bit in `hidden`, or flagged as deleted, are blanked (`blank`)."""
    data_path, idx_path = names.records_path(store.root, id), names.path(store.root, id, IDX)
    with _data_of(store, id, cold) as data, _opened(store, idx_path) as idx:
        files = SegmentFiles(id, (data_path, idx_path), data, idx)
        if isinstance(data, PackedData):  # its frames have no delete bytes
            hidden |= data.deleted_bits()
        content = files.read_data(begin, end)
        out: bytearray | None = None
        for offset, size in _to_blank(files, end_seq - id.first_seq, hidden, content, begin):
            if size < segment_frame.OVERHEAD:
                raise SegmentCorrupt(data_path, offset, f"{size} bytes are too few for a frame")
            header_end = offset + segment_frame.HEADER_SIZE
            within = begin <= offset and header_end <= end
            header = content[offset - begin : header_end - begin] if within else files.read_data(offset, header_end)
            out = bytearray(content) if out is None else out
            first, stop = max(offset, begin), min(offset + size, end)
            out[first - begin : stop - begin] = blank(header, size)[first - offset : stop - offset]
        return content if out is None else bytes(out)


def _to_blank(files: SegmentFiles, count: int, hidden: int, content: bytes, begin: int) -> Generator[tuple[int, int]]:
    """(offset, size) in .data of the frames to blank of those in `content`, which begins at `begin`."""
    end = begin + len(content)
    number, high = 0, count
    while number < high:  # the first entry that ends after `begin`
        middle = (number + high) // 2
        if files.entry(middle).end > begin:
            high = middle
        else:
            number = middle + 1
    while number < count:
        entries = files.entries(number, min(_STRIDE, count - number))
        within = bisect_left(entries.offsets, end)
        if not within:
            return
        is_last, entries = within < len(entries), entries.between(0, within)
        gone = hidden >> number & ((1 << len(entries)) - 1)
        marks = _delete_bytes(entries, content, begin)
        if len(marks) < len(entries):  # the last frame continues after the content
            last = entries[-1]
            known = last.flags & idx_entry.DELETED or gone >> len(marks)
            marks += _DELETED if known else files.read_data(last.end - 1, last.end)
        if gone or segment_frame.DELETED in marks or 1 in entries.flags.translate(_IS_DELETED):
            for index, ((offset, size, _, flags), mark) in enumerate(zip(entries, marks, strict=True)):
                if size and (
                    flags & idx_entry.DELETED or (gone and gone >> index & 1) or mark == segment_frame.DELETED
                ):
                    yield offset, size
        if is_last:
            return
        number += len(entries)


def _delete_bytes(entries: Entries, content: bytes, begin: int) -> bytes:
    """The delete byte of each frame (any byte where there is no record); that of the last one may be missing. The first
    frame ends after `begin`."""
    first, size = entries.offsets[0], entries.lens[0]
    if all_equal(entries.lens) and entries.offsets[-1] - first == size * (len(entries) - 1):
        if not size:
            return bytes(len(entries))
        return content[first + size - 1 - begin :: size][: len(entries)]
    positions = [end - 1 - begin for end in map(add, entries.offsets, entries.lens)]
    return bytes([content[position] for position in positions if position < len(content)])


def blank(header: bytes, size: int) -> bytes:
    """A valid deleted frame of `size` bytes with the same header and no content. Pure."""
    body = header + bytes(size - segment_frame.OVERHEAD)
    return body + checksum(APPEND + body[4:]).to_bytes(8, "little") + _DELETED
