"""Which keys may write, read and delete records: each partition has a separate error code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tests.kafka.asking import a_batch, fetch, produce
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_access import KEYS, known

NO = ErrorCode.TOPIC_AUTHORIZATION_FAILED
ALLOWED = {  # write, read, delete, in the topics t and own.t
    "all": ((0, 0), (0, 0), (0, 0)),
    "reader": ((NO, NO), (0, 0), (NO, NO)),
    "writer": ((0, 0), (NO, NO), (NO, NO)),
    "own": ((NO, 0), (NO, 0), (NO, 0)),
    "admin": ((NO, NO), (NO, NO), (NO, NO)),
}


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    async with KafkaServer(tmp_path, api_keys=KEYS, header_timeout_s=600) as server:
        for name in ("t", "own.t"):
            await server.engine.append(name, b"first")
        yield server


async def listed(wire: Wire, name: str) -> int:
    topic = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await wire.ask(ApiKey.LIST_OFFSETS, 6, ListOffsetsRequest(topics=[topic]), ListOffsetsResponse)
    return answer.topics[0].partitions[0].error_code


async def deleted(wire: Wire, name: str) -> int:
    topic = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    answer = await wire.ask(ApiKey.DELETE_RECORDS, 2, DeleteRecordsRequest(topics=[topic]), DeleteRecordsResponse)
    return answer.topics[0].partitions[0].error_code


@pytest.mark.parametrize("key", ALLOWED)
async def test_produce_is_authorized_by_topic(guarded: KafkaServer, key: str) -> None:
    wire = await known(guarded, key)
    writes, reads, deletes = ALLOWED[key]
    written = await produce(wire, ("t", 0, a_batch(b"1")), ("own.t", 0, a_batch(b"1")))
    assert tuple(one[0] for one in written) == writes
    found = await fetch(wire, ("t", 0, 0), ("own.t", 0, 0))
    assert tuple(one.error_code for one in found) == reads
    assert all(bool(one.records) is not bool(one.error_code) for one in found)
    assert (await listed(wire, "t"), await listed(wire, "own.t")) == reads
    assert (await deleted(wire, "t"), await deleted(wire, "own.t")) == deletes
    assert guarded.engine.state("t").count == 1 + (not writes[0]) - (not deletes[0])
