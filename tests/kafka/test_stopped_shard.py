"""One of two shards can no longer write: topics on the other one continue, and no refused record is stored."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from storage import Durability, TopicConfig
from storage.records.partitions import address
from tests.kafka.server import KafkaServer
from tests.support.sim_disk import SimDisk

PARTITIONS = 8
PATIENCE_S = 20
SOON: dict[str, Any] = {"reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 0}


@pytest.fixture
async def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
async def server(disk: SimDisk) -> AsyncIterator[KafkaServer]:
    server = KafkaServer(Path("/broker"), fs=disk, wal_shards=2, kafka_min_session_ms=1000)
    async with server:
        await server.engine.put_topic("t", TopicConfig(partitions=PARTITIONS, durability=Durability.FSYNC))
        yield server


def by_shard(server: KafkaServer) -> list[set[int]]:
    """The partitions on each shard."""
    places: list[set[int]] = [set(), set()]
    for partition in range(PARTITIONS):
        places[server.engine.topic(address("t", partition)).log.shard].add(partition)
    return places


def produce(producer: Producer, name: str) -> tuple[set[str], set[str]]:
    """One value to each partition; returns the acked and the failed ones."""
    acked: set[str] = set()
    refused: set[str] = set()

    def told(value: str) -> Callable[[KafkaError | None, Any], None]:
        return lambda error, _: (acked if error is None else refused).add(value)

    for partition in range(PARTITIONS):
        value = f"{partition} {name}"
        producer.produce("t", value.encode(), partition=partition, on_delivery=told(value))
    assert producer.flush(PATIENCE_S) == 0
    return acked, refused


def read_all(server_address: str, wanted: set[str]) -> Counter[str]:
    """All records, read without a group; reads a little longer than needed to find extra ones."""
    consumer = Consumer({"bootstrap.servers": server_address, "group.id": "none", **SOON})
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(PARTITIONS)])
    found: Counter[str] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not wanted <= found.keys():
            assert time.monotonic() < deadline, wanted - found.keys()
            for message in consumer.consume(100, 0.3):
                assert message.error() is None, message.error()
                found[(message.value() or b"").decode()] += 1
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("stopped", [0, 1])
async def test_other_shard_continues(server: KafkaServer, disk: SimDisk, stopped: int) -> None:
    places = by_shard(server)
    assert all(places)
    settings = {"bootstrap.servers": server.address, "enable.idempotence": True, "message.timeout.ms": 4000, **SOON}
    acked, refused = await asyncio.to_thread(produce, Producer(settings), "before")
    assert not refused
    disk.fail("pwritev", f"*/shard-{stopped:02d}/wal-*", sticky=True)
    more, refused = await asyncio.to_thread(produce, Producer(settings), "after")
    assert {int(value.split()[0]) for value in more} == places[1 - stopped]
    assert {int(value.split()[0]) for value in refused} == places[stopped]
    found = await asyncio.to_thread(read_all, server.address, acked | more)
    assert found == Counter(acked | more)


async def test_a_commit_names_the_failed_partitions(server: KafkaServer, disk: SimDisk) -> None:
    places = by_shard(server)
    await asyncio.to_thread(produce, Producer({"bootstrap.servers": server.address, **SOON}), "before")
    disk.fail("pwritev", "*/shard-01/wal-*", sticky=True)

    def commit() -> tuple[set[int], set[int], dict[int, int]]:
        consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g", "socket.timeout.ms": 3000, **SOON})
        taken: set[int] = set()
        failed: set[int] = set()
        try:
            for partition in range(PARTITIONS):
                try:
                    consumer.commit(offsets=[TopicPartition("t", partition, 1)], asynchronous=False)
                    taken.add(partition)
                except KafkaException:
                    failed.add(partition)
            there = consumer.committed([TopicPartition("t", partition) for partition in range(PARTITIONS)], PATIENCE_S)
            return taken, failed, {each.partition: each.offset for each in there if each.offset >= 0}
        finally:
            consumer.close()

    taken, failed, there = await asyncio.to_thread(commit)
    assert (taken, failed) == (places[0], places[1])
    assert there == dict.fromkeys(places[0], 1)
