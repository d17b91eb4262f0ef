"""Reads segments: slices of records, sizes, tags, times. Blocking; any number of I/O threads may read at once.

Callers ask only for what is marked: nothing at or after `end_seq` is read. If a segment was dropped or rewritten since
the caller read the manifest, FileNotFoundError is raised; reads in progress finish on the old files. Index entries are
verified here. Frames are verified by the caller, who decides what to do about a damaged one.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from storage.format import ENTRY_SIZE, HAS_TAG, Entries, idx_entry
from storage.platform import FileSystem
from storage.records import TagMatch
from storage.segments.chunks import columns
from storage.segments.handles import OpenCold, OpenSegments, SegmentFiles
from storage.segments.lengths import payloads
from storage.segments.names import SegmentId
from storage.segments.tags import TagSidecars

_FLAGS_AT = 16
#: Where no requested seq has a record, this many entries are read at a time.
_HOLE_STRIDE = 4096
#: If at least one entry in this many is wanted, all of them are verified in one pass instead of one by one.
_SPARSE = 8


class SegmentSlice(NamedTuple):
    """Records as they lie in a segment.

    `entries` begins with the entry of seq `first_seq`; seqs between the requested one and `first_seq` have no record.
    An entry with len 0 has no record either, and one with the bit DELETED is deleted. The frame of any other is
    data[entry.offset - base : entry.end - base], unverified. The next slice begins at first_seq + len(entries).
    """

    first_seq: int
    entries: Entries
    data: bytes
    base: int


class Details(NamedTuple):
    """For each seq of a segment: bytes of data and meta as sent (0: no record), and time in ms."""

    payloads: array[int]
    stamps: array[int]


class SegmentReader:
    """Every read of a segment goes through this class. Every method may be called from any number of threads.

    `id` identifies the segment, which covers the seqs [id.first_seq, end_seq). Raises SegmentCorrupt (file,
    offset, what) for an index entry that fails its check and for files that are shorter than `end_seq` says,
    FileNotFoundError for a missing segment, and other OSErrors unchanged.

    With `cold` it reads cold segments: calls that need their .data wait for the cold store and raise its errors.
    """

    def __init__(self, fs: FileSystem, root: str, max_open: int, cold: OpenCold | None = None) -> None:
        self._open = OpenSegments(fs, root, max_open, cold)
        self.sidecars = TagSidecars(fs, root, self._open)

    @property
    def open_segments(self) -> int:
        """Segments whose files are kept open."""
        return len(self._open)

    def read(self, id: SegmentId, end_seq: int, first_seq: int, max_records: int, max_bytes: int) -> SegmentSlice:
        """Up to `max_records` seqs from `first_seq` on, and their frames: at most `max_bytes`, but at least one.

        Leading seqs without a record are skipped, others take no bytes. If no record follows, first_seq of the slice is
        `end_seq`. This takes one read of .idx and one of .data, more only for long gaps.
        """
        begin, end = first_seq - id.first_seq, end_seq - id.first_seq
        if not 0 <= begin < end or max_records < 1:
            raise ValueError(f"{max_records} records from {first_seq} on, of a segment [{id.first_seq}, {end_seq})")
        with self._open.lease(id) as files:
            entries = files.entries(begin, min(max_records, end - begin))
            while (skipped := _leading_holes(entries)) == len(entries) and begin + skipped < end:
                begin += skipped
                entries = files.entries(begin, min(max(max_records, _HOLE_STRIDE), end - begin))
            entries = entries.between(skipped, skipped + max_records)
            first_seq = id.first_seq + begin + skipped
            if not entries:
                return SegmentSlice(first_seq, entries, b"", 0)
            base = entries[0].offset
            if entries[-1].end - base > max_bytes:
                count = bisect_right(range(len(entries)), base + max_bytes, key=lambda number: entries[number].end)
                entries = entries.between(0, max(1, count))
            return SegmentSlice(first_seq, entries, files.read_data(base, entries[-1].end), base)

    def sizes(self, id: SegmentId, end_seq: int) -> Details:
        """Payload and time of every record, deleted ones included.

        A damaged frame is no error here, because the totals of the log depend on the result; reading that record raises
        one. An impossible length is replaced by the largest that fits.
        """
        with self._open.lease(id) as files:
            entries = columns(files, end_seq - id.first_seq)
            return Details(payloads(files, entries), array("Q", entries.stamps))

    def tagged(self, id: SegmentId, end_seq: int, match: TagMatch) -> list[int]:
        """Seqs of the live records whose tag matches, ascending. For sealed segments.

        Makes the .tag sidecar if it is missing; failing to write it is no error. For an active segment the
        answer is correct too, but the sidecar is made again whenever the segment has grown.
        Raises SegmentCorrupt when the frame of a live record with a tag fails its check while the sidecar is made,
        because nobody can tell whether it matches.
        """
        count = end_seq - id.first_seq
        with self._open.lease(id) as files:
            tags = self.sidecars.of(files, count)
            seqs = tags.prefix(match.text) if match.prefix else tags.exact(match.text)
            numbers = [seq - id.first_seq for seq in seqs]
            return [id.first_seq + number for number in _live_with_tag(files, numbers)]

    def dead_bits(self, id: SegmentId, end_seq: int) -> int:
        """A bitset: bit i is set when the record first_seq + i is deleted or missing. Only such entries are verified:
        a damaged entry must not hide a record, and reading a live record finds the damage of its entry.
        """
        count = end_seq - id.first_seq
        with self._open.lease(id) as files:
            buffer = files.read_idx(0, count)
            bits = idx_entry.dead_bits(buffer)
            if bits.bit_count() * _SPARSE > count:
                for number in idx_entry.damaged(buffer):
                    if bits >> number & 1:
                        raise files.damaged_entry(number)
            elif bits:
                for number in idx_entry.set_bits(bits):
                    files.entry_in(buffer, number, 0)
            return bits

    def frames(self, id: SegmentId, end_seq: int) -> int:
        """How many records have a frame, deleted ones included."""
        with self._open.lease(id) as files:
            lens = files.entries(0, end_seq - id.first_seq).lens
            return len(lens) - lens.count(0)

    def stamps(self, id: SegmentId, end_seq: int) -> array[int]:
        """The time of every entry, from .idx alone."""
        with self._open.lease(id) as files:
            return files.entries(0, end_seq - id.first_seq).stamps

    def ts_search(self, id: SegmentId, end_seq: int, ts: int) -> int:
        """The first seq with a time of `ts` or later, `end_seq` when there is none. A few reads of one entry each."""
        with self._open.lease(id) as files:
            count = end_seq - id.first_seq
            return id.first_seq + bisect_left(range(count), ts, key=lambda number: files.entry(number).ts)

    def forget(self, id: SegmentId) -> None:
        """The segment is removed: close its files. Reads in progress finish on them."""
        self._open.forget(id)

    def close(self) -> None:
        """Close all files; those in use are closed when their readers have finished."""
        self._open.close()


def _leading_holes(entries: Entries) -> int:
    return next((number for number, size in enumerate(entries.lens) if size), len(entries))


def _live_with_tag(files: SegmentFiles, numbers: list[int]) -> list[int]:
    """The entry numbers, ascending, whose entries are live and tagged. (An entry without a record has no flag.)"""
    if not numbers:
        return []
    first, width = numbers[0], numbers[-1] - numbers[0] + 1
    if width > _SPARSE * len(numbers):
        return [number for number in numbers if files.entry(number).flags & (HAS_TAG | idx_entry.DELETED) == HAS_TAG]
    buffer = files.read_idx(first, width)
    damaged = set(idx_entry.damaged(buffer))
    for number in numbers if damaged else ():
        if number - first in damaged:
            raise files.damaged_entry(number)
    flags = buffer[_FLAGS_AT::ENTRY_SIZE]
    return [number for number in numbers if flags[number - first] & (HAS_TAG | idx_entry.DELETED) == HAS_TAG]
