"""Reads the segments of an engine's logs by seq, hot and cold ones. Files stay open between reads.

Everything here blocks and may be called from several threads. Errors of files are those of `segments.errors`, errors of
the cold store those of `segments.tiering.store`. Only segments whose `tier` is cold are read from the cold store, so
reads of hot ones never wait for it.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import suppress

from storage.format import HAS_TAG, Entry, FrameError, SegmentFrame, decode, idx_entry, payload_size, segment_frame
from storage.platform import FileSystem
from storage.records import TagMatch
from storage.segments import names
from storage.segments.errors import SegmentBroken, SegmentCorrupt
from storage.segments.flips import flip, flip_idx
from storage.segments.lengths import read_lengths, write_lengths
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentReader, SegmentSlice
from storage.segments.tiering import Tier
from storage.state import COLD, Details, Segment, Times

_WALK_RECORDS = 4096
_WALK_BYTES = 4 << 20
#: From this many records of one segment on, all of its records are measured at once.
_MANY = 256


def id_of(topic_id: int, segment: Segment) -> SegmentId:
    """The id that names the segment's files."""
    return SegmentId(topic_id, segment.first_seq, segment.gen, bool(segment.packed_bytes))


def decode_frame(id: SegmentId, piece: SegmentSlice, entry: Entry) -> SegmentFrame:
    """The verified frame of an entry. Raises SegmentCorrupt."""
    try:
        return decode(piece.data, entry.offset - piece.base)
    except FrameError as error:
        raise SegmentCorrupt(names.file_name(id.first_seq, id.gen, id.records_ext), entry.offset, str(error)) from error


class SegmentStore:
    """Implements `manifest.Access`, and reads records."""

    def __init__(self, fs: FileSystem, root: str, max_open: int, cold: Tier | None = None) -> None:
        self.fs = fs
        self.root = root
        self.cold = cold
        #: For hot segments.
        self.reader = SegmentReader(fs, root, max_open)
        self._cold_reader = SegmentReader(fs, root, max_open, cold.data if cold else None)

    def reader_of(self, segment: Segment) -> SegmentReader:
        """The reader for the tier that the segment is in now."""
        return self._cold_reader if segment.tier == COLD else self.reader

    def forget(self, id: SegmentId) -> None:
        """See `SegmentReader.forget`."""
        self.reader.forget(id)
        self._cold_reader.forget(id)

    def details(self, topic_id: int, segment: Segment) -> Details:
        if not segment.count:
            return Details(array("I"), Times())
        if segment.tier != COLD:
            return self._measured(topic_id, segment)
        found = self.cached_details(topic_id, segment)
        if found is None:
            found = self._measured(topic_id, segment)
            with suppress(OSError, SegmentBroken):  # then it is measured again the next time
                self.keep_sizes(topic_id, segment, found)
        return found

    def _measured(self, topic_id: int, segment: Segment) -> Details:
        found = self.reader_of(segment).sizes(id_of(topic_id, segment), segment.end_seq)
        return Details(found.payloads, Times(found.stamps))

    def cached_details(self, topic_id: int, segment: Segment) -> Details | None:
        """The details of a cold segment from its local files; None when they need the cold store."""
        id = id_of(topic_id, segment)
        payloads = read_lengths(self.fs, self.root, id, segment.count, segment.data_bytes)
        return None if payloads is None else Details(payloads, Times(self._cold_reader.stamps(id, segment.end_seq)))

    def keep_sizes(self, topic_id: int, segment: Segment, details: Details) -> None:
        """Write the sidecar that `cached_details` reads. Raises OSError, SegmentBroken."""
        write_lengths(self.fs, self.root, id_of(topic_id, segment), segment.data_bytes, details.payloads)

    def flag(self, topic_id: int, segment: Segment, indexes: Sequence[int]) -> None:
        """Mark records as deleted in the files: see `flips.flip` and, of a cold segment, `flips.flip_idx`."""
        id = id_of(topic_id, segment)
        if segment.tier == COLD:
            flip_idx(self.fs, self.root, id, indexes)
            self._cold_reader.forget(id)
        else:
            flip(self.fs, self.root, id, indexes)

    def tagged(self, topic_id: int, segment: Segment, match: TagMatch) -> list[int]:
        if not segment.count:
            return []
        if not segment.sealed:  # a sidecar would be out of date with the next records
            return self._walk(id_of(topic_id, segment), segment.end_seq, match)
        return self.reader_of(segment).tagged(id_of(topic_id, segment), segment.end_seq, match)

    def _walk(self, id: SegmentId, end_seq: int, match: TagMatch) -> list[int]:
        """Seqs whose tag matches, without a sidecar, by reading every tag."""
        found: list[int] = []
        seq = id.first_seq
        while seq < end_seq:
            piece = self.reader.read(id, end_seq, seq, _WALK_RECORDS, _WALK_BYTES)
            for seq, entry in enumerate(piece.entries, piece.first_seq):
                if entry.len and entry.flags & (HAS_TAG | idx_entry.DELETED) == HAS_TAG:
                    frame = decode_frame(id, piece, entry)
                    if match.matches(frame.tag):
                        found.append(seq)
            seq = piece.first_seq + len(piece.entries)
        return found

    def sizes(self, topic_id: int, segment: Segment, seqs: Sequence[int]) -> list[int]:
        if len(seqs) >= _MANY or (seqs and segment.tier == COLD):
            payloads = self.details(topic_id, segment).payloads
            return [payloads[seq - segment.first_seq] for seq in seqs]
        id = id_of(topic_id, segment)
        return [_size(self.reader.read(id, segment.end_seq, seq, 1, 1)) for seq in seqs]

    def close(self) -> None:
        self.reader.close()
        self._cold_reader.close()


def _size(found: SegmentSlice) -> int:
    entry, data = found.entries[0], found.data
    _, _, _, _, _, node_len, tag_len, data_len = segment_frame.HEADER.unpack_from(data, 0)
    if segment_frame.OVERHEAD + node_len + tag_len + data_len != entry.len:
        return max(0, entry.len - segment_frame.OVERHEAD)  # damaged: reading it raises the error
    begin = segment_frame.HEADER_SIZE + node_len + tag_len
    return payload_size(data, begin, begin + data_len)
