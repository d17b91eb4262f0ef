"""The shard with the groups' generations has stopped, or its disk is full: which calls fail and which still work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import groups as m
from storage import Durability, TopicConfig
from tests.kafka.asking import a_batch, fetch, produce
from tests.kafka.groups.test_calls import codes, commit, committing, joined, stable
from tests.kafka.server import PATIENCE_S, KafkaServer, Wire
from tests.support.sim_disk import SimDisk

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
FULL, STOPPED = "full", "stopped"


@pytest.fixture
async def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
async def server(disk: SimDisk) -> AsyncIterator[KafkaServer]:
    """Topic `a` is not on shard 0, and `filler` is."""
    given = {"wal_shards": 2, "wal_reserve_bytes": 1 << 16, "kafka_rebalance_delay_ms": 0, "kafka_min_session_ms": 1000}
    async with KafkaServer(Path("/broker"), fs=disk, **given) as server:
        await lay(server, "filler", 0)
        await lay(server, "a", 1)
        yield server


async def lay(server: KafkaServer, name: str, shard: int) -> None:
    """Make a topic whose log is there. Each new topic goes to another shard."""
    for _ in range(64):
        await server.engine.put_topic(name, TopicConfig(durability=Durability.FSYNC))
        if server.engine.topic(name).log.shard == shard:
            return
        await server.engine.delete_topic(name)
    raise AssertionError(f"no topic lies on shard {shard}")


async def fail(server: KafkaServer, disk: SimDisk, how: str) -> None:
    if how == STOPPED:
        disk.fail("pwritev", "*/shard-00/wal-*", sticky=True)
        return
    disk.capacity_bytes = disk.used_bytes
    wire = await server.connect()
    for _ in range(10_000):  # until nothing more fits
        if (await produce(wire, ("filler", 0, a_batch(b"x" * 30_000))))[0][0]:
            return
    raise AssertionError("it has no end")


async def heartbeat(wire: Wire, group: str, member: m.JoinGroupResponse) -> int:
    request = m.HeartbeatRequest(group_id=group, generation_id=member.generation_id, member_id=member.member_id)
    return (await wire.ask(ApiKey.HEARTBEAT, 4, request, m.HeartbeatResponse)).error_code


@pytest.mark.parametrize("how", [FULL, STOPPED])
async def test_the_first_member_after_a_failure_is_told_to_retry(server: KafkaServer, disk: SimDisk, how: str) -> None:
    if how == STOPPED:
        await fail(server, disk, how)
    else:
        disk.fail("pwritev", "*/shard-00/wal-*", errno=28, sticky=True)
    wire = await server.connect()
    assert [(await joined(wire, "g")).error_code for _ in range(2)] == [UNAVAILABLE] * 2
    request = m.DescribeGroupsRequest(groups=["g"])
    told = await wire.ask(ApiKey.DESCRIBE_GROUPS, 5, request, m.DescribeGroupsResponse)
    assert told.groups[0].group_state == "Dead"
    assert len(server.broker.kafka_groups) == 0


@pytest.mark.parametrize("how", [FULL, STOPPED])
async def test_an_existing_group_continues_and_no_new_group_forms(server: KafkaServer, disk: SimDisk, how: str) -> None:
    wire = await server.connect()
    assert (await produce(wire, ("a", 0, a_batch(b"1"))))[0][0] == 0
    member = await stable(wire, "g")
    await fail(server, disk, how)
    assert (await joined(wire, "other")).error_code == UNAVAILABLE
    for asked in ("g", "other", "g"):
        # A second member does not break the group either.
        assert (await joined(wire, asked, 5)).error_code == UNAVAILABLE
        assert await heartbeat(wire, "g", member) == 0
    assert [one.high_watermark for one in await fetch(wire, ("a", 0, 0))] == [1]
    described = server.broker.kafka_groups.describe("g")
    assert (described.state, described.generation, len(described.members)) == ("Stable", 1, 1)
    if how == STOPPED:  # its offsets are on the other shard
        committed = committing(("a", 0, 1), generation=1, member_id=member.member_id)
        assert codes(await commit(wire, committed)) == [("a", 0, 0)]


async def test_groups_form_again_when_the_shard_has_room(server: KafkaServer, disk: SimDisk) -> None:
    wire = await server.connect()
    member = await stable(wire, "g")
    await fail(server, disk, FULL)
    other = committing(("a", 0, 0), generation=1, member_id=member.member_id)
    assert codes(await commit(wire, other))[0][2] in (0, UNAVAILABLE)
    assert (await joined(wire, "other")).error_code == UNAVAILABLE
    disk.capacity_bytes = None
    async with asyncio.timeout(PATIENCE_S):
        while (answer := await joined(wire, "other")).error_code == UNAVAILABLE:
            await asyncio.sleep(0.02)
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert await heartbeat(wire, "g", member) == 0
    joining = asyncio.create_task(joined(await server.connect(), "g"))
    async with asyncio.timeout(PATIENCE_S):
        while await heartbeat(wire, "g", member) != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
    again = await joined(wire, "g", member_id=member.member_id)
    assert (again.error_code, again.generation_id, (await joining).generation_id) == (0, 2, 2)


async def test_failed_rebalance_answers_all_waiting_members(server: KafkaServer, disk: SimDisk) -> None:
    wire, other = await server.connect(), await server.connect()
    member = await stable(wire, "g")
    joining = asyncio.create_task(joined(other, "g"))
    async with asyncio.timeout(PATIENCE_S):
        while await heartbeat(wire, "g", member) != ErrorCode.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.01)
    disk.fail("pwritev", "*/shard-00/wal-*", sticky=True)
    again = await joined(wire, "g", member_id=member.member_id)
    assert [again.error_code, (await joining).error_code] == [UNAVAILABLE] * 2
    assert await heartbeat(wire, "g", member) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("how", [FULL, STOPPED])
async def test_a_deletion_is_done_or_answered_with_a_retriable_error(
    server: KafkaServer, disk: SimDisk, how: str
) -> None:
    wire = await server.connect()
    assert codes(await commit(wire, committing(("a", 0, 0)))) == [("a", 0, 0)]
    await fail(server, disk, how)
    request = m.DeleteGroupsRequest(groups_names=["g"])
    gone = await wire.ask(ApiKey.DELETE_GROUPS, 2, request, m.DeleteGroupsResponse)
    # Requests that free space are accepted on a full disk.
    assert gone.results[0].error_code == (0 if how == FULL else UNAVAILABLE)


async def test_a_client_waits_for_room_and_then_reads(server: KafkaServer, disk: SimDisk) -> None:
    wire = await server.connect()
    assert (await produce(wire, ("a", 0, a_batch(b"1"))))[0][0] == 0
    await fail(server, disk, FULL)
    waited = asyncio.Event()
    loop = asyncio.get_running_loop()

    def consume() -> bytes | None:
        consumer = Consumer(
            {
                "bootstrap.servers": server.address, "group.id": "g", "auto.offset.reset": "earliest",
                "retry.backoff.ms": 20, "log_level": 0,
            }
        )  # fmt: skip
        try:
            consumer.subscribe(["a"])
            assert consumer.poll(1.0) is None
            loop.call_soon_threadsafe(waited.set)
            message = consumer.poll(PATIENCE_S)
            return None if message is None else message.value()
        finally:
            consumer.close()

    reading = asyncio.create_task(asyncio.to_thread(consume))
    await asyncio.wait([asyncio.ensure_future(waited.wait()), reading], return_when=asyncio.FIRST_COMPLETED)
    disk.capacity_bytes = None
    assert await reading == b"1"
