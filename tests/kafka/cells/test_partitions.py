"""Partitions of one topic in several cells: each has its own leader."""

from __future__ import annotations

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsDeleteTopicState,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeLogDirsDescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from broker.kafka.names import consumer_name
from tests.kafka.asking import a_batch, by_id, fetch, fetched, produce
from tests.kafka.cells.several import CELLS, Several, name_of
from tests.kafka.cells.topics import create

#: A version of Fetch that names topics by their ids.
BY_ID = 13
HOME = 1
PARTITIONS = 4
TOPIC = name_of(HOME, "spread")
GROUP = name_of(0, "group")


def cell_of(partition: int) -> int:
    return (HOME + partition) % CELLS


async def described(cells: Several, at: int) -> tuple[bytes, list[int]]:
    """The topic's id, and the leaders of its partitions."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    [found] = (await cells.ask(at, ApiKey.METADATA, 12, request, MetadataResponse)).topics
    assert found.error_code == 0
    return found.topic_id, [each.leader_id for each in found.partitions]


async def test_each_leader_takes_and_gives_the_records_of_its_partitions(cells: Several) -> None:
    assert await create(cells, [TOPIC], at=0, partitions=PARTITIONS) == [0]
    for at in range(CELLS):
        topic_id, leaders = await described(cells, at)
        assert leaders == [cell_of(partition) + 1 for partition in range(PARTITIONS)]
        for partition in range(PARTITIONS):
            wire = await cells.wire(at)
            expected = 0 if at == cell_of(partition) else ErrorCode.NOT_LEADER_OR_FOLLOWER
            [(code, _, _)] = await produce(wire, (TOPIC, partition, a_batch(b"%d" % partition)))
            assert code == expected
            [read] = await fetch(wire, (TOPIC, partition, 0))
            assert read.error_code == expected
            if not expected:
                assert read.high_watermark == 1
                wire.send(ApiKey.FETCH, BY_ID, by_id(BY_ID, (topic_id, partition, 0)))
                [same] = await fetched(wire, BY_ID)
                assert (same.error_code, same.high_watermark) == (0, 1)


async def test_each_node_says_how_large_its_partitions_are(cells: Several) -> None:
    assert await create(cells, [TOPIC], at=0, partitions=PARTITIONS) == [0]
    for partition in range(PARTITIONS):
        await produce(await cells.wire(cell_of(partition)), (TOPIC, partition, a_batch(b"%d" % partition)))
    named = DescribeLogDirsRequest(topics=[DescribeLogDirsDescribableLogDirTopic(topic=TOPIC, partitions=[0, 1, 2, 3])])
    for at in range(CELLS):
        for request in (DescribeLogDirsRequest(topics=None), named):
            found = await cells.ask(at, ApiKey.DESCRIBE_LOG_DIRS, 4, request, DescribeLogDirsResponse)
            [topic] = found.results[0].topics
            assert topic.name == TOPIC
            here = [partition for partition in range(PARTITIONS) if cell_of(partition) == at]
            assert [each.partition_index for each in topic.partitions] == here
            assert all(each.partition_size for each in topic.partitions)


async def test_any_node_deletes_records_of_all_partitions(cells: Several) -> None:
    await create(cells, [TOPIC], partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        await produce(await cells.wire(cell_of(partition)), (TOPIC, partition, a_batch(b"a", b"b", b"c")))
    for at in range(CELLS):
        parts = [DeleteRecordsPartition(partition_index=each, offset=at + 1) for each in range(PARTITIONS)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=parts)])
        answer = await cells.ask(at, ApiKey.DELETE_RECORDS, 2, request, DeleteRecordsResponse)
        assert [(each.error_code, each.low_watermark) for each in answer.topics[0].partitions] == [
            (0, at + 1)
        ] * PARTITIONS


async def test_offsets_are_kept_in_the_cells_of_the_partitions(cells: Several) -> None:
    await create(cells, [TOPIC], partitions=PARTITIONS)
    numbers = [*range(PARTITIONS), PARTITIONS]
    parts = [OffsetCommitRequestPartition(partition_index=each, committed_offset=10 + each) for each in numbers]
    commit = OffsetCommitRequest(group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)])
    done = await cells.ask(0, ApiKey.OFFSET_COMMIT, 8, commit, OffsetCommitResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in done.topics[0].partitions] == [0] * PARTITIONS + [unknown]
    name = consumer_name(GROUP)
    for partition in range(PARTITIONS):
        where = TOPIC if not partition else f"{TOPIC}/{partition}"
        for at in range(CELLS):
            topic = cells.servers[at].engine.catalog.topics.get(where)
            assert (topic is not None and name in topic.log.consumers.by_name) == (at == cell_of(partition))
    for topics in ([OffsetFetchRequestTopics(name=TOPIC, partition_indexes=numbers[:-1])], None):
        ask = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
        [found] = (await cells.ask(0, ApiKey.OFFSET_FETCH, 8, ask, OffsetFetchResponse)).groups
        offsets = {each.partition_index: each.committed_offset for each in found.topics[0].partitions}
        assert offsets == {partition: 10 + partition for partition in range(PARTITIONS)}
    some = [OffsetDeleteRequestPartition(partition_index=each) for each in (1, 2)]
    away = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=some)])
    gone = await cells.ask(0, ApiKey.OFFSET_DELETE, 0, away, OffsetDeleteResponse)
    assert [each.error_code for each in gone.topics[0].partitions] == [0, 0]


async def test_a_topic_is_not_made_or_deleted_while_one_of_its_cells_is_away(cells: Several) -> None:
    await create(cells, [TOPIC], partitions=PARTITIONS)
    away = cell_of(1)
    await cells.stop(away)
    other = name_of(HOME, "other")
    assert (await create(cells, [other], at=HOME, partitions=PARTITIONS))[0] != 0
    assert await create(cells, [name_of(HOME, "narrow")], at=HOME, partitions=1) == [0]
    request = DeleteTopicsRequest(topics=[DeleteTopicsDeleteTopicState(name=TOPIC)])
    answer = await cells.ask(HOME, ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse)
    assert answer.responses[0].error_code != 0
    await cells.start(away)
    assert (await described(cells, away))[1] == [cell_of(partition) + 1 for partition in range(PARTITIONS)]
    [(code, _, _)] = await produce(await cells.wire(away), (TOPIC, 1, a_batch(b"a")))
    assert code == 0
    assert await create(cells, [other], at=HOME, partitions=PARTITIONS) == [0]
    answer = await cells.ask(HOME, ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse)
    assert answer.responses[0].error_code == 0
    for server in cells.servers.values():
        assert not [each for each in server.engine.catalog.by_id.values() if each.title == TOPIC]
