"""A read frame by frame in plain Python: the result that `storage.reads.scan` must give."""

from __future__ import annotations

from storage.format import idx_entry, segment_frame
from storage.format.checksum import checksum
from storage.format.wal_frame import CHECKSUM, FIXED_LEN, HEADER, HEADER_SIZE, HOP_SHIFT, LENGTH, FrameError
from storage.reads.scan import Piece, Scan
from storage.records.values import StoredRecord
from storage.segments import names
from storage.segments.names import SegmentId
from storage.segments.reader import SegmentSlice


class ScanModel(Scan):
    """Looks at one frame after the other."""

    def take(self, piece: Piece) -> int:
        """Examine the frames of a piece; returns the last seq examined."""
        query = self._query
        plain = not self._exclude and query.tag is None and piece.dead is None and query.from_ts is None
        data, at, seq, topic_id = piece.data, piece.start, piece.slice.first_seq, self._topic.topic_id
        unpack = HEADER.unpack_from
        max_bytes, routing = query.max_bytes, query.routing
        if piece.slice.ts < self._oldest_ts:
            return seq + len(piece.slice.sizes) - 1
        topic_id = self._topic.topic_id
        records, limit = self._separate, query.limit
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
                if self.done or self.scanned >= self._max_scan:
                    self.done = True
                    return seq
                at += frame_size
                seq += 1
                continue
            node_at = at + HEADER_SIZE
            tag_at = node_at + node_len
            body_at = tag_at + tag_len
            node, tag = data[node_at:tag_at], data[tag_at:body_at]
            if plain or self._wants(piece, index, node, tag, ts):
                size = data_len
                if records and self.size + size > max_bytes:
                    self.done = True
                    return seq - 1
                self.size += size
                records.append(StoredRecord(seq, ts, node, tag, data[body_at : body_at + data_len]))
                self.count += 1
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

    def _wants(self, piece: Piece, index: int, node: bytes, tag: bytes, ts: int) -> bool:
        if piece.dead is not None and piece.dead[index]:
            return False
        return self._fits(node, tag, ts)

    def _fits(self, node: bytes, tag: bytes, ts: int) -> bool:
        query = self._query
        if node in self._exclude or (query.from_ts is not None and ts < query.from_ts):
            return False
        return query.tag is None or query.tag.matches(tag)

    def take_slice(self, id: SegmentId, found: SegmentSlice, dead: int, end_seq: int) -> int:
        """Examine records of a segment; returns the last seq examined. `dead` has a bit for each record."""
        query, topic_id, oldest_ts = self._query, id.topic_id, self._oldest_ts
        data, base, seq = found.data, found.base, found.first_seq - 1
        filtered = bool(self._exclude) or query.tag is not None or query.from_ts is not None
        records, limit = self._separate, query.limit
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
                if self.done or self.scanned >= self._max_scan:
                    self.done = True
                    return seq
                continue
            node_len, tag_len, data_len = lengths
            node_at = at + segment_frame.HEADER_SIZE
            tag_at = node_at + node_len
            body_at = tag_at + tag_len
            node, tag = data[node_at:tag_at], data[tag_at:body_at]
            if not filtered or self._fits(node, tag, ts):
                if records and self.size + data_len > query.max_bytes:
                    self.done = True
                    return seq - 1
                self.size += data_len
                records.append(StoredRecord(seq, ts, node, tag, data[body_at : body_at + data_len]))
                self.count += 1
                if query.routing and data[at + LENGTH.size] >> HOP_SHIFT:
                    self.hops[seq] = data[at + LENGTH.size] >> HOP_SHIFT
                if len(records) >= limit:
                    self.done = True
                    return seq
            if self.scanned >= self._max_scan:
                self.done = True
                return seq
        return seq if found.entries else end_seq - 1

    def _damaged_segment(self, id: SegmentId, seq: int, offset: int, ext: str) -> None:
        self.scanned -= 1
        self.damaged(seq, names.file_name(id.first_seq, id.gen, ext), offset)


def lengths_of_live(buffer: bytes, offset: int, length: int, topic_id: int, seq: int) -> tuple[int, int, int] | None:
    """node_len, tag_len and data_len of the complete, valid, live frame of this record. None if there is none."""
    try:
        frame = segment_frame.decode(buffer[offset : offset + length])
    except FrameError:
        return None
    if (frame.size, frame.topic_id, frame.seq, frame.deleted) != (length, topic_id, seq, False):
        return None
    return len(frame.node), len(frame.tag), len(frame.data)


_NOTHING = (0, 0, 0, 0, 0, 0, 0, 0, 0)


def _sound(data: bytes, at: int, size: int) -> bool:
    end = at + size - CHECKSUM.size
    return len(data) >= end + CHECKSUM.size and checksum(data[at + 4 : end]) == CHECKSUM.unpack_from(data, end)[0]
