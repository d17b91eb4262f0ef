"""The read path: from a cursor to records. Every loss in between is announced.

A read makes its plan on the event loop (arrays only). It fetches bytes from the tail cache or, on the I/O pool, from
the WAL or segments (cold segments have their own pool). Then it checks topic_id, seq and checksum of every frame.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from kernel import total
from storage.errors import (
    InvalidRequest,
    LogUnreadable,
    RecordCorrupt,
    RecordNotFound,
    SegmentIncomplete,
    SegmentUnreadable,
    TopicNotFound,
    Unreadable,
)
from storage.log import WalFileGone, split
from storage.reads.scan import MAX_CORRUPT, Piece, Scan, limit_slice
from storage.records import ReadQuery, ReadResult, StoredRecord, Tombstone
from storage.segments import SegmentGone, SegmentStore, error_text, id_of, run_segment_job
from storage.state import COLD, BatchSlice, Log, Topic

if TYPE_CHECKING:
    from storage.log import Logs


class Expiring(Protocol):
    """Tells a reader which records are older than their topic's ttl."""

    async def expire_if_possible(self, topic: Topic) -> None: ...

    def due(self, topic: Topic, *, loaded: bool = False) -> int:
        """The first seq that has not expired; 0 when no record has expired."""
        ...


#: A router that skips records yields to the loop after this many, or after as many as it requested.
ROUTING_SCAN_RECORDS = 4096


