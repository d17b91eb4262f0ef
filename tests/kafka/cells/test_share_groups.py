"""Share groups over queues of several cells: one coordinator, and a session with each node that has a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import msgspec
import pytest
from confluent_kafka import ShareConsumer

from broker.auth import ANYBODY
from broker.kafka.apis import ApiKey
from broker.kafka.call import Peer
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)
from broker.kafka.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from broker.kafka.messages.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from storage import NewRecord, TopicConfig, TopicType
from tests.kafka.cells.several import CELLS, Several, name_of, several

HOME = 1
GROUP = name_of(HOME, "workers")
QUEUES = [name_of(cell, "jobs") for cell in range(CELLS)]
PATIENCE_S = 30


@pytest.fixture
async def cells(tmp_path: Path) -> AsyncIterator[Several]:
    """Three cells with a queue in each."""
    async with several(tmp_path) as found:
        for cell, name in enumerate(QUEUES):
            await found.servers[cell].engine.put_topic(name, TopicConfig(type=TopicType.QUEUE, lease_ms=600_000))
        yield found


async def add(cells: Several, count: int) -> None:
    for cell, name in enumerate(QUEUES):
        records = [NewRecord(data=msgspec.Raw(b"%d" % (100 * cell + number))) for number in range(count)]
        await cells.servers[cell].engine.append(name, records)


def in_flight(cells: Several) -> list[int]:
    found: list[int] = []
    for cell, name in enumerate(QUEUES):
        engine = cells.servers[cell].engine
        found.append(engine.queues.figures_of(engine.catalog.topics[name]).in_flight)
    return found


async def until(cells: Several, expected: list[int]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while in_flight(cells) != expected:
            await asyncio.sleep(0.05)


def work(address: str, count: int, *, close: bool) -> list[bytes]:
    """Take this many jobs with an unmodified client. Acknowledge them, and leave if `close`."""
    consumer = ShareConsumer({"bootstrap.servers": address, "group.id": GROUP})
    consumer.subscribe(QUEUES)
    found: list[bytes] = []
    end = monotonic() + PATIENCE_S
    while len(found) < count and monotonic() < end:
        for message in consumer.poll(0.5):
            assert message.error() is None, message.error()
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
    if close:
        consumer.poll(0.5)
        consumer.close()
    return found


async def heartbeat(cells: Several, at: int, epoch: int, member: str = "m") -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=QUEUES if epoch == 0 else None
    )
    return await cells.ask(at, ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, ShareGroupHeartbeatResponse)


async def test_a_stock_client_works_off_the_queues_of_all_cells(cells: Several) -> None:
    await add(cells, 5)
    address = cells.servers[2].address
    found = await asyncio.to_thread(work, address, 15, close=True)
    assert sorted(found, key=int) == [b"%d" % (100 * cell + number) for cell in range(CELLS) for number in range(5)]
    await until(cells, [0] * CELLS)
    owners = [
        cells.servers[cell].broker.kafka_shares.owners.owner(cells.servers[cell].engine.catalog.topics[name])
        for cell, name in enumerate(QUEUES)
    ]
    assert owners == [GROUP] * CELLS
    listed = [
        [
            each.group_id
            for each in (await cells.ask(at, ApiKey.LIST_GROUPS, 4, ListGroupsRequest(), ListGroupsResponse)).groups
        ]
        for at in range(CELLS)
    ]
    assert listed == [[], [GROUP], []]


async def test_only_the_home_cell_accepts_members_and_assigns_queues_of_all_cells(cells: Several) -> None:
    for at in (0, 2):
        assert (await heartbeat(cells, at, 0)).error_code == ErrorCode.NOT_COORDINATOR
    joined = await heartbeat(cells, HOME, 0)
    assert joined.error_code == 0
    assert joined.assignment is not None
    assert len(joined.assignment.topic_partitions) == CELLS
    request = ShareGroupDescribeRequest(group_ids=[GROUP])
    told = await cells.ask(HOME, ApiKey.SHARE_GROUP_DESCRIBE, 1, request, ShareGroupDescribeResponse)
    assigned = told.groups[0].members[0].assignment.topic_partitions
    assert [each.topic_name for each in assigned] == QUEUES
    # A cell that is away does not end an assignment.
    await cells.stop(2)
    again = await heartbeat(cells, HOME, joined.member_epoch)
    assert (again.error_code, again.member_epoch, again.assignment) == (0, joined.member_epoch, None)


async def test_the_jobs_of_a_leaving_member_become_available_in_all_cells(cells: Several) -> None:
    await add(cells, 1)
    joined = await heartbeat(cells, HOME, 0)
    assert joined.error_code == 0
    sessions = [cells.servers[cell].broker.kafka_shares for cell in range(CELLS)]
    for cell, name in enumerate(QUEUES):
        topic = cells.servers[cell].engine.catalog.topics[name]
        opened = sessions[cell].session(GROUP, "m", 0, _peer())
        assert not isinstance(opened, ErrorCode)
        assert len(await sessions[cell].claim(opened[0], topic, 1, 0)) == 1
    assert in_flight(cells) == [1] * CELLS
    assert (await heartbeat(cells, HOME, -1)).error_code == 0
    await until(cells, [0] * CELLS)


def _peer() -> Peer:
    return Peer(ANYBODY, ("127.0.0.1", 1), "127.0.0.1")


async def test_offsets_and_configs_of_a_group_reach_the_cells_of_its_queues(cells: Several) -> None:
    change = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=32,
                resource_name=GROUP,
                configs=[AlterConfigsAlterableConfig(name="share.auto.offset.reset", value="latest")],
            )
        ]
    )
    changed = await cells.ask(0, ApiKey.ALTER_CONFIGS, 2, change, AlterConfigsResponse)
    assert changed.responses[0].error_code == 0
    await add(cells, 3)
    for cell, name in enumerate(QUEUES):
        shares = cells.servers[cell].broker.kafka_shares
        await shares.look_up_config(GROUP)
        assert await shares.take(cells.servers[cell].engine.catalog.topics[name], GROUP) == GROUP
    asked = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)]
    )

    async def described() -> dict[str, tuple[int, int]]:
        answer = await cells.ask(HOME, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked, DescribeShareGroupOffsetsResponse)
        assert answer.groups[0].error_code == 0
        return {
            topic.topic_name: (topic.partitions[0].start_offset, topic.partitions[0].lag)
            for topic in answer.groups[0].topics
        }

    assert await described() == dict.fromkeys(QUEUES, (3, 0))  # it began after the existing jobs
    await add(cells, 3)
    move = AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name, partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=5)]
            )
            for name in QUEUES
        ],
    )
    moved = await cells.ask(HOME, ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, move, AlterShareGroupOffsetsResponse)
    assert [each.partitions[0].error_code for each in moved.responses] == [0] * CELLS
    assert await described() == dict.fromkeys(QUEUES, (5, 1))
    take = DeleteShareGroupOffsetsRequest(
        group_id=GROUP, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=QUEUES[2])]
    )
    taken = await cells.ask(HOME, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, take, DeleteShareGroupOffsetsResponse)
    assert [(each.topic_name, each.error_code) for each in taken.responses] == [(QUEUES[2], 0)]
    for at in (0, HOME):
        request = DeleteGroupsRequest(groups_names=[GROUP])
        gone = await cells.ask(at, ApiKey.DELETE_GROUPS, 2, request, DeleteGroupsResponse)
        assert gone.results[0].error_code == (0 if at == HOME else ErrorCode.NOT_COORDINATOR)
    assert [cells.servers[cell].broker.kafka_shares.owners.all() for cell in range(CELLS)] == [[], [], []]
