"""The read path: from a cursor to records, with everything lost in between announced. Source: api.md §3 (read).

A read plans on the event loop (arrays only), fetches bytes from the tail cache or, on the I/O pool, from the WAL,
and checks what it fetched: topic_id, seq and checksum of every frame that was on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.catalog import Topic
from storage.errors import InvalidRequest, RecordCorrupt, RecordNotFound, TopicNotFound
from storage.format.checksum import checksum
from storage.format.wal_frame import CHECKSUM, FIXED_LEN, HEADER, HEADER_SIZE
from storage.log import Log
from storage.records import ReadQuery, ReadResult, StoredRecord, Tombstone
from storage.tail import Span
from storage.wal.fetch import WalFileGone
from storage.wal.position import split

if TYPE_CHECKING:
    from storage.core import EngineCore


class Piece(NamedTuple):
    """Consecutive frames of one batch, with the bytes that hold them."""

    span: Span
    data: bytes
    start: int
    verified: bool
    dead: bytes | None


class Damaged(NamedTuple):
    """A frame that failed its check."""

    seq: int
    place: int


class Reader:
    """Reads logs of one engine."""

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine

    async def read(self, topic: Topic, query: ReadQuery) -> ReadResult:
        """Records behind `query.from_seq`. Raises RecordCorrupt unless `skip_corrupt`."""
        missing: set[int] = set()
        while True:
            try:
                return await self._read(topic, query)
            except WalFileGone as gone:
                # Trimmed between plan and fetch: what lay in it is dead by now, so a new plan does not want it.
                if self._engine.catalog.by_id.get(topic.topic_id) is not topic:
                    raise TopicNotFound(topic.name) from None
                if gone.file in missing:
                    raise RecordCorrupt(
                        f"Record {gone.seq} of {topic.name} cannot be read: WAL file {gone.file} is missing.",
                        topic=topic.name,
                        seq=gone.seq,
                        file=gone.file,
                        offset=gone.offset,
                    ) from None
                missing.add(gone.file)

    async def _read(self, topic: Topic, query: ReadQuery) -> ReadResult:
        await self._engine.expiry.expire_if_possible(topic)
        topic.last_read_ts = self._engine.now_ms()
        log = topic.log
        from_seq, tombstone = self._begin(log, query)
        head = log.head
        end = min(log.marks.next_loss(from_seq) or head + 1, head + 1)
        scan = _Scan(topic, query, self._engine.now_ms(), self._engine.options.max_scan_records)
        cursor = min(max(from_seq, log.marks.live_floor - 1), end - 1)
        # What is evicted during a wait ends the read: the next one gets the tombstone.
        while log.marks.evict_floor <= cursor + 1 < end and not scan.done:
            pieces, reached = await self._fetch(log, cursor + 1, end, scan)
            for piece in pieces:
                cursor = scan.take(piece)
                if scan.done:
                    break
            else:
                cursor = reached
        return ReadResult(
            topic=topic.name,
            records=scan.records,
            next_from_seq=max(cursor, from_seq),
            head_seq=head,
            earliest_seq=log.earliest_seq,
            tombstone=tombstone,
            corrupt_seqs=scan.corrupt or None,
            records_scanned=scan.scanned,
        )

    def _begin(self, log: Log, query: ReadQuery) -> tuple[int, Tombstone | None]:
        """Where to go on from, and what must be told first."""
        earliest, head = log.earliest_seq, log.head
        from_seq = query.from_seq
        if from_seq > head or (query.epoch is not None and query.epoch != log.epoch):
            gap_to = max(0, log.marks.evict_floor - 1)
            return gap_to, Tombstone(
                gap_from=1, gap_to=gap_to, reason="recreated", missed_estimate=0, earliest_seq=earliest, head_seq=head
            )
        if query.from_ts is not None:
            since = log.tail.first_seq_since(query.from_ts)
            from_seq = max(from_seq, head if since is None else min(since - 1, head))
        tombstone = log.marks.tombstone(from_seq, earliest_seq=earliest, head_seq=head)
        return (from_seq, None) if tombstone is None else (tombstone.gap_to, tombstone)

    async def _fetch(self, log: Log, first_seq: int, end_seq: int, scan: _Scan) -> tuple[list[Piece], int]:
        """The next pieces a scan wants, and the last seq they examine."""
        wanted: list[Span] = []
        missing: list[Span] = []
        records, size = 0, 0
        max_records, max_bytes = scan.appetite()
        for span in log.tail.spans(first_seq, end_seq):
            span = _cut(span, max_records - records, max_bytes - size)
            wanted.append(span)
            if span.batch_seq not in log.cached:
                missing.append(span)
            records += len(span.sizes)
            size += sum(span.sizes)
            if records >= max_records or size >= max_bytes:
                break
        if not wanted:
            return [], end_seq - 1
        # All of this is looked at before the wait: what is evicted meanwhile was live when it was asked for.
        cached = {span.first_seq: log.cached[span.batch_seq] for span in wanted if span.batch_seq in log.cached}
        gone = [log.tail.dead_between(span.first_seq, len(span.sizes)) for span in wanted]
        read = await self._engine.wal_files.fetch(log.shard, missing) if missing else {}
        pieces: list[Piece] = []
        for span, dead in zip(wanted, gone, strict=True):
            if span.first_seq in cached:
                payload, offset = cached[span.first_seq]
                pieces.append(Piece(span, payload, offset + span.offset, True, dead))
            else:
                data, start = read[span.first_seq]
                pieces.append(Piece(span, data, start, False, dead))
        last = wanted[-1]
        return pieces, last.first_seq + len(last.sizes) - 1

    async def read_one(self, topic: Topic, seq: int) -> StoredRecord:
        """The record `seq`. Raises RecordNotFound, with the reason, when it is not to be had."""
        if seq < 1:
            raise InvalidRequest("seq must be 1 or more.", field="seq")
        await self._engine.expiry.expire_if_possible(topic)
        log = topic.log
        reason = "future" if seq > log.head else log.marks.lost_to(seq)
        if reason is None and seq < self._engine.expiry.due(topic):
            reason = "expired"
        if reason is None and not log.tail.holds(seq):
            reason = "deleted"
        if reason is not None:
            raise RecordNotFound(f"{topic.name} has no record {seq}: {reason}.", reason=reason, seq=seq)
        result = await self.read(topic, ReadQuery(from_seq=seq - 1, limit=1))
        if not result.records or result.records[0].seq != seq:
            raise RecordNotFound(
                f"{topic.name} has no record {seq}: it went while it was being read.", reason="deleted", seq=seq
            )
        return result.records[0]


def _cut(span: Span, max_records: int, max_bytes: int) -> Span:
    """At least one record of the span, at most so many and so large."""
    count, size = 0, 0
    for each in span.sizes[:max_records]:
        if count and size + each > max_bytes:
            break
        size += each
        count += 1
    return span if count == len(span.sizes) else span._replace(sizes=span.sizes[: max(1, count)])


class _Scan:
    """Takes frames until the query is satisfied."""

    def __init__(self, topic: Topic, query: ReadQuery, now_ms: int, max_scan: int) -> None:
        self._topic = topic
        self._max_scan = max_scan
        self._query = query
        self._exclude = query.exclude_nodes if topic.config.dedupe_node else frozenset[bytes]()
        self._oldest_ts = now_ms - topic.config.ttl_ms if topic.config.ttl_ms else 0
        self.records: list[StoredRecord] = []
        self.corrupt: list[int] = []
        self.scanned = 0
        self.size = 0
        self.done = False

    def appetite(self) -> tuple[int, int]:
        """How many records and bytes to fetch next: as many as could be wanted, more the more were passed over."""
        passed_over = self.scanned - len(self.records)
        wanted = self._query.limit - len(self.records)
        return max(wanted, min(4096, 2 * passed_over)), max(1, self._query.max_bytes - self.size) + 65536

    def take(self, piece: Piece) -> int:
        """Examine a piece's frames; the last seq examined."""
        query = self._query
        plain = not self._exclude and query.tag is None and piece.dead is None and query.from_ts is None
        data, at, seq, topic_id = piece.data, piece.start, piece.span.first_seq, self._topic.topic_id
        unpack = HEADER.unpack_from
        max_bytes, limit, records = query.max_bytes, query.limit, self.records
        if piece.span.ts < self._oldest_ts:
            return seq + len(piece.span.sizes) - 1
        for index, frame_size in enumerate(piece.span.sizes):
            self.scanned += 1
            length, _, _, stored_id, stored_seq, ts, node_len, tag_len, data_len = (
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
                if records and self.size + size > max_bytes:
                    self.done = True
                    return seq - 1
                self.size += size
                records.append(StoredRecord(seq, ts, node, tag, data[body_at : body_at + data_len]))
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
        query = self._query
        if piece.dead is not None and piece.dead[index]:
            return False
        if node in self._exclude or (query.from_ts is not None and ts < query.from_ts):
            return False
        return query.tag is None or query.tag.matches(tag)

    def _damaged(self, piece: Piece, seq: int, at: int) -> None:
        if piece.dead is not None and piece.dead[seq - piece.span.first_seq]:
            return
        file, offset = split(piece.span.place)
        offset += piece.span.offset + (at - piece.start)
        self._topic.log.usage.corrupt_reads += 1
        if not self._query.skip_corrupt:
            raise RecordCorrupt(
                f"Record {seq} of {self._topic.name} fails its checksum (WAL file {file}, offset {offset}).",
                topic=self._topic.name,
                seq=seq,
                file=file,
                offset=offset,
            )
        self.corrupt.append(seq)


_NOTHING = (0, 0, 0, 0, 0, 0, 0, 0, 0)


def _sound(data: bytes, at: int, size: int) -> bool:
    end = at + size - CHECKSUM.size
    return len(data) >= end + CHECKSUM.size and checksum(data[at + 4 : end]) == CHECKSUM.unpack_from(data, end)[0]
