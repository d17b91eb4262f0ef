"""Calls of groups and offsets in every listed version, and with keys that do not cover all of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.codec.schema import encode
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import groups as m
from broker.kafka.messages import offsets as o
from broker.kafka.messages.session import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from storage import Durability, TopicConfig, TopicType
from tests.kafka.server import KafkaServer, Wire

TIMES = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
SMALL = {"wal_shards": 1, "wal_file_bytes": 1 << 20, "wal_reserve_bytes": 1 << 16}
PROTOCOLS = [m.JoinGroupRequestProtocol(name="range", metadata=b"mine")]


@pytest.fixture
async def wired(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    async with KafkaServer(tmp_path, kafka_rebalance_delay_ms=0, **SMALL) as server:
        await server.engine.put_topic("a")
        await server.engine.append("a", b"1")
        yield server


def versions(api_key: ApiKey) -> range:
    return range(APIS[api_key].first, APIS[api_key].last + 1)


async def joined(wire: Wire, group: str, version: int = 3, **changes: Any) -> m.JoinGroupResponse:
    """With the additional round trip that newer versions require."""
    fields = {**TIMES, "member_id": "", "protocol_type": "consumer", "protocols": PROTOCOLS, **changes}
    asked = m.JoinGroupRequest(group_id=group, **fields)
    answer = await wire.ask(ApiKey.JOIN_GROUP, version, asked, m.JoinGroupResponse)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= 4
        asked.member_id = answer.member_id
        answer = await wire.ask(ApiKey.JOIN_GROUP, version, asked, m.JoinGroupResponse)
    return answer


async def stable(wire: Wire, group: str) -> m.JoinGroupResponse:
    answer = await joined(wire, group)
    request = m.SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[m.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")],
    )
    synced = await wire.ask(ApiKey.SYNC_GROUP, 3, request, m.SyncGroupResponse)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    return answer


# -- every version -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
async def test_every_version_of_join(wired: KafkaServer, version: int) -> None:
    answer = await joined(await wired.connect(), "g", version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("test-")
    assert [(each.member_id, each.metadata) for each in answer.members] == [(answer.member_id, b"mine")]
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert not answer.skip_assignment


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
async def test_every_version_of_sync(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    answer = await joined(wire, "g")
    request = m.SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=answer.member_id,
        assignments=[m.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")],
    )
    synced = await wire.ask(ApiKey.SYNC_GROUP, version, request, m.SyncGroupResponse)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert (synced.protocol_type, synced.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize(("type_", "name"), [("connect", "range"), ("consumer", "sticky"), (None, "sticky")])
async def test_sync_with_another_protocol_is_refused(wired: KafkaServer, type_: str | None, name: str | None) -> None:
    wire = await wired.connect()
    answer = await joined(wire, "g")
    request = m.SyncGroupRequest(
        group_id="g", generation_id=1, member_id=answer.member_id, protocol_type=type_, protocol_name=name
    )
    told = await wire.ask(ApiKey.SYNC_GROUP, 5, request, m.SyncGroupResponse)
    assert (told.error_code, told.protocol_name) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, None)
    request.protocol_type, request.protocol_name = "consumer", "range"
    assert (await wire.ask(ApiKey.SYNC_GROUP, 5, request, m.SyncGroupResponse)).error_code == 0


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
async def test_every_version_of_heartbeat(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    answer = await stable(wire, "g")
    request = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=answer.member_id)
    assert (await wire.ask(ApiKey.HEARTBEAT, version, request, m.HeartbeatResponse)).error_code == 0
    request.generation_id = 2
    told = await wire.ask(ApiKey.HEARTBEAT, version, request, m.HeartbeatResponse)
    assert told.error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
async def test_every_version_of_leave(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    answer = await stable(wire, "g")
    ids = (answer.member_id, "stranger")
    request = m.LeaveGroupRequest(
        group_id="g", member_id=ids[0], members=[m.LeaveGroupMemberIdentity(member_id=each) for each in ids]
    )
    told = await wire.ask(ApiKey.LEAVE_GROUP, version, request, m.LeaveGroupResponse)
    assert told.error_code == 0
    if version >= 3:
        assert [(each.member_id, each.error_code) for each in told.members] == [
            (ids[0], 0),
            (ids[1], ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    assert wired.broker.kafka_groups.describe("g").state == "Empty"


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
async def test_every_version_of_describe(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    answer = await stable(wire, "g")
    request = m.DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=True)
    told = await wire.ask(ApiKey.DESCRIBE_GROUPS, version, request, m.DescribeGroupsResponse)
    [group, none] = told.groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    [one] = group.members
    assert (one.member_id, one.client_id, one.client_host) == (answer.member_id, "test", "/127.0.0.1")
    assert (one.member_metadata, one.member_assignment) == (b"mine", b"all")
    not_found = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (none.error_code, none.group_state, none.members) == (not_found, "Dead", [])
    assert (none.error_message is None) is (version < 6)
    assert group.authorized_operations == (sum(1 << bit for bit in (3, 6, 8, 10, 11)) if version >= 3 else -2147483648)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
async def test_every_version_of_list(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    await stable(wire, "g")
    request = m.ListGroupsRequest(states_filter=["Empty"])
    told = await wire.ask(ApiKey.LIST_GROUPS, version, request, m.ListGroupsResponse)
    wanted = [] if version >= 4 else [("g", "consumer")]
    assert [(each.group_id, each.protocol_type) for each in told.groups] == wanted
    request.states_filter = ["STABLE"]
    told = await wire.ask(ApiKey.LIST_GROUPS, version, request, m.ListGroupsResponse)
    assert [each.group_state for each in told.groups] == ["Stable" if version >= 4 else ""]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
async def test_every_version_of_delete(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    await stable(wire, "g")
    await wired.broker.kafka_groups.admit_commit("h", "", -1, None)
    request = m.DeleteGroupsRequest(groups_names=["g", "h", "none", ""])
    told = await wire.ask(ApiKey.DELETE_GROUPS, version, request, m.DeleteGroupsResponse)
    assert [(each.group_id, each.error_code) for each in told.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("h", 0),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
    ]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
async def test_every_version_of_commit(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    answer = await stable(wire, "g")
    request = committing(("a", 0, 1), ("a", 3, 1), ("none", 0, 0), generation=1, member_id=answer.member_id)
    told = await wire.ask(ApiKey.OFFSET_COMMIT, version, request, o.OffsetCommitResponse)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(told) == [("a", 0, 0), ("a", 3, unknown), ("none", 0, unknown)]
    assert wired.broker.kafka_offsets.all("g") == [("a", 0, 1, "meta", -1)]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
async def test_every_version_of_fetch(wired: KafkaServer, version: int) -> None:
    wire = await wired.connect()
    await commit(wire, committing(("a", 0, 1)))
    for named in (True, False):
        if version == 1 and not named:
            continue  # it is not possible to ask for all of them
        topics, newer = [o.OffsetFetchRequestTopic(name="a", partition_indexes=[0, 1])], None
        if named:
            newer = [o.OffsetFetchRequestTopics(name="a", partition_indexes=[0, 1])]
        request = o.OffsetFetchRequest(
            group_id="g",
            topics=topics if named else None,
            groups=[
                o.OffsetFetchRequestGroup(group_id="g", topics=newer),
                o.OffsetFetchRequestGroup(group_id="", topics=newer),
            ],
        )
        told = await wire.ask(ApiKey.OFFSET_FETCH, version, request, o.OffsetFetchResponse)
        found: Any = told.topics
        if version >= 8:
            assert [each.error_code for each in told.groups] == [0, ErrorCode.INVALID_GROUP_ID]
            found = told.groups[0].topics
        assert [
            (each.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
            for each in found
            for p in each.partitions
        ] == [("a", 0, 1, "meta", 0), ("a", 1, -1, "", 0)][: 2 if named else 1]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
@pytest.mark.parametrize("offset", [0, 1, 99, (1 << 63) - 1, -1, -2, -1001, -(1 << 63)])
async def test_any_offset_is_committed_and_fetched_with_its_epoch(
    wired: KafkaServer, version: int, offset: int
) -> None:
    wire = await wired.connect()
    request = committing(("a", 0, offset))
    request.topics[0].partitions[0].committed_leader_epoch = 0
    assert codes(await wire.ask(ApiKey.OFFSET_COMMIT, 8, request, o.OffsetCommitResponse)) == [("a", 0, 0)]
    fetch = o.OffsetFetchRequest(
        group_id="g",
        topics=[o.OffsetFetchRequestTopic(name="a", partition_indexes=[0])],
        groups=[
            o.OffsetFetchRequestGroup(
                group_id="g", topics=[o.OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
            )
        ],
    )
    told: Any = await wire.ask(ApiKey.OFFSET_FETCH, version, fetch, o.OffsetFetchResponse)
    [found] = (told.groups[0] if version >= 8 else told).topics[0].partitions
    assert (found.committed_offset, found.metadata) == (offset, "meta")
    assert found.committed_leader_epoch == (0 if version >= 5 else -1)


async def test_the_first_version_of_fetch_has_the_error_of_the_whole_in_each_partition(wired: KafkaServer) -> None:
    request = o.OffsetFetchRequest(topics=[o.OffsetFetchRequestTopic(name="a", partition_indexes=[0])])
    told = await (await wired.connect()).ask(ApiKey.OFFSET_FETCH, 1, request, o.OffsetFetchResponse)
    assert told.topics[0].partitions[0].error_code == ErrorCode.INVALID_GROUP_ID


async def test_offsets_of_an_empty_group_can_be_deleted(wired: KafkaServer) -> None:
    wire = await wired.connect()
    await commit(wire, committing(("a", 0, 1)))

    async def delete(group: str) -> o.OffsetDeleteResponse:
        parts = [o.OffsetDeleteRequestPartition(partition_index=each) for each in (0, 9)]
        request = o.OffsetDeleteRequest(group_id=group, topics=[o.OffsetDeleteRequestTopic(name="a", partitions=parts)])
        return await wire.ask(ApiKey.OFFSET_DELETE, 0, request, o.OffsetDeleteResponse)

    assert (await delete("none")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    answer = await stable(wire, "g")
    assert (await delete("g")).error_code == ErrorCode.NON_EMPTY_GROUP
    wired.broker.kafka_groups.leave("g", answer.member_id, None)
    told = await delete("g")
    assert [each.error_code for each in told.topics[0].partitions] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert wired.broker.kafka_offsets.all("g") == []


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_offsets_of_another_generation_or_a_stranger_are_refused(wired: KafkaServer) -> None:
    wire = await wired.connect()
    answer = await stable(wire, "g")
    member = answer.member_id
    for generation, member_id, error in (
        (0, member, ErrorCode.ILLEGAL_GENERATION),
        (2, member, ErrorCode.ILLEGAL_GENERATION),
        (1, "stranger", ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, "", ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        told = await commit(wire, committing(("a", 0, 1), generation=generation, member_id=member_id))
        assert codes(told) == [("a", 0, error)]
    assert wired.broker.kafka_offsets.all("g") == []


async def test_too_much_offset_metadata_is_refused(wired: KafkaServer) -> None:
    wire = await wired.connect()
    for size, error in ((4096, 0), (4097, ErrorCode.OFFSET_METADATA_TOO_LARGE)):
        assert codes(await commit(wire, committing(("a", 0, 1), metadata="m" * size))) == [("a", 0, error)]


async def test_offsets_of_queues_and_ephemeral_topics_are_refused(wired: KafkaServer) -> None:
    await wired.engine.put_topic("memory", TopicConfig(durability=Durability.EPHEMERAL))
    await wired.engine.put_topic("queue", TopicConfig(type=TopicType.QUEUE))
    told = await commit(await wired.connect(), committing(("memory", 0, 0), ("queue", 0, 0)))
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes(told) == [("memory", 0, refused), ("queue", 0, refused)]


async def test_waiting_join_does_not_delay_later_requests(wired: KafkaServer) -> None:
    first, second = await wired.connect(), await wired.connect()
    answer = await stable(first, "g")
    joining = asyncio.create_task(joined(second, "g"))
    while wired.broker.kafka_groups.describe("g").state != "PreparingRebalance":
        await asyncio.sleep(0.005)
    [waiting] = [
        each.member_id for each in wired.broker.kafka_groups.describe("g").members if each.member_id != answer.member_id
    ]
    second.send(ApiKey.LEAVE_GROUP, 2, encode(m.LeaveGroupRequest(group_id="g", member_id=waiting), 2))
    assert (await joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- keys --------------------------------------------------------------------------------------------------------------


async def test_keys_allow_operations_by_scope(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, api_keys="reader:r,writer:w,mine:rw:a,all,mydelete:rw+d:a", **SMALL) as server:
        for topic in ("a", "b"):
            await server.engine.put_topic(topic)
        wires = {key: await known(server, key) for key in ("reader", "writer", "mine", "all", "mydelete")}
        group, topic = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        heartbeat = m.HeartbeatRequest(group_id="g", member_id="who")
        told = await wires["writer"].ask(ApiKey.HEARTBEAT, 3, heartbeat, m.HeartbeatResponse)
        assert told.error_code == group
        assert (await joined(wires["writer"], "g")).error_code == group
        both = committing(("a", 0, 0), ("b", 0, 0))
        assert codes(await commit(wires["writer"], both)) == [("a", 0, group), ("b", 0, group)]
        assert codes(await commit(wires["reader"], both)) == [("a", 0, topic), ("b", 0, topic)]
        assert codes(await commit(wires["mine"], both)) == [("a", 0, 0), ("b", 0, topic)]
        fetch = o.OffsetFetchRequest(group_id="g", topics=None)
        for key, seen in (("mine", ["a"]), ("reader", ["a"])):
            found = await wires[key].ask(ApiKey.OFFSET_FETCH, 5, fetch, o.OffsetFetchResponse)
            assert [each.name for each in found.topics] == seen
        assert codes(await commit(wires["all"], both)) == [("a", 0, 0), ("b", 0, 0)]
        found = await wires["mine"].ask(ApiKey.OFFSET_FETCH, 5, fetch, o.OffsetFetchResponse)
        assert found.error_code == group
        delete = m.DeleteGroupsRequest(groups_names=["g"])
        for key, error in (("mine", group), ("mydelete", group), ("all", 0)):
            gone = await wires[key].ask(ApiKey.DELETE_GROUPS, 1, delete, m.DeleteGroupsResponse)
            assert gone.results[0].error_code == error, key


async def known(server: KafkaServer, key: str) -> Wire:
    """A connection that has authenticated with its key."""
    wire = await server.connect()
    await wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    token = b"\0anybody\0" + key.encode()
    answer = await wire.ask(
        ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse
    )
    assert answer.error_code == 0, (answer.error_message, base64.b64encode(token))
    return wire


def committing(
    *places: tuple[str, int, int], generation: int = -1, member_id: str = "", metadata: str = "meta"
) -> o.OffsetCommitRequest:
    topics: dict[str, list[o.OffsetCommitRequestPartition]] = {}
    for topic, partition, offset in places:
        part = o.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(part)
    return o.OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[o.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )


async def commit(wire: Wire, request: o.OffsetCommitRequest) -> o.OffsetCommitResponse:
    return await wire.ask(ApiKey.OFFSET_COMMIT, 7, request, o.OffsetCommitResponse)


def codes(told: o.OffsetCommitResponse) -> list[tuple[str, int, int]]:
    return [(topic.name, each.partition_index, each.error_code) for topic in told.topics for each in topic.partitions]
