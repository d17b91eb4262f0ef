"""Writes records of the proxy: all records for one partition in one atomic append."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.content import SLICE_BYTES, Slices
from broker.kafka import NO_TIME, concatenated, is_compacted, key_missing, to_stored
from broker.proxy.errors import KAFKA_ERROR, PartitionMissing, TopicMissing, number_of
from broker.proxy.membership import count_of
from broker.proxy.records import Batch, ProducedRecord
from broker.service import check_topic_name
from storage import StorageError, TopicConfig
from storage.records import StoredBodies, address, partition_of

if TYPE_CHECKING:
    from broker.proxy.node import ProxyNode

#: The most records that are converted at a time.
_AT_ONCE: Final = 500
_round_robin = itertools.count()


async def produce(
    broker: ProxyNode,
    topic: str,
    batch: Batch,
    *,
    partition: int | None = None,
    idempotency_key: str | None = None,
    one_record: bool = False,
) -> list[ProducedRecord]:
    """Write records. Returns the result of each, in order. On return they are as durable as the topic's class defines.

    A missing topic is created, but not if `partition` is given. Records with an `idempotency_key` are never written
    twice. `one_record`: a record for a missing partition fails alone, and results have timestamps. Raises
    InvalidRequest (the name), TopicMissing, PartitionMissing, UnderPressure; then nothing was written.
    """
    check_topic_name(topic)
    broker.pressure.check()
    count = count_of(broker.engine, topic)
    if not count:
        if partition is not None:
            raise TopicMissing
        count = await _make(broker, topic)
    # All records without a key go to one partition. A repetition must go to the same one.
    keyless = partition_of(idempotency_key.encode(), count) if idempotency_key else next(_round_robin) % count
    results: list[ProducedRecord] = [ProducedRecord(None, None)] * len(batch.keys)
    there = broker.engine.catalog.topics.get(topic)
    keyed = there is not None and is_compacted(there.config)
    parts: dict[int, list[int]] = {}
    work = Slices()
    for index, (key, chosen) in enumerate(zip(batch.keys, batch.partitions, strict=True)):
        where = partition if partition is not None else chosen
        if where is None:
            # Hashing a long key is slow, and a single partition needs no choice.
            where = keyless if key is None else 0 if count == 1 else partition_of(key, count)
        await work.done(0 if key is None or count == 1 else len(key))
        if where >= count:
            if not one_record:
                raise PartitionMissing
            results[index] = ProducedRecord(None, None, PartitionMissing.number, f"{topic} has no partition {where}.")
        elif keyed and key is None:
            results[index] = ProducedRecord(None, None, KAFKA_ERROR, key_missing(topic, where))
        else:
            parts.setdefault(where, []).append(index)
    outcomes = await asyncio.gather(
        *(
            _append(broker, topic, where, batch.only(indexes), idempotency_key, stamped=one_record)
            for where, indexes in parts.items()
        )
    )
    work = Slices()
    for indexes, outcome in zip(parts.values(), outcomes, strict=True):
        for index, each in zip(indexes, outcome, strict=True):
            await work.done(0)
            results[index] = each
    return results


async def _make(broker: ProxyNode, topic: str) -> int:
    partitions = broker.settings.kafka_auto_partitions
    if partitions > 1:
        await broker.engine.put_topic(topic, TopicConfig(partitions=partitions))
    return partitions


async def _append(
    broker: ProxyNode, topic: str, partition: int, batch: Batch, key: str | None, *, stamped: bool
) -> Sequence[ProducedRecord]:
    stored = await _stored(batch)
    try:
        done = await broker.engine.append_to(topic, partition, stored, idempotency_key=key)
    except StorageError as error:
        return [ProducedRecord(None, None, number_of(error), error.message)] * len(batch.keys)
    first = done.first_seq - 1
    if not stamped:
        work = Slices()  # it had to wait, like others that continue at the same time
        results: list[ProducedRecord] = []
        for index in range(len(batch.keys)):
            await work.done(0)
            results.append(
                ProducedRecord(partition, first + index, deduped=done.deduped, payload_differs=done.payload_differs)
            )
        return results
    written_ms = await _written_ms(broker, address(topic, partition), done.first_seq)
    stamps = [written_ms if each == NO_TIME else each for each in batch.stamps]
    return [ProducedRecord(partition, first + index, timestamp=stamp) for index, stamp in enumerate(stamps)]


async def _stored(batch: Batch) -> StoredBodies:
    """The records as they are stored; many of them in slices."""
    work = Slices()
    parts: list[StoredBodies] = []
    for begin in range(0, len(batch.keys), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        headers = batch.headers[some]
        parts.append(
            to_stored(batch.keys[some], batch.values[some], headers if any(headers) else None, batch.stamps[some])
        )
        await work.done(SLICE_BYTES)
    return concatenated(parts)


async def _written_ms(broker: ProxyNode, partition_name: str, seq: int) -> int:
    """The time of records without a create time: their commit time, which is the same for a repetition."""
    try:
        return (await broker.engine.read_one(partition_name, seq)).ts
    except StorageError:
        return broker.engine.now_ms()  # the record is deleted already
