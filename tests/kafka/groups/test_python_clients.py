"""Groups of the two clients that are written in Python, alone and together in one group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.kafka.groups.kafka_python import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, Partition
from tests.kafka.groups.server import Server

PATIENCE_S = 20
TIMES: dict[str, Any] = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 100}


@pytest.fixture
async def aio(server: Server) -> AsyncIterator[Callable[..., Any]]:
    made: list[AIOKafkaConsumer] = []

    async def aio(group: str | None, *topics: str, **config: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=server.address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **(TIMES | config),
        )
        made.append(consumer)
        await consumer.start()
        return consumer

    yield aio
    for consumer in made:
        await consumer.stop()


async def read(consumer: AIOKafkaConsumer, records: int) -> list[str]:
    async with asyncio.timeout(PATIENCE_S):
        return [(await consumer.getone()).value.decode() for _ in range(records)]


async def test_members_of_aiokafka_share_read_commit_and_go_on(
    aio: Callable[..., Any], produce: Callable[..., None]
) -> None:
    for topic in ("a", "b"):
        await asyncio.to_thread(produce, topic, f"{topic}1", f"{topic}2")
    first = await aio("g", "a", "b")
    assert sorted(await read(first, 4)) == ["a1", "a2", "b1", "b2"]
    await first.commit({TopicPartition("a", 0): (1, "so far"), TopicPartition("b", 0): 2})
    second = await aio("g", "a", "b")
    async with asyncio.timeout(PATIENCE_S):
        while not len(first.assignment()) == len(second.assignment()) == 1:
            await asyncio.sleep(0.02)
    behind = first if TopicPartition("a", 0) in first.assignment() else second
    assert await read(behind, 1) == ["a2"]
    assert await first.committed(TopicPartition("b", 0)) == 2


@pytest.mark.one_cell("looks into the engine")
async def test_static_member_of_aiokafka_returns_to_its_generation(
    server: Server, aio: Callable[..., Any], produce: Callable[..., None]
) -> None:
    await asyncio.to_thread(produce, "a", "1")
    consumer = await aio("g", "a", group_instance_id="one")
    assert await read(consumer, 1) == ["1"]
    await consumer.stop()
    generation = server.broker.kafka_groups.describe("g").generation
    again = await aio("g", "a", group_instance_id="one")
    assert await read(again, 1) == ["1"]
    assert server.broker.kafka_groups.describe("g").generation == generation


async def test_a_consumer_without_subscription_commits_from_outside(
    aio: Callable[..., Any], produce: Callable[..., None]
) -> None:
    await asyncio.to_thread(produce, "a", "1", "2")
    consumer = await aio("g")
    consumer.assign([TopicPartition("a", 0)])
    assert await read(consumer, 1) == ["1"]
    await consumer.commit()
    await consumer.stop()
    again = await aio("g")
    again.assign([TopicPartition("a", 0)])
    assert await read(again, 1) == ["2"]


@pytest.fixture
def member2(server: Server) -> Iterator[Callable[..., KafkaConsumer]]:
    made: list[KafkaConsumer] = []

    def member2(group: str, *topics: str, **config: Any) -> KafkaConsumer:
        consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=server.address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=PATIENCE_S * 1000,
            **(TIMES | config),
        )
        made.append(consumer)
        return consumer

    yield member2
    for consumer in made:
        consumer.close(autocommit=False)


def test_member_of_kafka_python_reads_commits_and_continues(
    member2: Callable[..., KafkaConsumer], produce: Callable[..., None]
) -> None:
    produce("a", "1", "2", "3")
    first = member2("g", "a")
    assert next(first).value == b"1"
    first.commit({Partition("a", 0): OffsetAndMetadata(1, "so far", -1)})
    assert first.committed(Partition("a", 0), metadata=True).metadata == "so far"
    first.close(autocommit=False)
    second = member2("g", "a")
    assert [next(second).value, next(second).value] == [b"2", b"3"]


def test_the_admin_client_of_kafka_python_lists_describes_and_deletes(
    server: Server, member2: Callable[..., KafkaConsumer], produce: Callable[..., None]
) -> None:
    produce("a", "1")
    consumer = member2("g", "a", client_id="me")
    assert next(consumer).value == b"1"
    consumer.commit()
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    try:
        assert [(each["group_id"], each["protocol_type"]) for each in admin.list_groups()] == [("g", "consumer")]
        group = admin.describe_groups(["g"])["g"]
        assert group["group_state"] == "Stable"
        [one] = group["members"]
        assert one["client_id"] == "me"
        offsets = admin.list_group_offsets(["g"])
        assert offsets["g"][Partition("a", 0)].offset == 1
        consumer.close(autocommit=False)
        admin.delete_groups(["g"])
        assert admin.list_groups() == []
    finally:
        admin.close()


async def test_members_with_different_client_libraries_share_a_group(
    member: Callable[..., Any], aio: Callable[..., Any], produce: Callable[..., None]
) -> None:
    for topic in ("a", "b"):
        await asyncio.to_thread(produce, topic, topic)
    confluent = member("g", "a", "b", partition_assignment_strategy="roundrobin")
    other = await aio("g", "a", "b", partition_assignment_strategy=(RoundRobinPartitionAssignor,))
    async with asyncio.timeout(PATIENCE_S):
        while not len(other.assignment()) == len(confluent.assignment()) == 1:
            confluent.poll(0)
            await asyncio.sleep(0.02)
    theirs = {(each.topic, each.partition) for each in confluent.assignment()}
    assert theirs | {tuple(each) for each in other.assignment()} == {("a", 0), ("b", 0)}
