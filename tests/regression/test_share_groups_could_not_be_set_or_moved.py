"""Settings of share groups could be described but not set, and their offsets could be neither set nor deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import share as m
from storage import TopicConfig
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_group_settings import altered
from tests.kafka.test_share_wire import ACCEPT, RENEW, Member, add, known, member, put

RESET, LOCK = "share.auto.offset.reset", "share.record.lock.duration.ms"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    async with KafkaServer(tmp_path) as server:
        await put(server, "q")
        yield server


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "taken"),
    [
        ("earliest", [(0, 1, 1)]),
        ("latest", []),
        ("by_duration:PT1H", [(0, 1, 1)]),
        ("by_duration:PT0S", []),
    ],
)
async def test_a_group_starts_at_its_configured_offset_reset(
    server: KafkaServer, reset: str, taken: list[tuple[int, int, int]]
) -> None:
    wire = await server.connect()
    assert await altered(wire, "g", RESET, reset) == (0, None)
    await add(server, 2)
    worker = await member(server)
    assert await worker.take("q") == taken
    await add(server, 1)
    assert await worker.take("q") == [(2, 2, 1)]


async def test_an_offset_reset_applies_only_when_a_group_first_takes_a_queue(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path) as server:
        await put(server, "q", leases_durable=True)
        assert await altered(await server.connect(), "g", RESET, "latest") == (0, None)
        assert await (await member(server)).take("q") == []
        await add(server, 2)
    async with KafkaServer(tmp_path) as server:
        assert await (await member(server)).take("q") == [(0, 1, 1)]


async def test_the_offset_reset_of_a_group_does_not_move_other_groups(server: KafkaServer) -> None:
    assert await altered(await server.connect(), "other", RESET, "latest") == (0, None)
    await add(server, 1)
    assert await (await member(server)).take("q") == [(0, 0, 1)]
    assert (await (await member(server, "n", "other")).fetch("q")).responses[0].partitions[0].error_code != 0
    assert server.engine.queues.figures("q").in_flight == 1


async def test_a_member_holds_a_record_for_the_configured_time(server: KafkaServer) -> None:
    wire = await server.connect()
    await add(server, 1)
    worker = await member(server)
    answer = await worker.fetch("q")
    assert answer.acquisition_lock_timeout_ms == TopicConfig().lease_ms

    def left_ms() -> int:
        [job] = server.engine.queues.leases("q")
        assert job.deadline is not None
        return job.deadline - server.engine.now_ms()

    assert left_ms() <= TopicConfig().lease_ms
    assert await altered(wire, "g", LOCK, "600000") == (0, None)
    assert await worker.say((0, 0, RENEW)) == (0, 0)
    assert left_ms() > TopicConfig().lease_ms
    await add(server, 1)
    assert (await worker.fetch("q")).acquisition_lock_timeout_ms == 600_000
    assert [job.deadline - server.engine.now_ms() > 500_000 for job in server.engine.queues.leases("q") if job.deadline]


async def test_members_get_the_configured_heartbeat_interval_and_session_timeout(server: KafkaServer) -> None:
    wire = await server.connect()
    assert await altered(wire, "g", "share.heartbeat.interval.ms", "1000") == (0, None)
    assert await altered(wire, "g", "share.session.timeout.ms", "2000") == (0, None)
    worker = await member(server)
    assert (await worker.heartbeat(0, "q")).heartbeat_interval_ms == 1000
    shares = server.broker.kafka_shares
    assert [*shares.members.overdue(shares.now_ms() + 2001)] == [("g", "m")]
    assert [*shares.members.overdue(shares.now_ms() + 1000)] == []


# -- offsets -----------------------------------------------------------------------------------------------------------


async def moved(wire: Wire, offset: int, name: str = "q", group: str = "g", partition: int = 0) -> tuple[int, int]:
    """The error of the whole request, and that of the partition."""
    parts = [m.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)]
    topics = [m.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts)]
    request = m.AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
    told = await wire.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request, m.AlterShareGroupOffsetsResponse)
    assert bool(told.error_message) == bool(told.error_code not in (0, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return told.error_code, told.responses[0].partitions[0].error_code if told.responses else 0


async def forgotten(wire: Wire, name: str = "q", group: str = "g") -> tuple[int, int]:
    topics = [m.DeleteShareGroupOffsetsRequestTopic(topic_name=name)]
    request = m.DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)
    told = await wire.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, request, m.DeleteShareGroupOffsetsResponse)
    return told.error_code, told.responses[0].error_code if told.responses else 0


async def begun(server: KafkaServer) -> Wire:
    """Five jobs, of which the first is done, in a queue of a group without members."""
    await add(server, 5)
    worker = await member(server)
    assert await worker.take("q", most=1) == [(0, 0, 1)]
    assert await worker.say((0, 0, ACCEPT)) == (0, 0)
    return await server.connect()


@pytest.mark.parametrize(("offset", "taken"), [(0, [(1, 4, 1)]), (1, [(1, 4, 1)]), (3, [(3, 4, 1)]), (5, [])])
async def test_a_group_continues_at_the_set_offset(
    server: KafkaServer, offset: int, taken: list[tuple[int, int, int]]
) -> None:
    wire = await begun(server)
    assert await moved(wire, offset) == (0, 0)
    assert await (await member(server, "n")).take("q") == taken


async def test_records_skipped_by_a_set_offset_stay_skipped_after_a_restart(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path) as server:
        await put(server, "q")
        assert await moved(await begun(server), 3) == (0, 0)
    async with KafkaServer(tmp_path) as server:
        assert await (await member(server)).take("q") == [(3, 4, 1)]


async def test_a_queue_with_deleted_offsets_is_free_for_any_group(server: KafkaServer) -> None:
    wire = await begun(server)
    assert await altered(wire, "other", RESET, "latest") == (0, None)
    assert await forgotten(wire) == (0, 0)
    assert await forgotten(wire) == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
    assert await (await member(server, "n", "other")).take("q") == []


async def test_setting_an_offset_assigns_a_free_queue_to_the_group(server: KafkaServer) -> None:
    wire = await begun(server)
    await put(server, "new")
    await add(server, 2, "new")
    assert await moved(wire, 1, "new") == (0, 0)
    assert (await (await member(server, "n", "other")).fetch("new")).responses[0].partitions[0].error_code != 0
    assert await (await member(server)).take("new") == [(1, 1, 1)]


async def test_a_refused_change_of_offsets_moves_no_queue(server: KafkaServer) -> None:
    wire = await begun(server)
    await server.engine.put_topic("log")
    await put(server, "theirs")
    assert await (await member(server, "x", "them")).take("theirs") == []
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST
    assert await moved(wire, 0, group="none") == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
    assert await moved(wire, 6) == (0, invalid)
    assert await moved(wire, -1) == (0, invalid)
    assert await moved(wire, 0, partition=1) == (0, unknown)
    assert await moved(wire, 0, "nowhere") == (0, unknown)
    assert await moved(wire, 0, "log") == (0, invalid)
    assert await moved(wire, 0, "theirs") == (0, invalid)
    assert await forgotten(wire, "nowhere") == (0, unknown)
    assert await forgotten(wire, "theirs") == (0, 0)
    assert server.broker.kafka_shares.owners.owner(server.engine.topic("theirs")) == "them"
    worker = await member(server)
    assert (await worker.heartbeat(0, "q")).error_code == 0
    assert await moved(wire, 3) == (ErrorCode.NON_EMPTY_GROUP, 0)
    assert await forgotten(wire) == (ErrorCode.NON_EMPTY_GROUP, 0)
    assert server.engine.queues.figures("q").ready == 4


async def test_moving_a_group_needs_a_key_that_may_delete(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="all,worker:r+w,other::x.") as server:
        await put(server, "q")
        await add(server, 2)
        worker = await known(server, "worker")
        assert await Member(server, worker).take("q", most=1) == [(0, 0, 1)]
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await moved(worker, 1) == (0, denied)
        assert await forgotten(worker) == (0, denied)
        other = await known(server, "other")
        assert await moved(other, 1) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
        assert await forgotten(other) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
        assert await moved(await known(server, "all"), 1) == (0, 0)
