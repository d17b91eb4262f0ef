"""Produce and Fetch as another implementation of the protocol writes and reads them, in any version."""

from __future__ import annotations

import uuid
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.records.header import read_header
from tests.kafka.server import Wire

_fetch: Any = FetchRequest
_produce: Any = ProduceRequest
PRODUCE_VERSIONS = range(3, 10)
FETCH_VERSIONS = range(4, 13)
#: Versions in which topics have ids and no names.
BY_ID = range(13, APIS[ApiKey.FETCH].last + 1)
#: Many clients use a version in between; most use the newest.
NEWEST_PRODUCE, NEWEST_FETCH = 9, 12


def a_batch(*values: bytes, codec: int = 0, first: int = 0, **producer: int) -> bytes:
    """A batch of records without keys. `first`, `producer_id` and `producer_epoch`: those of an idempotent producer."""
    fields = {"producer_id": -1, "producer_epoch": -1, "base_sequence": first if producer else -1, **producer}
    builder: Any = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=0, batch_size=1 << 30, **fields
    )
    for number, value in enumerate(values):
        builder.append(number, 1_700_000_000_000 + number, None, value, [])
    return bytes(builder.build())


def produce_body(version: int, *batches: tuple[str, int, bytes | None], acks: int = -1, tx: str | None = None) -> bytes:
    """A request with these batches: topic, partition, bytes."""
    topic, data = _produce.TopicProduceData, _produce.TopicProduceData.PartitionProduceData
    topics = [topic(name=name, partition_data=[data(index=part, records=batch)]) for name, part, batch in batches]
    request = _produce(transactional_id=tx, acks=acks, timeout_ms=1000, topic_data=topics)
    return bytes(request.encode(version=version))


def _body(key: ApiKey, version: int, answer: bytes) -> bytes:
    return answer[1:] if version >= APIS[key].flexible_since else answer


async def produced(wire: Wire, version: int = NEWEST_PRODUCE) -> list[tuple[int, int, Any]]:
    """Error, base offset and the other fields of each partition in the next answer."""
    _, answer = await wire.answer()
    found: Any = ProduceResponse.decode(_body(ApiKey.PRODUCE, version, answer), version=version)
    return [(one.error_code, one.base_offset, one) for topic in found.responses for one in topic.partition_responses]


async def produce(
    wire: Wire, *batches: tuple[str, int, bytes | None], version: int = NEWEST_PRODUCE, **more: Any
) -> list[tuple[int, int, Any]]:
    wire.send(ApiKey.PRODUCE, version, produce_body(version, *batches, **more))
    return await produced(wire, version)


def fetch_body(
    version: int,
    *wanted: tuple[str, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 25,
    partition_bytes: int = 1 << 20,
    **more: Any,
) -> bytes:
    """A request for these: topic, partition, offset."""
    topic, part = _fetch.FetchTopic, _fetch.FetchTopic.FetchPartition
    topics = [
        topic(
            topic=name,
            partitions=[part(partition=number, fetch_offset=offset, partition_max_bytes=partition_bytes, **more)],
        )
        for name, number, offset in wanted
    ]
    request = _fetch(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )
    return bytes(request.encode(version=version))


def by_id(version: int, *wanted: tuple[bytes, int, int], max_wait_ms: int = 0) -> bytes:
    """A request by ids: topic's id, partition, offset."""
    part = _fetch.FetchTopic.FetchPartition
    topics = [
        _fetch.FetchTopic(
            topic_id=uuid.UUID(bytes=topic_id),
            partitions=[part(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)],
        )
        for topic_id, number, offset in wanted
    ]
    request = _fetch(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 25, isolation_level=0, session_id=0,
        session_epoch=-1, topics=topics, forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    return bytes(request.encode(version=version))


async def fetched(wire: Wire, version: int = NEWEST_FETCH) -> list[Any]:
    """The partitions of the next answer."""
    _, answer = await wire.answer()
    found: Any = FetchResponse.decode(_body(ApiKey.FETCH, version, answer), version=version)
    assert version < 7 or (found.error_code, found.session_id) == (0, 0)
    return [one for topic in found.responses for one in topic.partitions]


async def fetch(wire: Wire, *wanted: tuple[str, int, int], version: int = NEWEST_FETCH, **more: Any) -> list[Any]:
    wire.send(ApiKey.FETCH, version, fetch_body(version, *wanted, **more))
    return await fetched(wire, version)


def ranges(records: bytes) -> list[tuple[int, int, int]]:
    """For each batch of an answer: first offset, last offset, number of records."""
    found: list[tuple[int, int, int]] = []
    while records:
        size = 12 + int.from_bytes(records[8:12], "big")
        batch, records = records[:size], records[size:]
        assert read_header(batch)
        base, delta = int.from_bytes(batch[:8], "big"), int.from_bytes(batch[23:27], "big")
        found.append((base, base + delta, int.from_bytes(batch[57:61], "big")))
    return found