class Reader:
    """Reads the logs of one engine."""

    def __init__(self, logs: Logs, expiry: Expiring) -> None:
        self._logs = logs
        self._expiry = expiry
        self._store: SegmentStore

    def open(self, store: SegmentStore) -> None:
        """Read segments from this store. Called at the end of recovery."""
        self._store = store

    async def read(self, topic: Topic, query: ReadQuery) -> ReadResult:
        """Records after `query.from_seq`. Raises RecordCorrupt unless `skip_corrupt`, and Unreadable when the disk
        fails at the first record. When the disk fails at a later record, the read ends before it."""
        wanted: set[int] = set()
        missing: set[int] = set()
        while True:
            try:
                return await self._read(topic, query, missing)
            except SegmentGone:
                if self._logs.catalog.by_id.get(topic.topic_id) is not topic:
                    raise TopicNotFound(topic.name) from None
            except WalFileGone as gone:
                # The file was trimmed between plan and fetch. Its records are dead by now, so a new plan does not need
                # it.
                if self._logs.catalog.by_id.get(topic.topic_id) is not topic:
                    raise TopicNotFound(topic.name) from None
                # The new plan needs the missing file again: each of its records is damaged.
                (missing if gone.file in wanted else wanted).add(gone.file)

    async def _read(self, topic: Topic, query: ReadQuery, missing: Container[int]) -> ReadResult:
        if topic.config.ttl_ms:
            await self._expiry.expire_if_possible(topic)
        now, max_scan = self._logs.now_ms(), self._logs.options.max_scan_records
        if query.routing:
            max_scan = min(max_scan, max(ROUTING_SCAN_RECORDS, query.limit))
        else:
            topic.last_read_ts = now
        log = topic.log
        since = None if query.from_ts is None else await self._not_before(log, query.from_ts)
        from_seq, tombstone = self._begin(log, query, since)
        head = log.head
        last = head if query.to_seq is None else min(head, query.to_seq)
        end = last + 1
        if log.marks.loss:
            end = min(log.marks.next_loss(from_seq) or end, end)
        scan = Scan(topic, query, now, max_scan, missing)
        begin = cursor = min(max(from_seq, log.marks.live_floor - 1), end - 1)
        # An eviction during a wait ends the read: the next read gets the tombstone.
        while log.marks.evict_floor <= cursor + 1 < end and not scan.done:
            try:
                if cursor < log.held.flushed:
                    cursor = await self._read_segment(log, cursor + 1, end, scan)
                    continue
                pieces, reached = await self._fetch(topic, cursor + 1, end, scan, missing)
            except Unreadable:
                log.usage.unreadable_reads += 1
                if cursor == begin and tombstone is None:
                    raise
                break  # records before the failure are returned; the next read reports it
            examined = scan.take_all(pieces)
            cursor = examined if scan.done else reached
        result = ReadResult(
            topic=topic.name,
            records=scan.records,
            next_from_seq=max(cursor, from_seq),
            head_seq=head,
            earliest_seq=log.earliest_seq,
            tombstone=tombstone,
            corrupt_seqs=scan.corrupt or None,
            records_scanned=scan.scanned,
            cold_segments_read=len(scan.cold),
            bytes=scan.size,
            hops=scan.hops or None,
        )
        if not query.routing:
            self._logs.catalog.usage.traffic.answered(result)
        return result

    async def seq_before(self, topic: Topic, ts: int) -> int:
        """The seq before the first one committed at `ts` or later; the head when there is none."""
        found = await self._first_since(topic.log, ts)
        return topic.log.head if found is None else min(found - 1, topic.log.head)

    async def _not_before(self, log: Log, ts: int) -> int | None:
        """`_first_since`, or an earlier seq if times are unknown: the scan compares every record's time anyway."""
        try:
            return await self._first_since(log, ts)
        except RecordCorrupt as error:
            return max(log.marks.live_floor, error.detail["from_seq"])

    async def _first_since(self, log: Log, ts: int) -> int | None:
        """The first seq committed at `ts` or later."""
        for segment in log.held.manifest.behind(log.marks.live_floor):
            if segment.last_ts >= ts:
                if segment.first_ts >= ts:
                    return segment.first_seq
                id, search = id_of(log.topic_id, segment), self._store.reader_of(segment).ts_search
                return await run_segment_job(self._logs, log, segment, search, id, segment.end_seq, ts)
        return log.tail.first_seq_since(ts)

    async def _read_segment(self, log: Log, first_seq: int, end_seq: int, scan: Scan) -> int:
        """Examine records of the segment with `first_seq`, or of the next segment. Returns the last seq examined."""
        segment = log.held.manifest.first_behind(first_seq)
        if segment is None or segment.first_seq >= end_seq:
            return min(log.held.flushed, end_seq - 1)
        if segment.first_seq > first_seq:
            return segment.first_seq - 1
        end = min(segment.end_seq, end_seq)
        first_live = segment.first_live(first_seq)
        if first_live is None or first_live >= end:
            return end - 1
        max_records, max_bytes = scan.fetch_limits()
        id = id_of(log.topic_id, segment)
        if segment.tier == COLD:
            scan.cold.add(segment.first_seq)
        logs, read, end_of_all = self._logs, self._store.reader_of(segment).read, segment.end_seq
        try:
            found = await run_segment_job(logs, log, segment, read, id, end_of_all, first_live, max_records, max_bytes)
        except (RecordCorrupt, SegmentUnreadable) as error:
            if isinstance(error, SegmentUnreadable) and segment.tier == COLD:
                # Every retry may take as long as this one did. Records before the damage are good; if there are none,
                # the damage begins here.
                raise _at(error, first_live) from error
            # The records before the damage are good; if there are none, the damage begins here.
            try:
                found = await run_segment_job(logs, log, segment, read, id, end_of_all, first_live, 1, 1)
            except SegmentIncomplete as error:
                return scan.missing_in_segment(segment.live_seqs(first_live, end, MAX_CORRUPT), end - 1, error)
            except RecordCorrupt as error:
                scan.damaged(first_live, error.detail["file"], error.detail["offset"])
                return first_live
            except SegmentUnreadable as error:
                raise _at(error, first_live) from error
        # Records deleted during the wait may be flagged by now: they are skipped, and do not count as damage.
        return scan.take_slice(id, found, segment.dead >> (found.first_seq - segment.first_seq), end)

    def _begin(self, log: Log, query: ReadQuery, since: int | None) -> tuple[int, Tombstone | None]:
        """The seq to continue from, and the tombstone to return first."""
        marks, head, from_seq = log.marks, log.head, query.from_seq
        if from_seq > head or (query.epoch is not None and query.epoch != log.epoch):
            gap_to = max(0, marks.evict_floor - 1)
            return gap_to, Tombstone(
                gap_from=1,
                gap_to=gap_to,
                reason="recreated",
                missed_estimate=0,
                earliest_seq=log.earliest_seq,
                head_seq=head,
            )
        if query.from_ts is not None:
            from_seq = max(from_seq, head if since is None else min(since - 1, head))
        if from_seq + 1 >= marks.evict_floor and not marks.loss:
            return from_seq, None  # most reads: nothing after the cursor was lost
        tombstone = marks.tombstone(from_seq, earliest_seq=log.earliest_seq, head_seq=head)
        return (from_seq, None) if tombstone is None else (tombstone.gap_to, tombstone)

    async def _fetch(
        self, topic: Topic, first_seq: int, end_seq: int, scan: Scan, missing: Container[int]
    ) -> tuple[list[Piece], int]:
        """The next pieces for a scan, and the last seq they examine. Raises WalFileGone, LogUnreadable."""
        log = topic.log
        tail = log.tail
        # Each slice with its cached bytes and its deletions before the wait: records that are deleted during the wait
        # were live when the read began.
        wanted: list[tuple[BatchSlice, tuple[bytes, int] | None, bytes | None]] = []
        stored: list[BatchSlice] = []
        records, size = 0, 0
        max_records, max_bytes = scan.fetch_limits()
        if tail.dead is not None:
            # The bytes of deleted records before the first live record may be gone already, with their file.
            first_live = tail.first_live(first_seq, end_seq)
            first_seq = end_seq if first_live is None else first_live
        for slice_ in tail.slices(first_seq, end_seq):
            there, slice_bytes = len(slice_.sizes), total(slice_.sizes)
            if there > max_records - records or slice_bytes > max_bytes - size:
                slice_, slice_bytes = limit_slice(slice_, max_records - records, max_bytes - size)
            in_cache = log.cached.get(slice_.batch_seq)
            dead = None if tail.dead is None else tail.dead_between(slice_.first_seq, len(slice_.sizes))
            wanted.append((slice_, in_cache, dead))
            if in_cache is None and split(slice_.lsn)[0] not in missing:
                stored.append(slice_)
            records += len(slice_.sizes)
            size += slice_bytes
            # A slice cut short by the limits ends the plan, even if some room is left, too little for its next record.
            if len(slice_.sizes) < there or records >= max_records or size >= max_bytes:
                break
        if not wanted:
            return [], end_seq - 1
        read, unread = (await self._from_log(topic, stored)) if stored else ({}, None)
        pieces: list[Piece] = []
        for slice_, in_cache, dead in wanted:
            if in_cache is not None:
                payload, offset = in_cache
                pieces.append(Piece(slice_, payload, offset + slice_.offset, True, dead))
                continue
            if unread is not None and slice_.first_seq not in read:
                if not pieces:
                    raise unread
                break
            data, start = read.get(slice_.first_seq, (b"", 0))
            pieces.append(Piece(slice_, data, start, False, dead))
        last = pieces[-1].slice
        return pieces, last.first_seq + len(last.sizes) - 1

    async def _from_log(
        self, topic: Topic, slices: list[BatchSlice]
    ) -> tuple[dict[int, tuple[bytes, int]], LogUnreadable | None]:
        """As `_fetch`. If the disk fails, it returns the pieces before the failure, and the error."""
        fetch, shard = self._logs.wal_files.fetch, topic.log.shard
        with suppress(OSError):
            return await fetch(shard, slices), None
        read: dict[int, tuple[bytes, int]] = {}
        for slice_ in slices:
            try:
                read |= await fetch(shard, [slice_])
            except OSError as error:
                seq, file = slice_.first_seq, split(slice_.lsn)[0]
                said = f"Record {seq} of {topic.name} cannot be read from WAL file {file}: {error_text(error)}"
                return read, LogUnreadable(said, topic=topic.name, seq=seq, file=file)
        return read, None

    async def read_one(self, topic: Topic, seq: int) -> StoredRecord:
        """The record `seq`. Raises RecordNotFound with the reason when there is none."""
        if seq < 1:
            raise InvalidRequest("seq must be 1 or more.", field="seq")
        await self._expiry.expire_if_possible(topic)
        log = topic.log
        reason = "future" if seq > log.head else log.marks.lost_to(seq)
        if reason is None and seq < self._expiry.due(topic, loaded=True):
            reason = "expired"
        if reason is None and not log.held.holds(seq):
            reason = "deleted"
        if reason is not None:
            why = f"the newest is {log.head}" if reason == "future" else reason
            raise RecordNotFound(f"{topic.name} has no record {seq}: {why}.", reason=reason, seq=seq)
        result = await self.read(topic, ReadQuery(from_seq=seq - 1, limit=1))
        if not result.records or result.records[0].seq != seq:
            raise RecordNotFound(
                f"{topic.name} has no record {seq}: it was deleted while it was being read.", reason="deleted", seq=seq
            )
        return result.records[0]


def _at(error: SegmentUnreadable, seq: int) -> SegmentUnreadable:
    """The same error for this record."""
    return SegmentUnreadable(error.message, **{**error.detail, "seq": seq})
