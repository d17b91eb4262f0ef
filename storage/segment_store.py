"""The segments of an engine's logs: opened for reading once, asked by seq. Source: storage.md §4 (reads).

Everything here is blocking and may be called from several I/O threads. What is wrong with the files is raised as
`segment.errors` say.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from storage.filesystem import FileSystem
from storage.format.record import payload_size
from storage.format.segment_frame import HEADER, HEADER_SIZE, OVERHEAD
from storage.manifest import Details, Segment
from storage.records import TagMatch
from storage.segment.names import SegmentId
from storage.segment.reader import SegmentReader, SegmentSlice

#: From so many records of one segment on, all are measured at once.
_MANY = 256


def id_of(topic_id: int, segment: Segment) -> SegmentId:
    """What the segment's files are called."""
    return SegmentId(topic_id, segment.first_seq, segment.gen)


class SegmentStore:
    """Implements `manifest.Access`, and reads records."""

    def __init__(self, fs: FileSystem, root: str, max_open: int) -> None:
        self.fs = fs
        self.root = root
        self.reader = SegmentReader(fs, root, max_open)

    def details(self, topic_id: int, segment: Segment) -> Details:
        if not segment.count:
            return Details(array("I"), array("Q"))
        found = self.reader.sizes(id_of(topic_id, segment), segment.end_seq)
        return Details(found.payloads, found.stamps)

    def tagged(self, topic_id: int, segment: Segment, match: TagMatch) -> list[int]:
        return self.reader.tagged(id_of(topic_id, segment), segment.end_seq, match) if segment.count else []

    def sizes(self, topic_id: int, segment: Segment, seqs: Sequence[int]) -> list[int]:
        if len(seqs) >= _MANY:
            payloads = self.details(topic_id, segment).payloads
            return [payloads[seq - segment.first_seq] for seq in seqs]
        id = id_of(topic_id, segment)
        return [_size(self.reader.read(id, segment.end_seq, seq, 1, 1)) for seq in seqs]

    def read(self, id: SegmentId, end_seq: int, first_seq: int, max_records: int, max_bytes: int) -> SegmentSlice:
        """See `SegmentReader.read`."""
        return self.reader.read(id, end_seq, first_seq, max_records, max_bytes)

    def close(self) -> None:
        self.reader.close()


def _size(found: SegmentSlice) -> int:
    entry, data = found.entries[0], found.data
    _, _, _, _, _, node_len, tag_len, data_len = HEADER.unpack_from(data, 0)
    if OVERHEAD + node_len + tag_len + data_len != entry.len:
        return max(0, entry.len - OVERHEAD)  # damaged: whoever reads it is told
    begin = HEADER_SIZE + node_len + tag_len
    return payload_size(data, begin, begin + data_len)
