"""The batches that a fetch gets from one partition: batches of records, and empty batches over missing offsets.

A range of offsets without records (deleted on purpose, lost within the log, never assigned) is an empty batch, so that
a client steps over it and reaches the high watermark. Offsets within a batch may have gaps, like those that Kafka's
compaction leaves. OFFSET_OUT_OF_RANGE is for evicted offsets, and for offsets beyond the head.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.kafka.cluster import LEADER_EPOCH
from broker.kafka.codec import Buffer
from broker.kafka.columns import columns_of
from broker.kafka.errors import ErrorCode
from broker.kafka.mapping import to_kafka
from broker.kafka.records import empty_batch, write_batch
from storage import RecordCorrupt
from storage.records import ReadQuery, StoredRecord

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic

#: The most records of one answer for one partition.
MAX_RECORDS: Final = 20_000
#: The most offsets that one batch can cover.
_MAX_RANGE: Final = 1 << 30


#: The most records that are read to find the first one of a time.
MAX_LOOKED_AT: Final = 1_000_000
_LOOK_AT_ONCE: Final = 2048
_LOOK_AT_BYTES: Final = 1 << 20


class OffsetOutOfRange(Exception):
    """The offset is below all that was not evicted, or above the head."""


class Read(NamedTuple):
    """Batches for the offsets from the requested one up to, but not including, `next_offset`."""

    batches: list[Buffer]
    next_offset: int


def stale_epoch(leader_epoch: int) -> ErrorCode | None:
    """The error for a client's leader epoch, if it is not the current one; -1 means that the client gives none."""
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
    """The records from an offset on, at most `max_bytes`, but at least the first `least` records of any size.

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
        # The records before the damaged one are good.
        query = ReadQuery(from_seq=offset, limit=MAX_RECORDS, max_bytes=max(1, max_bytes), to_seq=damaged - 1)
        found = await engine.read(partition_name, query)
    if found.tombstone is not None:
        check_offset(topic, offset)  # evicted meanwhile, unless it is a loss within the log
    return _within(found.records, offset, found.next_from_seq, max_bytes, least)


def _within(records: Sequence[StoredRecord], offset: int, next_offset: int, max_bytes: int, least: int) -> Read:
    """As many records as fit. The engine counts stored bytes; a batch may be larger, because it adds its framing."""
    while True:
        batches = batches_of(records, offset, next_offset)
        size = sum(map(len, batches))
        if size <= max_bytes or len(records) <= least:
            return Read(batches, next_offset) if size <= max_bytes or least else Read([], offset)
        records = records[: max(least, min(len(records) - 1, len(records) * max_bytes // size))]
        next_offset = records[-1].seq if records else offset


async def offset_since(engine: Engine, partition_name: str, topic: Topic, timestamp: int) -> tuple[int, int] | None:
    """Offset and time of the first record whose time, as clients see it, is not before `timestamp`; None if none is.

    It reads from the first record that was committed since, so it misses a producer whose clock is ahead. If create
    times lie far back, as after an import, it reads at most MAX_LOOKED_AT records and then returns the first one after
    these.
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
        await asyncio.sleep(0)  # reads of what is in memory wait for nothing
    return None


async def offset_of_max_timestamp(engine: Engine, partition_name: str, topic: Topic) -> tuple[int, int] | None:
    """Offset and time of the first record with the latest time, as clients see it; None if there are no records.

    It reads backwards from the last record, until all earlier ones were committed before the latest create time seen so
    far; it misses a producer whose clock is ahead. It reads at most MAX_LOOKED_AT records.
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
                # Earlier blocks are read later: at equal times their records come first.
                if best is None or stamp > best[1] or (stamp == best[1] and seq - 1 < best[0]):
                    best = seq - 1, stamp
            if found.next_from_seq <= position:
                break
            position = found.next_from_seq
        if best is not None and earliest_ts is not None and earliest_ts < best[1]:
            break
        end = begin
        await asyncio.sleep(0)  # reads of what is in memory wait for nothing
    return best


def batches_of(records: Sequence[StoredRecord], offset: int, next_offset: int) -> list[Buffer]:
    """Batches for the offsets from `offset` up to, but not including, `next_offset`."""
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
