"""Topics of a set of cells: whichever node a client asks, it finds all topics, and its requests reach their cells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from broker.kafka.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopicRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from broker.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsDeleteTopicState,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.kafka.asking import a_batch, fetch, produce
from tests.kafka.cells.several import CELLS, Several, log_in, name_of, several
from tests.kafka.cells.topics import NAMES, create

_NO_ID = bytes(16)


async def _metadata(cells: Several, at: int, names: list[str] | None, *, makes: bool = False) -> MetadataResponse:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=makes)
    return await cells.ask(at, ApiKey.METADATA, 12, request, MetadataResponse)


async def test_every_node_tells_all_nodes_and_the_leaders_of_all_topics(cells: Several) -> None:
    assert await create(cells, NAMES) == [0] * CELLS
    for at in range(CELLS):
        for names in (NAMES, None):
            found = await _metadata(cells, at, names)
            assert [(each.node_id, each.port) for each in found.brokers] == [
                (cell + 1, port) for cell, port in enumerate(cells.ports)
            ]
            assert found.cluster_id == "a-set"
            assert {each.name: [part.leader_id for part in each.partitions] for each in found.topics} == {
                name: [cell + 1, (cell + 1) % CELLS + 1] for cell, name in enumerate(NAMES)
            }
        by_id = MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=each.topic_id) for each in found.topics]
        )
        again = await cells.ask(at, ApiKey.METADATA, 12, by_id, MetadataResponse)
        assert [each.name for each in again.topics] == [each.name for each in found.topics]
        assert [name for name in (each.name for each in found.topics) if name] == sorted(NAMES)
        told = await cells.ask(at, ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest(), DescribeClusterResponse)
        assert [each.broker_id for each in told.brokers] == [1, 2, 3]


async def test_a_topic_that_a_client_names_is_made_in_its_own_cell(cells: Several) -> None:
    for at in range(CELLS):
        name = name_of((at + 1) % CELLS, "made")
        found = await _metadata(cells, at, [name], makes=True)
        assert found.topics[0].partitions[0].leader_id == (at + 1) % CELLS + 1
        assert [name in cells.servers[cell].engine.catalog.topics for cell in range(CELLS)] == [
            cell == (at + 1) % CELLS for cell in range(CELLS)
        ]


async def test_only_the_leader_accepts_and_returns_records(cells: Several) -> None:
    await create(cells, NAMES)
    for cell, name in enumerate(NAMES):
        for at in range(CELLS):
            wire = await cells.wire(at)
            expected = 0 if at == cell else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await produce(wire, (name, 0, a_batch(b"x"))))[0][0] == expected
            assert (await fetch(wire, (name, 0, 0)))[0].error_code == expected
            asked = ListOffsetsRequest(
                topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
            )
            listed = await cells.ask(at, ApiKey.LIST_OFFSETS, 5, asked, ListOffsetsResponse)
            assert listed.topics[0].partitions[0].error_code == expected


async def test_administration_reaches_the_cell_of_each_topic(cells: Several) -> None:
    await create(cells, NAMES)
    assert await create(cells, NAMES, at=1) == [ErrorCode.TOPIC_ALREADY_EXISTS] * CELLS
    grow = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=5) for name in NAMES])
    grown = await cells.ask(2, ApiKey.CREATE_PARTITIONS, 3, grow, CreatePartitionsResponse)
    assert [(each.name, each.error_code) for each in grown.results] == [(name, 0) for name in NAMES]
    change = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[AlterConfigsAlterableConfig(name="retention.ms", value="1234")],
            )
            for name in NAMES
        ]
    )
    changed = await cells.ask(1, ApiKey.ALTER_CONFIGS, 2, change, AlterConfigsResponse)
    assert [each.error_code for each in changed.responses] == [0] * CELLS
    look = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=name) for name in NAMES]
        + [DescribeConfigsResource(resource_type=4, resource_name=str(node)) for node in (1, 2, 3)]
    )
    looked = await cells.ask(0, ApiKey.DESCRIBE_CONFIGS, 4, look, DescribeConfigsResponse)
    values = [{each.name: each.value for each in result.configs} for result in looked.results]
    assert [each["retention.ms"] for each in values[:CELLS]] == ["1234"] * CELLS
    assert [each["broker.id"] for each in values[CELLS:]] == ["1", "2", "3"]
    for cell, name in enumerate(NAMES):
        await produce(await cells.wire(cell), (name, 0, a_batch(b"a", b"b")))
    cut = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
            for name in NAMES
        ]
    )
    shorter = await cells.ask(1, ApiKey.DELETE_RECORDS, 2, cut, DeleteRecordsResponse)
    assert [each.partitions[0].low_watermark for each in shorter.topics] == [1] * CELLS
    resources = await cells.ask(
        2, ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(), ListConfigResourcesResponse
    )
    assert sorted(each.resource_name for each in resources.config_resources) == sorted([*NAMES, "1", "2", "3"])
    ids = {each.name: each.topic_id for each in (await _metadata(cells, 0, None)).topics}
    by_name = DeleteTopicsRequest(topics=[DeleteTopicsDeleteTopicState(name=NAMES[1], topic_id=_NO_ID)])
    assert [
        each.error_code
        for each in (await cells.ask(0, ApiKey.DELETE_TOPICS, 6, by_name, DeleteTopicsResponse)).responses
    ] == [0]
    by_id = DeleteTopicsRequest(topics=[DeleteTopicsDeleteTopicState(name=None, topic_id=ids[NAMES[2]])])
    gone = await cells.ask(0, ApiKey.DELETE_TOPICS, 6, by_id, DeleteTopicsResponse)
    assert [(each.name, each.error_code) for each in gone.responses] == [(NAMES[2], 0)]
    old = DeleteTopicsRequest(topic_names=[NAMES[0]])
    assert (await cells.ask(2, ApiKey.DELETE_TOPICS, 4, old, DeleteTopicsResponse)).responses[0].error_code == 0
    assert (await _metadata(cells, 1, None)).topics == []


async def test_pages_of_partitions_cover_all_cells_once(cells: Several) -> None:
    names = sorted(name_of(cell, stem) for cell in range(CELLS) for stem in ("a", "b", "c"))
    await create(cells, names, partitions=3)
    for asked in ([], names):
        found: list[tuple[str | None, int, int]] = []
        cursor = None
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[DescribeTopicPartitionsTopicRequest(name=name) for name in asked],
                response_partition_limit=4,
                cursor=cursor,
            )
            page = await cells.ask(1, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)
            assert sum(len(topic.partitions) for topic in page.topics) <= 4
            found += [
                (topic.name, part.partition_index, part.leader_id) for topic in page.topics for part in topic.partitions
            ]
            if page.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsCursor(
                topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
            )
        leaders = {name: cell + 1 for cell in range(CELLS) for stem in "abc" for name in [name_of(cell, stem)]}
        assert found == [
            (name, number, (leaders[name] - 1 + number) % CELLS + 1) for name in names for number in range(3)
        ]


async def test_a_cell_that_is_away_costs_only_its_own_topics(cells: Several) -> None:
    await create(cells, NAMES)
    await cells.stop(2)
    found = await _metadata(cells, 0, NAMES)
    assert [each.error_code for each in found.topics] == [0, 0, ErrorCode.LEADER_NOT_AVAILABLE]
    # A list without its topics would say that they were deleted, so the client gets none.
    wire = await cells.servers[0].connect()
    wire.send(ApiKey.METADATA, 4, b"\xff\xff\xff\xff\0")
    await wire.ended()
    # A request that changes something waits for the cell.
    making = asyncio.create_task(create(cells, [name_of(2, "later")], at=1))
    await asyncio.sleep(0.2)
    assert not making.done()
    await cells.start(2)
    assert await making == [0]
    assert [each.name for each in (await _metadata(cells, 0, None)).topics] == sorted([*NAMES, name_of(2, "later")])


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("all", [0, 0]),
        ("reads", [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2),
        ("orders", [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]),
    ],
)
async def test_the_cell_of_a_topic_judges_by_the_key_of_the_client(
    tmp_path: Path, key: str, expected: list[int]
) -> None:
    async with several(tmp_path, api_keys="all,reads:read,orders:read+write+admin:orders") as cells:
        for at in range(CELLS):
            await log_in(cells, at, key)
            names = [name_of((at + 1) % CELLS, "orders"), name_of((at + 1) % CELLS, "audit")]
            assert await create(cells, names, at=at) == expected
            told = await _metadata(cells, at, names)
            allowed = ErrorCode.TOPIC_AUTHORIZATION_FAILED if key == "orders" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [each.error_code for each in told.topics] == [
                0 if not expected[0] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0 if not expected[1] else allowed
            ]  # fmt: skip


async def test_long_lists_of_names_are_answered_in_their_order(cells: Several) -> None:
    names = [f"many-{number}" for number in range(600)]
    assert await create(cells, names, partitions=1) == [0] * len(names)
    for asked in (names[::-1], None):
        found = await _metadata(cells, 1, asked)
        assert [each.name for each in found.topics] == (asked or sorted(names))
        assert {each.error_code for each in found.topics} == {0}


async def test_each_node_names_itself_as_the_controller(cells: Several) -> None:
    assert [(await _metadata(cells, at, [])).controller_id for at in range(CELLS)] == [at + 1 for at in range(CELLS)]


async def test_partitions_of_a_topic_whose_cell_is_away_are_named_as_they_were(cells: Several) -> None:
    """Without them, the leader of a group would assign none."""
    await create(cells, NAMES, partitions=CELLS)
    before = (await _metadata(cells, 0, NAMES)).topics
    await cells.stop(2)
    assert (await _metadata(cells, 0, NAMES)).topics == before
    assert [len(each.partitions) for each in before] == [CELLS] * CELLS
    # Another one has not been told of it, and asks.
    assert (await _metadata(cells, 1, NAMES)).topics == before
    # What it got so it does not pass on.
    await cells.stop(0)
    await cells.start(0)
    assert (await _metadata(cells, 0, NAMES)).topics[2].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await cells.start(2)
    assert (await _metadata(cells, 0, NAMES)).topics == before
    await cells.ask(
        1,
        ApiKey.DELETE_TOPICS,
        4,
        DeleteTopicsRequest(topic_names=[NAMES[2]]),
        DeleteTopicsResponse,
    )
    assert (await _metadata(cells, 0, NAMES)).topics[2].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await cells.stop(2)
    assert (await _metadata(cells, 0, NAMES)).topics[2].error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_what_is_remembered_of_a_topic_needs_permission(tmp_path: Path) -> None:
    async with several(tmp_path, api_keys="all,other:read:other") as cells:
        await log_in(cells, 0, "all")
        await create(cells, NAMES)
        assert (await _metadata(cells, 0, NAMES)).topics[2].error_code == 0
        await cells.stop(2)
        assert (await _metadata(cells, 0, NAMES)).topics[2].error_code == 0
        await cells.forget(0)
        await log_in(cells, 0, "other")
        assert (await _metadata(cells, 0, NAMES)).topics[2].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
