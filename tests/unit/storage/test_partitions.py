"""Partitions in the engine: addresses, Kafka's partitioner, and the rules for topics with several partitions."""

from __future__ import annotations

import pytest

from storage import Durability, ReadQuery, TopicConfig, TopicType
from storage.errors import InvalidRequest, LimitReached, TopicIncompatible, TopicNotEmpty, TopicNotFound
from storage.records.partitions import (
    MAX_PARTITIONS,
    address,
    is_address,
    murmur2,
    partition_of,
    partition_of_tags,
    split,
)
from storage.topics import partitioner
from tests.unit.storage.machine import Machine, record

THREE = TopicConfig(partitions=3)


@pytest.mark.parametrize(("p", "text"), [(0, "orders"), (1, "orders/1"), (1023, "orders/1023")])
def test_an_address_has_topic_and_partition(p: int, text: str) -> None:
    assert address("orders", p) == text
    assert split(text) == ("orders", p)
    assert is_address(text) == (p > 0)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # From Kafka's own tests, as signed numbers.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_by_kafka_clients(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % (1 << 32)
    assert partition_of(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_tags_of_a_batch_map_to_a_single_partition_or_are_refused() -> None:
    assert partition_of_tags([None, None], 5) is None
    assert partition_of_tags([None, "abc", "abc"], 5) == partition_of(b"abc", 5)
    with pytest.raises(InvalidRequest) as caught:
        partition_of_tags([None, "abc", "21"], 5)
    assert caught.value.detail == {"field": "records[2].tag"}


async def test_each_partition_has_its_own_seqs(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", THREE)
    assert engine.partitions("t") == 3
    for name in ("t", "t/1", "t/1", "t/2"):
        await engine.append(name, {"at": name})
    assert [engine.state(name).head_seq for name in ("t", "t/1", "t/2")] == [1, 2, 1]
    assert [record.body for record in (await engine.read("t/2", ReadQuery())).records] == [b'{"data":{"at":"t/2"}}']
    assert [state.topic for state in engine.topics()] == ["t"]
    with pytest.raises(TopicNotFound):
        engine.state("t/3")
    with pytest.raises(TopicNotFound):  # an address creates no topic
        await engine.append("t/3", 1)
    with pytest.raises(TopicNotFound):
        await engine.append("new/1", 1)


async def test_an_added_partition_accepts_records(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", THREE)
    await engine.append("t/2", 1)
    await engine.put_topic("t", TopicConfig(partitions=5, durability=Durability.FSYNC))
    assert engine.partitions("t") == 5
    assert {engine.state(address("t", p)).config.durability for p in range(5)} == {Durability.FSYNC}
    assert (await engine.append("t/4", 1)).first_seq == 1
    assert engine.state("t/2").head_seq == 1


async def test_a_smaller_partition_count_is_refused_and_an_omitted_count_is_kept(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", THREE)
    with pytest.raises(TopicIncompatible):
        await engine.put_topic("t", TopicConfig(partitions=2))
    state, made = await engine.put_topic("t", TopicConfig(ttl_ms=5), keep_partitions=True)
    assert (state.config.partitions, state.config.ttl_ms, made) == (3, 5, False)


async def test_partitions_survive_a_restart(machine: Machine) -> None:
    engine = await machine.start(wal_shards=3)
    await engine.put_topic("t", TopicConfig(partitions=4, durability=Durability.FSYNC))
    for p in range(4):
        await engine.append(address("t", p), p)
    engine = await machine.kill()
    assert engine.partitions("t") == 4
    assert [engine.state(address("t", p)).count for p in range(4)] == [1] * 4


async def test_all_partitions_are_deleted_with_their_topic(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", THREE)
    await engine.append("t/1", 1)
    with pytest.raises(TopicNotEmpty) as caught:
        await engine.delete_topic("t", if_empty=True)
    assert caught.value.detail == {"count": 1}
    assert await engine.delete_topic("t")
    assert (engine.catalog.by_id, engine.catalog.parts, engine.catalog.topics) == ({}, {}, {})
    assert engine.catalog.partitioned == set()


async def test_the_number_of_partitions_is_limited(machine: Machine) -> None:
    engine = await machine.start(max_partitions=4, max_topics=2)
    with pytest.raises(LimitReached) as caught:
        await engine.put_topic("t", TopicConfig(partitions=5))
    assert caught.value.detail == {"limit": "max_partitions", "max": 4}
    for wrong in (0, -1, MAX_PARTITIONS + 1):
        with pytest.raises(InvalidRequest) as refused:
            await engine.put_topic("t", TopicConfig(partitions=wrong))
        assert refused.value.detail == {"field": "partitions"}
    await engine.put_topic("t", TopicConfig(partitions=4))
    await engine.append("u", 1)  # partitions are not topics: there are two topics
    with pytest.raises(LimitReached) as caught:
        await engine.append("v", 1)
    assert caught.value.detail == {"limit": "max_topics", "max": 2}
    assert engine.catalog.size == 2


async def test_a_queue_with_several_partitions_is_refused(machine: Machine) -> None:
    engine = await machine.start()
    with pytest.raises(TopicIncompatible) as caught:
        await engine.put_topic("q", TopicConfig(type=TopicType.QUEUE, partitions=2))
    assert caught.value.detail == {"field": "partitions"}


async def test_a_partitioned_ephemeral_topic_keeps_its_records_after_a_change_to_fsync(machine: Machine) -> None:
    engine = await machine.start(wal_shards=2)
    await engine.put_topic("t", TopicConfig(partitions=2, durability=Durability.EPHEMERAL))
    await engine.append("t/1", 1)
    await engine.put_topic("t", TopicConfig(partitions=2, durability=Durability.FSYNC))
    engine = await machine.kill()
    assert [engine.state(name).count for name in ("t", "t/1")] == [0, 1]


async def test_a_change_of_class_returns_reserved_seqs(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.DISK))
    await engine.append("t", 1)
    await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
    engine = await machine.kill()
    result = await engine.read("t", ReadQuery())
    assert (len(result.records), result.tombstone, result.head_seq) == (1, None, 1)


async def test_writes_are_spread(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", THREE)
    turns = [(await partitioner.append(engine, "t", [record(1)])).partition for _ in range(4)]
    assert turns == [0, 1, 2, 0]
    tagged = await partitioner.append(engine, "t", [record(1, tag="abc")])
    assert (tagged.topic, tagged.partition) == ("t", partition_of(b"abc", 3))
    with pytest.raises(InvalidRequest):
        await partitioner.append(engine, "t", [record(1)], partition=3)
    assert engine.topic("t").routed == {}
