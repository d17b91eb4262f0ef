"""Checks and filters the frames that a read has fetched, and stops when it has enough.

Every frame from a file is checked: topic_id, seq and checksum. A frame that fails is never served, and never skipped
silently.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Sequence
from itertools import accumulate
from typing import NamedTuple

from storage.errors import RecordCorrupt, SegmentIncomplete
from storage.format import idx_entry, segment_frame
from storage.format.blocks import total
from storage.format.checksum import checksum
from storage.format.segment_frame import lengths_of_live
from storage.format.wal_frame import CHECKSUM, FIXED_LEN, HEADER, HEADER_SIZE, HOP_SHIFT, LENGTH
from storage.log.position import split
from storage.records import columns
from storage.records.batch_slices import BatchSlice, consecutive_ranges
from storage.records.contiguous import ContiguousRecords, chain_records
from storage.records.labelled import Labelled
from storage.records.values import ReadQuery, StoredRecord
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentSlice
from storage.state.catalog import Topic

#: A piece with fewer records becomes single records at once: keeping its bytes costs more.
_FEW = 64


class Piece(NamedTuple):
    """Consecutive frames of one batch, and the bytes that contain them."""

    slice: BatchSlice
    data: bytes
    start: int
    verified: bool
    dead: bytes | None


#: A read ends after skipping this many damaged records, so that the list of them stays small.
MAX_CORRUPT = 10_000


def limit_slice(slice_: BatchSlice, max_records: int, max_bytes: int) -> BatchSlice:
    """At least one record of the span, within both limits."""
    sizes = slice_.sizes[:max_records] if len(slice_.sizes) > max_records else slice_.sizes
    if total(sizes) > max_bytes:
        sizes = sizes[: max(1, bisect_right([*accumulate(sizes)], max_bytes))]
    return slice_ if len(sizes) == len(slice_.sizes) else slice_._replace(sizes=sizes or slice_.sizes[:1])


class Scan:
    """Takes frames until the query is satisfied."""

    def __init__(
        self, topic: Topic, query: ReadQuery, now_ms: int, max_scan: int, missing: Container[int] = ()
    ) -> None:
        """`missing`: numbers of WAL files that do not exist; their pieces come without bytes."""
        self._topic = topic
        self._missing = missing
        self._max_scan = max_scan
        self._query = query
        # An empty node excludes nothing: records without a node have it.
        self._exclude = query.exclude_nodes - {b""} if topic.config.dedupe_node else frozenset[bytes]()
        self._oldest_ts = now_ms - topic.config.ttl_ms if topic.config.ttl_ms else 0
        #: Found so far: `_parts` with `_before` records, followed by records examined one by one.
        self._parts: list[Sequence[StoredRecord]] = []
        self._before = 0
        self._separate: list[StoredRecord] = []
        self.corrupt: list[int] = []
        self.hops: dict[int, int] = {}
        #: First seqs of the cold segments that were read.
        self.cold: set[int] = set()
        self.scanned = 0
        self.size = 0
        self.done = False

    @property
    def count(self) -> int:
        """The number of records found so far."""
        return self._before + len(self._separate)

    @property
    def records(self) -> Sequence[StoredRecord]:
        """The records found so far."""
        if not self._parts:
            return self._separate
        return chain_records([*self._parts, self._separate] if self._separate else self._parts)

    def _add(self, part: ContiguousRecords | Labelled, count: int) -> None:
        if count < _FEW:
            self._separate += part
            return
        if self._separate:
            self._parts.append(self._separate)
            self._before += len(self._separate)
            self._separate = []
        self._parts.append(part.own())
        self._before += count

    def appetite(self) -> tuple[int, int]:
        """How many records and bytes to fetch next: the rest of the limit, or more if many records were skipped."""
        skipped = self.scanned - self.count
        wanted = self._query.limit - self.count
        return max(wanted, min(4096, 2 * skipped)), max(1, self._query.max_bytes - self.size) + 65536

    def take(self, piece: Piece) -> int:
        """Examine the frames of a piece; returns the last seq examined."""
        query = self._query
        plain = not self._exclude and query.tag is None and piece.dead is None and query.from_ts is None
        data, at, seq, topic_id = piece.data, piece.start, piece.slice.first_seq, self._topic.topic_id
        unpack = HEADER.unpack_from
        max_bytes, routing = query.max_bytes, query.routing
        if piece.slice.ts < self._oldest_ts:
            return seq + len(piece.slice.sizes) - 1
        there = len(piece.slice.sizes)
        if plain and there >= columns.LEAST and (room := self._room(there)) >= columns.LEAST:
            sizes = piece.slice.sizes[:room]
            found = columns.from_log(
                data, at, sizes, topic_id, seq, verified=piece.verified, unrouted=routing, labelled=True
            )
            if found is not None:
                return self._take_all(found, seq + len(piece.slice.sizes) - 1)
        records, before, limit = self._separate, self._before, query.limit - self._before
        for index, frame_size in enumerate(piece.slice.sizes):
            self.scanned += 1
            length, _, flags, stored_id, stored_seq, ts, node_len, tag_len, data_len = (
                unpack(data, at) if len(data) - at >= HEADER_SIZE else _NOTHING
            )
            whole = length + 4 == frame_size and length == FIXED_LEN + node_len + tag_len + data_len
            if not (
                whole
                and stored_seq == seq
                and stored_id == topic_id
                and (piece.verified or _sound(data, at, frame_size))
            ):
                self._damaged(piece, seq, at)
                at += frame_size
                seq += 1
                continue
            node_at = at + HEADER_SIZE
            tag_at = node_at + node_len
            body_at = tag_at + tag_len
            node, tag = data[node_at:tag_at], data[tag_at:body_at]
            if plain or self._wants(piece, index, node, tag, ts):
                size = data_len
                if (records or before) and self.size + size > max_bytes:
                    self.done = True
                    return seq - 1
                self.size += size
                records.append(StoredRecord(seq, ts, node, tag, data[body_at : body_at + data_len]))
                if routing and flags >> HOP_SHIFT:
                    self.hops[seq] = flags >> HOP_SHIFT
                if len(records) >= limit:
                    self.done = True
                    return seq
            if self.scanned >= self._max_scan:
                self.done = True
                return seq
            at += frame_size
            seq += 1
        return seq - 1

    def _room(self, count: int) -> int:
        """How many of `count` records to examine, if none is skipped."""
        return max(1, min(count, self._query.limit - self.count, self._max_scan - self.scanned))

    def _take_all(self, found: ContiguousRecords | Labelled, last_seq: int) -> int:
        """Take these records up to the limits; returns the last seq examined. `last_seq` is the last seq available."""
        max_bytes, there = self._query.max_bytes, len(found)
        size, count, taken = found.bytes_of(), there, found
        if self.size + size > max_bytes:
            least = 0 if self.count else 1
            count = min(there, max(least, found.fitting(max_bytes - self.size)))
            taken = found.first(count)
            size = taken.bytes_of()
        self.scanned += min(there, count + 1)
        if count:
            self.size += size
            self._add(taken, count)
        full = self.count >= self._query.limit or self.scanned >= self._max_scan
        self.done = full or found.first_seq + count <= last_seq
        return found.first_seq + count - 1

    def _wants(self, piece: Piece, index: int, node: bytes, tag: bytes, ts: int) -> bool:
        if piece.dead is not None and piece.dead[index]:
            return False
        return self._fits(node, tag, ts)

    def _fits(self, node: bytes, tag: bytes, ts: int) -> bool:
        query = self._query
        if node in self._exclude or (query.from_ts is not None and ts < query.from_ts):
            return False
        return query.tag is None or query.tag.matches(tag)

    def _damaged(self, piece: Piece, seq: int, at: int) -> None:
        if piece.dead is not None and piece.dead[seq - piece.slice.first_seq]:
            return
        file, offset = split(piece.slice.lsn)
        self.damaged(seq, f"WAL file {file}", offset + piece.slice.offset + (at - piece.start), number=file)

    def damaged(self, seq: int, file: str, offset: int, number: int | None = None) -> None:
        """A record that cannot be served: raises RecordCorrupt, or notes it when the reader skips damage."""
        self.scanned += 1 if number is None else 0
        if not self._query.skip_corrupt:
            self._topic.log.usage.corrupt_reads += 1
            gone = number is not None and number in self._missing
            what = "cannot be read: the file is missing" if gone else "fails its checksum"
            raise RecordCorrupt(
                f"Record {seq} of {self._topic.name} {what} ({file}, offset {offset}).",
                topic=self._topic.name,
                seq=seq,
                file=file.rpartition("/")[2] if number is None else number,
                offset=offset,
            )
        self._pass_over([seq])

    def _pass_over(self, seqs: Sequence[int]) -> None:
        self._topic.log.usage.corrupt_reads += len(seqs)
        self.corrupt += seqs
        self.done = self.done or len(self.corrupt) >= MAX_CORRUPT

    def missing_in_segment(self, seqs: Sequence[int], last_seq: int, error: SegmentIncomplete) -> int:
        """These live records up to `last_seq` are not in their segment: raises the error, or notes them all.

        Returns the last seq examined, at most MAX_CORRUPT `seqs` on. Without any seqs, they were deleted meanwhile.
        """
        if not seqs:
            return last_seq
        if not self._query.skip_corrupt:
            self._topic.log.usage.corrupt_reads += 1
            detail = {**error.detail, "topic": self._topic.name, "seq": seqs[0], "from_seq": seqs[0]}
            which = f"Records {seqs[0]} to {detail['to_seq']} of {self._topic.name}"
            raise SegmentIncomplete(f"{which} are not there. {error.message}", **detail)
        seqs = seqs[: MAX_CORRUPT - len(self.corrupt)]
        self.scanned += len(seqs)
        self._pass_over(seqs)
        self.done = self.done or self.scanned >= self._max_scan
        return seqs[-1] if self.done else last_seq

    def take_slice(self, id: SegmentId, found: SegmentSlice, dead: int, end_seq: int) -> int:
        """Examine records of a segment; returns the last seq examined. `dead` has a bit for each record."""
        query, topic_id, oldest_ts = self._query, id.topic_id, self._oldest_ts
        data, base, seq = found.data, found.base, found.first_seq - 1
        filtered = bool(self._exclude) or query.tag is not None or query.from_ts is not None
        if not filtered and (plain := self._plain(id, found, dead, end_seq)) is not None:
            return self._take_all(*plain)
        records, before, limit = self._separate, self._before, query.limit - self._before
        for offset, length, ts, flags in found.entries:
            seq += 1
            if seq >= end_seq:
                return end_seq - 1
            self.scanned += 1
            gone, dead = dead & 1, dead >> 1
            if gone or not length or ts < oldest_ts:
                if not gone and not length:
                    self._damaged_segment(id, seq, offset, names.IDX)
                if self.scanned >= self._max_scan:
                    self.done = True
                    return seq
                continue
            at = offset - base
            lengths = lengths_of_live(data, at, length, topic_id, seq)
            if lengths is None or flags & idx_entry.DELETED:
                self._damaged_segment(id, seq, offset, id.records_ext)
                continue
            node_len, tag_len, data_len = lengths
            node_at = at + segment_frame.HEADER_SIZE
            tag_at = node_at + node_len
            body_at = tag_at + tag_len
            node, tag = data[node_at:tag_at], data[tag_at:body_at]
            if not filtered or self._fits(node, tag, ts):
                if (records or before) and self.size + data_len > query.max_bytes:
                    self.done = True
                    return seq - 1
                self.size += data_len
                records.append(StoredRecord(seq, ts, node, tag, data[body_at : body_at + data_len]))
                if query.routing and data[at + LENGTH.size] >> HOP_SHIFT:
                    self.hops[seq] = data[at + LENGTH.size] >> HOP_SHIFT
                if len(records) >= limit:
                    self.done = True
                    return seq
            if self.scanned >= self._max_scan:
                self.done = True
                return seq
        return seq if found.entries else end_seq - 1

    def _plain(
        self, id: SegmentId, found: SegmentSlice, dead: int, end_seq: int
    ) -> tuple[ContiguousRecords | Labelled, int] | None:
        """The records of a slice, if every one of them is live and wanted; the last seq there is of it."""
        count = min(len(found.entries), end_seq - found.first_seq)
        room = self._room(count)
        if room < columns.LEAST or dead & ((1 << count) - 1):
            return None
        entries = found.entries.between(0, room)
        if max(entries.flags) & idx_entry.DELETED or not all(entries.lens) or min(entries.stamps) < self._oldest_ts:
            return None
        at = entries.offsets[0] - found.base
        records = columns.from_segment(
            found.data,
            at,
            entries.lens,
            id.topic_id,
            found.first_seq,
            entries.stamps,
            unrouted=self._query.routing,
            labelled=True,
        )
        return None if records is None else (records, found.first_seq + count - 1)

    def _damaged_segment(self, id: SegmentId, seq: int, offset: int, ext: str) -> None:
        self.scanned -= 1
        self.damaged(seq, names.file_name(id.first_seq, id.gen, ext), offset)


_NOTHING = (0, 0, 0, 0, 0, 0, 0, 0, 0)


class Read(NamedTuple):
    """All requested records, in order, and their payload bytes."""

    records: Sequence[StoredRecord]
    sizes: Sequence[int]


def cached(topic: Topic, seqs: Sequence[int], now_ms: int, max_bytes: int) -> Read | None:
    """The records with these ascending seqs, if the bytes of all of them are in the tail cache; else None.

    None as well when one has expired or is damaged, or when they have more than `max_bytes`.
    """
    log, tail = topic.log, topic.log.tail
    first, last, count = seqs[0], seqs[-1], len(seqs)
    if first <= log.held.flushed or last > log.head:
        return None
    sizes: list[int] = []
    query = ReadQuery(limit=count, max_bytes=max_bytes, skip_corrupt=True)  # nothing is raised here
    scan = Scan(topic, query, now_ms, count)
    ranges = ((first, last),) if last - first + 1 == count else consecutive_ranges(seqs)
    for begin, end in ranges:
        sizes += tail.payloads(begin, end + 1)
        for slice_ in tail.slices(begin, end + 1):
            in_cache = log.cached.get(slice_.batch_seq)
            if in_cache is None:
                return None
            dead = None if tail.dead is None else tail.dead_between(slice_.first_seq, len(slice_.sizes))
            scan.take(Piece(slice_, in_cache[0], in_cache[1] + slice_.offset, True, dead))
    records = scan.records
    return Read(records, sizes) if len(records) == count else None


def _sound(data: bytes, at: int, size: int) -> bool:
    end = at + size - CHECKSUM.size
    return len(data) >= end + CHECKSUM.size and checksum(data[at + 4 : end]) == CHECKSUM.unpack_from(data, end)[0]
