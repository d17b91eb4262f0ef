"""Requests of newer clients only: topics by their ids, several keys at once, several offsets to list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.protocol.consumer import FetchResponse

from broker.kafka import cluster
from broker.kafka.apis import APIS, ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.configs import ListConfigResourcesRequest, ListConfigResourcesResponse
from broker.kafka.messages.metadata import FindCoordinatorRequest, FindCoordinatorResponse
from broker.kafka.messages.share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from broker.kafka.messages.topics import (
    CreateTopicsCreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsDeleteTopicState,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from storage import NewRecord
from tests.kafka.asking import BY_ID, by_id, ranges
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_access import known
from tests.kafka.test_share_wire import ACCEPT, Member, add, put

KEYS = "all,mine:rw+d:mine."


def versions(api_key: ApiKey) -> range:
    return range(APIS[api_key].first, APIS[api_key].last + 1)


def creating(*names: str, dry: bool = False) -> CreateTopicsRequest:
    topics = [CreateTopicsCreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, validate_only=dry)


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
async def test_created_topic_has_an_id_in_the_answer(server: KafkaServer, version: int) -> None:
    wire = await server.connect()
    answer = await wire.ask(ApiKey.CREATE_TOPICS, version, creating("t"), CreateTopicsResponse)
    wanted = cluster.uuid_of(server.engine.topic("t")) if version >= 7 else cluster.NO_UUID
    assert [(each.error_code, each.topic_id) for each in answer.topics] == [(0, wanted)]


async def test_refused_topic_has_no_id(server: KafkaServer) -> None:
    wire = await server.connect()
    await server.engine.put_topic("there")
    for request in (creating("there"), creating("new", dry=True)):
        answer = await wire.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
        assert [each.topic_id for each in answer.topics] == [cluster.NO_UUID]


async def deleted(
    wire: Wire, *wanted: DeleteTopicsDeleteTopicState, version: int = 6
) -> list[tuple[int, str | None, bytes]]:
    request = DeleteTopicsRequest(topics=list(wanted))
    answer = await wire.ask(ApiKey.DELETE_TOPICS, version, request, DeleteTopicsResponse)
    for each in answer.responses:
        assert not each.error_code or each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED or each.error_message
    return [(each.error_code, each.name, each.topic_id) for each in answer.responses]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
async def test_topics_are_deleted_by_name_in_every_version(server: KafkaServer, version: int) -> None:
    await server.engine.put_topic("t")
    request = DeleteTopicsRequest(topic_names=["t"], topics=[DeleteTopicsDeleteTopicState(name="t")])
    wire = await server.connect()
    answer = await wire.ask(ApiKey.DELETE_TOPICS, version, request, DeleteTopicsResponse)
    assert [(each.error_code, each.name) for each in answer.responses] == [(0, "t")]
    assert "t" not in server.engine.catalog.topics


async def test_topics_are_deleted_by_id(server: KafkaServer) -> None:
    for name in ("a", "b"):
        await server.engine.put_topic(name)
    topic_id = cluster.uuid_of(server.engine.topic("a"))
    by_id = DeleteTopicsDeleteTopicState(topic_id=topic_id)
    wire = await server.connect()
    assert await deleted(wire, by_id) == [(0, "a", topic_id)]
    assert list(server.engine.catalog.topics) == ["b"]
    await server.engine.put_topic("a")  # a later topic of that name is another one
    assert await deleted(wire, by_id) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)]
    both, neither = DeleteTopicsDeleteTopicState(name="a", topic_id=topic_id), DeleteTopicsDeleteTopicState()
    assert [each[0] for each in await deleted(wire, both, neither)] == [ErrorCode.INVALID_REQUEST] * 2
    assert {*server.engine.catalog.topics} == {"a", "b"}


async def test_ids_do_not_reveal_topics_outside_the_prefixes(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="all,mine:rw+d:mine.,reads:r") as server:
        await server.engine.put_topic("other")
        topic_id = cluster.uuid_of(server.engine.topic("other"))
        by_id = DeleteTopicsDeleteTopicState(topic_id=topic_id)
        assert await deleted(await known(server, "mine"), by_id) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)]
        refused = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "other", topic_id)
        assert await deleted(await known(server, "reads"), by_id) == [refused]
        assert await deleted(await known(server, "all"), by_id) == [(0, "other", topic_id)]


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
async def test_a_coordinator_is_found_for_a_single_key_or_for_several_keys(server: KafkaServer, version: int) -> None:
    wire = await server.connect()
    here = ("127.0.0.1", server.port.number, 1)
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])
    answer = await wire.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse)
    if version < 4:
        assert (answer.host, answer.port, answer.node_id) == here
        assert answer.coordinators == []
    else:
        found = [(each.key, each.error_code, each.host, each.port, each.node_id) for each in answer.coordinators]
        assert found == [("g", 0, *here), ("h", 0, *here)]


@pytest.mark.parametrize("version", [3, 4, 6])
async def test_unknown_coordinator_type_is_an_error(server: KafkaServer, version: int) -> None:
    wire = await server.connect()
    request = FindCoordinatorRequest(key="g", key_type=9, coordinator_keys=["g"])
    answer = await wire.ask(ApiKey.FIND_COORDINATOR, version, request, FindCoordinatorResponse)
    one = answer if version < 4 else answer.coordinators[0]
    assert (one.error_code, one.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert "9" in (one.error_message or "")


async def test_resources_with_configs_are_listed(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys=KEYS) as server:
        for name in ("mine.a", "other"):
            await server.engine.put_topic(name)

        async def listed(key: str, version: int, *types: int) -> list[tuple[int, str]]:
            request = ListConfigResourcesRequest(resource_types=list(types))
            wire = await known(server, key)
            answer = await wire.ask(ApiKey.LIST_CONFIG_RESOURCES, version, request, ListConfigResourcesResponse)
            assert answer.error_code == 0
            return [(each.resource_type, each.resource_name) for each in answer.config_resources]

        assert await listed("all", 1) == [(2, "mine.a"), (2, "other"), (4, "1")]
        assert await listed("mine", 1) == [(2, "mine.a"), (4, "1")]
        assert await listed("all", 1, 2) == [(2, "mine.a"), (2, "other")]
        assert await listed("all", 1, 16) == []
        assert await listed("all", 0) == []  # client metrics, the only subject of the first version


# -- fetching by id --------------------------------------------------------------------------------------------------


async def fetched(wire: Wire, version: int) -> list[tuple[bytes, int, int, int]]:
    """For each partition: the id of its topic, its number, its error, and how many batches it has."""
    kind: Any = FetchResponse
    _, answer = await wire.answer()
    found = kind.decode(answer[1:], version=version)
    return [
        (
            topic.topic_id.bytes if topic.topic_id else bytes(16),
            one.partition_index,
            one.error_code,
            len(ranges(one.records or b"")),
        )
        for topic in found.responses
        for one in topic.partitions
    ]


@pytest.mark.parametrize("version", BY_ID)
async def test_records_are_fetched_by_topic_id(server: KafkaServer, version: int) -> None:
    for name in ("a", "b"):
        await server.engine.put_topic(name)
        await server.engine.append(name, [NewRecord(data=msgspec.Raw(b"1"))])
    a, b = (cluster.uuid_of(server.engine.topic(name)) for name in ("a", "b"))
    absent = a[:8] + (1 << 40).to_bytes(8, "big")
    wire = await server.connect()
    wire.send(ApiKey.FETCH, version, by_id(version, (b, 0, 0), (absent, 0, 0), (bytes(16), 0, 0), (a, 7, 0), (a, 0, 0)))
    assert await fetched(wire, version) == [
        (b, 0, 0, 1),
        (absent, 0, ErrorCode.UNKNOWN_TOPIC_ID, 0),
        (bytes(16), 0, ErrorCode.UNKNOWN_TOPIC_ID, 0),
        (a, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        (a, 0, 0, 1),
    ]


async def test_waiting_fetch_does_not_read_a_recreated_topic(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    first = cluster.uuid_of(server.engine.topic("t"))
    wire = await server.connect()
    wire.send(ApiKey.FETCH, 13, by_id(13, (first, 0, 0), max_wait_ms=60_000))
    await (await server.connect()).ask(
        ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g"), FindCoordinatorResponse
    )
    await server.engine.delete_topic("t")
    await server.engine.put_topic("t")
    await server.engine.append("t", [NewRecord(data=msgspec.Raw(b"1"))])
    assert await fetched(wire, 13) == [(first, 0, ErrorCode.UNKNOWN_TOPIC_ID, 0)]


async def test_a_fetch_by_id_reveals_no_topic_outside_the_prefixes(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="all,mine:rw:mine.,writer:w") as server:
        await server.engine.put_topic("other")
        other = cluster.uuid_of(server.engine.topic("other"))
        for key, error in (
            ("mine", ErrorCode.UNKNOWN_TOPIC_ID),
            ("writer", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            ("all", ErrorCode.NONE),
        ):
            wire = await known(server, key)
            wire.send(ApiKey.FETCH, 17, by_id(17, (other, 0, 0)))
            assert await fetched(wire, 17) == [(other, 0, error, 0)]


# -- share groups ----------------------------------------------------------------------------------------------------


async def described(wire: Wire, *groups: str) -> ShareGroupDescribeResponse:
    request = ShareGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=True)
    return await wire.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, request, ShareGroupDescribeResponse)


async def offsets(
    wire: Wire, group: str, version: int = 1, **topics: list[int]
) -> list[tuple[str, int, int, int, int]]:
    """For each partition: topic, number, error, first offset, lag."""
    asked = [DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in topics.items()]
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked or None)]
    )
    answer = await wire.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, request, DescribeShareGroupOffsetsResponse)
    [told] = answer.groups
    assert (told.group_id, told.error_code) == (group, 0)
    return [
        (topic.topic_name, each.partition_index, each.error_code, each.start_offset, each.lag)
        for topic in told.topics
        for each in topic.partitions
    ]


async def test_a_share_group_is_described_with_its_members(server: KafkaServer) -> None:
    await put(server, "q")
    wire = await server.connect()
    member = Member(server, wire, group="g")
    await member.heartbeat(0, "q")
    await member.take("q")
    [group, none] = (await described(wire, "g", "none")).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    [one] = group.members
    assert (one.client_id, one.client_host, one.subscribed_topic_names) == ("test", "/127.0.0.1", ["q"])
    [part] = one.assignment.topic_partitions
    assert (part.topic_id, part.topic_name) == (cluster.uuid_of(server.engine.topic("q")), "q")
    assert (none.error_code, none.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert "none" in (none.error_message or "")
    await member.heartbeat(-1)
    [group] = (await described(wire, "g")).groups
    assert (group.error_code, group.group_state, group.members) == (0, "Empty", [])


async def test_offsets_of_a_share_group_are_described(server: KafkaServer) -> None:
    await put(server, "q")
    await put(server, "r")
    await add(server, 5)
    wire = await server.connect()
    member = Member(server, wire, group="g")
    assert await member.take("q", most=2) == [(0, 1, 1)]
    assert await offsets(wire, "g") == [("q", 0, 0, 0, 5)]
    assert await offsets(wire, "g", 0) == [("q", 0, 0, 0, -1)]
    assert await member.say((0, 1, ACCEPT)) == (0, 0)
    assert await offsets(wire, "g", q=[0, 7], r=[0], absent=[0]) == [
        ("q", 0, 0, 2, 3),
        ("q", 7, 0, -1, -1),
        ("r", 0, 0, -1, -1),
        ("absent", 0, 0, -1, -1),
    ]


async def test_share_groups_of_others_are_not_shown(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys=KEYS) as server:
        await put(server, "other.q")
        await Member(server, await known(server, "all"), group="g").take("other.q")
        wire = await known(server, "mine")
        [group] = (await described(wire, "g")).groups
        assert (group.error_code, group.group_state) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Dead")
        request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g")])
        answer = await wire.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, request, DescribeShareGroupOffsetsResponse)
        assert [each.error_code for each in answer.groups] == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
