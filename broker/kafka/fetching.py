"""Makes the batches that a fetch gets from one partition.

A range of offsets without records (deleted on request, lost within the log, never assigned) becomes an empty batch, so
that clients skip it and reach the high watermark. Offsets within a batch may have gaps, like those that Kafka's
compaction leaves. Evicted offsets, and offsets beyond the head, are OFFSET_OUT_OF_RANGE.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.kafka.cluster import LEADER_EPOCH
from broker.kafka.codec import Buffer
from broker.kafka.errors import ErrorCode
from broker.kafka.mapping import columns_of, to_kafka
from broker.kafka.records import empty_batch, write_batch
from storage import RecordCorrupt
from storage.records import ReadQuery, StoredRecord

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic

#: The most records for one partition in one answer.
MAX_RECORDS: Final = 20_000
#: The most offsets that one batch can cover.
_MAX_RANGE: Final = 1 << 30


#: The most records that a search by time reads.
MAX_LOOKED_AT: Final = 1_000_000
_LOOK_AT_ONCE: Final = 2048
_LOOK_AT_BYTES: Final = 1 << 20


class OffsetOutOfRange(Exception):
    """The offset is in the evicted range, or above the head."""


class Read(NamedTuple):
    """The batches for the offsets from the requested one to `next_offset`, exclusive."""

    batches: list[Buffer]
    next_offset: int


def stale_epoch(leader_epoch: int) -> ErrorCode | None:
    """The error for a leader epoch that is not the current one; -1: the client gives none."""
    if leader_epoch < 0 or leader_epoch == LEADER_EPOCH:
        return None
    return ErrorCode.FENCED_LEADER_EPOCH if leader_epoch < LEADER_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH


def check_offset(topic: Topic, offset: int) -> None:
    """Raises OffsetOutOfRange."""
    log = topic.log
    if not log.marks.evict_floor - 1 <= offset <= log.head:
        raise OffsetOutOfRange


async def read_from(
    engine: Engine, partition_name: str, topic: Topic, offset: int, max_bytes: int, *, least: int = 1
) -> Read:
    """Read records from an offset on: at most `max_bytes`, but at least `least` records, whatever their size.

    Raises OffsetOutOfRange, and the engine's errors; RecordCorrupt only if the damaged record is the first.
    """
    check_offset(topic, offset)
    query = ReadQuery(from_seq=offset, limit=MAX_RECORDS, max_bytes=max(1, max_bytes))
    try:
        found = await engine.read(partition_name, query)
    except RecordCorrupt as error:
        damaged = error.detail.get("seq", 0)
        if damaged <= offset + 1:
            raise
        # The records before the damaged one can be read.
        query = ReadQuery(from_seq=offset, limit=MAX_RECORDS, max_bytes=max(1, max_bytes), to_seq=damaged - 1)
        found = await engine.read(partition_name, query)
    if found.tombstone is not None:
        check_offset(topic, offset)  # evicted meanwhile, or lost within the log
    return _within(found.records, offset, found.next_from_seq, max_bytes, least)


def _within(records: Sequence[StoredRecord], offset: int, next_offset: int, max_bytes: int, least: int) -> Read:
    """As many records as fit. The engine's limit counts stored bytes; a batch may be larger than its records there."""
    while True:
        batches = batches_of(records, offset, next_offset)
        size = sum(map(len, batches))
        if size <= max_bytes or len(records) <= least:
            return Read(batches, next_offset) if size <= max_bytes or least else Read([], offset)
        records = records[: max(least, min(len(records) - 1, len(records) * max_bytes // size))]
        next_offset = records[-1].seq if records else offset


async def offset_since(engine: Engine, partition_name: str, topic: Topic, timestamp: int) -> tuple[int, int] | None:
    """Offset and time of the first record whose Kafka timestamp is at least `timestamp`; None if there is none.

    The search begins at the first record committed since then, so it misses records of a producer whose clock is ahead.
    It reads at most MAX_LOOKED_AT records, which matters if create times are much older than commits, as after an
    import. Then it returns the record after these.
    """
    position = await engine.reader.seq_before(topic, timestamp)
    end = position + MAX_LOOKED_AT
    while position < topic.log.head:
        found = await engine.read(
            partition_name, ReadQuery(from_seq=position, limit=_LOOK_AT_ONCE, max_bytes=_LOOK_AT_BYTES)
        )
        for seq, ts, node, tag, body in found.records:
            stamp = to_kafka(body, tag, node, ts)[3]
            if stamp >= timestamp or seq > end:
                return seq - 1, stamp
        position = found.next_from_seq
        await asyncio.sleep(0)  # reads from memory do not yield to the loop
    return None


async def offset_of_max_timestamp(engine: Engine, partition_name: str, topic: Topic) -> tuple[int, int] | None:
    """Offset and time of the first record with the latest Kafka timestamp; None if there are no records.

    It reads backwards until all earlier records were committed before the latest create time seen so far, so it misses
    records of a producer whose clock is ahead. It reads at most MAX_LOOKED_AT records.
    """
    best: tuple[int, int] | None = None
    end = topic.log.head
    stop = max(topic.log.earliest_seq - 1, end - MAX_LOOKED_AT)
    while end > stop:
        begin = max(stop, end - _LOOK_AT_ONCE)
        position, earliest_ts = begin, None
        while position < end:
            query = ReadQuery(from_seq=position, limit=_LOOK_AT_ONCE, max_bytes=_LOOK_AT_BYTES, to_seq=end)
            found = await engine.read(partition_name, query)
            for seq, ts, node, tag, body in found.records:
                earliest_ts = ts if earliest_ts is None else earliest_ts
                stamp = to_kafka(body, tag, node, ts)[3]
                # Earlier blocks are read later. Of records with equal times, the first counts.
                if best is None or stamp > best[1] or (stamp == best[1] and seq - 1 < best[0]):
                    best = seq - 1, stamp
            if found.next_from_seq <= position:
                break
            position = found.next_from_seq
        if best is not None and earliest_ts is not None and earliest_ts < best[1]:
            break
        end = begin
        await asyncio.sleep(0)  # reads from memory do not yield to the loop
    return best


def batches_of(records: Sequence[StoredRecord], offset: int, next_offset: int) -> list[Buffer]:
    """The batches for the offsets from `offset` to `next_offset`, exclusive."""
    batches: list[Buffer] = []
    behind = offset
    if records:
        first = records[0].seq - 1
        _step_over(batches, offset, first)
        seqs, columns = columns_of(records)
        deltas = [seq - 1 - first for seq in seqs]
        batches.append(write_batch(first, deltas, columns, LEADER_EPOCH))
        behind = records[-1].seq
    _step_over(batches, behind, next_offset)
    return batches


def _step_over(batches: list[Buffer], offset: int, next_offset: int) -> None:
    while offset < next_offset:
        end = min(next_offset, offset + _MAX_RANGE)
        batches.append(empty_batch(offset, end - 1, LEADER_EPOCH))
        offset = end
