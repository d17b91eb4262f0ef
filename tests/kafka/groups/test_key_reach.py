"""Which groups a key with prefixes reaches: groups whose topics all match its prefixes, and groups that it created."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.groups import consumer_protocol
from broker.kafka.messages import groups as m
from broker.kafka.messages import offsets as o
from broker.kafka.messages import share as sh
from storage import TopicConfig, TopicType
from tests.kafka.groups.test_calls import codes, commit, committing, joined, known, stable
from tests.kafka.server import KafkaServer, Wire

REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
ELSEWHERE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
STRANGER = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    """Groups named after the topics of their committed offsets: theirs, shared, mine."""
    keys = "all,mine:rw+d:mine.,wide:rw+d:mine.|m,their:rw+d:their."
    async with KafkaServer(tmp_path, api_keys=keys, kafka_rebalance_delay_ms=0) as server:
        for topic in ("mine.a", "mine.b", "their.a"):
            await server.engine.put_topic(topic)
        everything = await known(server, "all")
        for group, topics in (("theirs", ["their.a"]), ("shared", ["their.a", "mine.a"]), ("mine", ["mine.a"])):
            assert {code for _, _, code in codes(await commits(everything, group, *topics))} == {0}
        yield server


async def commits(wire: Wire, group: str, *topics: str, **member: Any) -> o.OffsetCommitResponse:
    request = committing(*((topic, 0, 0) for topic in topics), **member)
    request.group_id = group
    return await commit(wire, request)


async def listed(wire: Wire) -> list[str]:
    told = await wire.ask(ApiKey.LIST_GROUPS, 4, m.ListGroupsRequest(), m.ListGroupsResponse)
    assert told.error_code == 0
    return [each.group_id for each in told.groups]


async def test_key_lists_and_describes_only_groups_whose_topics_it_covers(guarded: KafkaServer) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    await stable(everything, "new")
    await stable(mine, "own")
    assert await listed(everything) == ["mine", "new", "own", "shared", "theirs"]
    assert await listed(mine) == ["mine", "own"]
    request = m.DescribeGroupsRequest(groups=["mine", "own", "new", "shared", "theirs"])
    for wire, others in ((everything, 0), (mine, REFUSED)):
        told = await wire.ask(ApiKey.DESCRIBE_GROUPS, 5, request, m.DescribeGroupsResponse)
        assert [each.error_code for each in told.groups] == [0, 0, others, others, others]
        assert [len(each.members) for each in told.groups] == [0, 1, 0 if others else 1, 0, 0]


async def test_a_key_joins_no_group_with_a_topic_of_others(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    for group, error in (("mine", 0), ("own", 0), ("shared", REFUSED), ("theirs", REFUSED)):
        assert (await joined(mine, group)).error_code == error, group
    for group in ("shared", "theirs"):
        assert guarded.broker.kafka_groups.describe(group).state == "Empty"


def wanting(*topics: str) -> list[m.JoinGroupRequestProtocol]:
    return [m.JoinGroupRequestProtocol(name="range", metadata=consumer_protocol.subscription(topics))]


async def test_subscriptions_count_as_group_topics_before_the_first_commit(guarded: KafkaServer) -> None:
    their, mine = await known(guarded, "their"), await known(guarded, "mine")
    answer = await joined(their, "billing", protocols=wanting("their.a"))
    assert answer.error_code == 0
    assert (await joined(mine, "billing", protocols=wanting("mine.a"))).error_code == REFUSED
    described = m.DescribeGroupsRequest(groups=["billing"])
    told = await mine.ask(ApiKey.DESCRIBE_GROUPS, 5, described, m.DescribeGroupsResponse)
    assert (told.groups[0].error_code, told.groups[0].members) == (REFUSED, [])
    assert "billing" not in await listed(mine)
    named = {"group_id": "billing", "generation_id": answer.generation_id, "member_id": answer.member_id}
    synced = await mine.ask(ApiKey.SYNC_GROUP, 3, m.SyncGroupRequest(**named), m.SyncGroupResponse)
    beaten = await mine.ask(ApiKey.HEARTBEAT, 3, m.HeartbeatRequest(**named), m.HeartbeatResponse)
    left = m.LeaveGroupRequest(group_id="billing", member_id=answer.member_id)
    gone = await mine.ask(ApiKey.LEAVE_GROUP, 2, left, m.LeaveGroupResponse)
    assert [each.error_code for each in (synced, beaten, gone)] == [REFUSED] * 3
    member = {"generation": answer.generation_id, "member_id": answer.member_id}
    assert codes(await commits(mine, "billing", "mine.a", **member)) == [("mine.a", 0, REFUSED)]
    fetch = o.OffsetFetchRequest(group_id="billing", topics=None)
    assert (await mine.ask(ApiKey.OFFSET_FETCH, 5, fetch, o.OffsetFetchResponse)).error_code == REFUSED
    assert (await their.ask(ApiKey.HEARTBEAT, 3, m.HeartbeatRequest(**named), m.HeartbeatResponse)).error_code == 0


async def test_assigned_topics_count_as_group_topics(guarded: KafkaServer) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    answer = await joined(everything, "billing", protocols=wanting("mine.a"))
    sync = m.SyncGroupRequest(
        group_id="billing",
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[
            m.SyncGroupRequestAssignment(
                member_id=answer.member_id, assignment=consumer_protocol.assignment([("mine.a", 0), ("their.a", 0)])
            )
        ],
    )
    assert "billing" in await listed(mine)
    assert (await everything.ask(ApiKey.SYNC_GROUP, 3, sync, m.SyncGroupResponse)).error_code == 0
    assert "billing" not in await listed(mine)


async def test_join_for_topics_outside_the_prefixes_is_refused(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    assert (await joined(mine, "billing", protocols=wanting("mine.a", "their.a"))).error_code == REFUSED
    assert guarded.broker.kafka_groups.describe("billing").state == "Dead"


async def test_a_group_without_topics_belongs_to_the_key_of_the_first_member(guarded: KafkaServer) -> None:
    mine, wide = await known(guarded, "mine"), await known(guarded, "wide")
    others = [await known(guarded, key) for key in ("their", "mine")]
    answer = await joined(mine, "connect", protocol_type="connect")
    assert answer.error_code == 0
    assert (await joined(others[0], "connect", protocol_type="connect")).error_code == REFUSED
    left = m.LeaveGroupRequest(group_id="connect", member_id=answer.member_id)
    assert (await wide.ask(ApiKey.LEAVE_GROUP, 2, left, m.LeaveGroupResponse)).error_code == 0
    # It has no members any more, and still belongs to its first member's key.
    assert (await joined(others[0], "connect", protocol_type="connect")).error_code == REFUSED
    assert (await joined(others[1], "connect", protocol_type="connect")).error_code == 0


async def test_owner_of_a_group_survives_a_restart(tmp_path: Path) -> None:
    more = {"api_keys": "mine:rw:mine.,their:rw:their.", "kafka_rebalance_delay_ms": 0}
    async with KafkaServer(tmp_path, **more) as server:
        assert (await joined(await known(server, "mine"), "connect", protocol_type="connect")).error_code == 0
    async with KafkaServer(tmp_path, **more) as server:
        for key, error in (("their", REFUSED), ("mine", 0)):
            wire = await known(server, key)
            assert (await joined(wire, "connect", protocol_type="connect")).error_code == error


@pytest.mark.parametrize("version", [2, 4])
async def test_key_cannot_remove_members_of_other_groups(guarded: KafkaServer, version: int) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    answer = await joined(everything, "theirs", 5, group_instance_id="one")
    assert answer.error_code == 0
    named = m.LeaveGroupMemberIdentity(member_id="", group_instance_id="one")
    request = m.LeaveGroupRequest(group_id="theirs", member_id=answer.member_id, members=[named])
    told = await mine.ask(ApiKey.LEAVE_GROUP, version, request, m.LeaveGroupResponse)
    assert (told.error_code, told.members) == (REFUSED, [])
    assert len(guarded.broker.kafka_groups.describe("theirs").members) == 1


async def test_a_key_commits_only_for_topics_and_groups_within_its_prefixes(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    topics = ("mine.b", "their.a")
    for group, errors in (("new", (0, ELSEWHERE)), ("shared", (REFUSED, REFUSED)), ("theirs", (REFUSED, REFUSED))):
        found = codes(await commits(mine, group, *topics))
        assert found == [(topic, 0, error) for topic, error in zip(topics, errors, strict=True)], group
    # Otherwise the group would belong to the key from then on, and its owner could not delete it any more.
    assert guarded.broker.kafka_offsets.topics("theirs") == {"their.a"}
    assert await listed(mine) == ["mine", "new"]


async def test_member_is_refused_after_its_group_gets_topics_outside_the_prefixes(guarded: KafkaServer) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    answer = await stable(mine, "new")
    assert codes(await commits(everything, "new", "their.a")) == [("their.a", 0, STRANGER)]
    member = {"generation": answer.generation_id, "member_id": answer.member_id}
    assert codes(await commits(mine, "new", "mine.a", **member)) == [("mine.a", 0, 0)]
    assert codes(await commits(everything, "new", "their.a", **member)) == [("their.a", 0, 0)]
    assert codes(await commits(mine, "new", "mine.a", **member)) == [("mine.a", 0, REFUSED)]
    await guarded.broker.kafka_offsets.delete("new", "their.a", 0)
    assert codes(await commits(mine, "new", "mine.a", **member)) == [("mine.a", 0, 0)]


async def test_key_deletes_only_groups_whose_topics_it_covers(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    await guarded.broker.kafka_groups.admit_commit("old", "", -1, None, ("mine.",))
    await guarded.broker.kafka_groups.admit_commit("new", "", -1, None, ("their.",))
    request = m.DeleteGroupsRequest(groups_names=["mine", "old", "new", "shared", "theirs"])
    told = await mine.ask(ApiKey.DELETE_GROUPS, 2, request, m.DeleteGroupsResponse)
    assert [each.error_code for each in told.results] == [0, 0, REFUSED, REFUSED, REFUSED]
    assert await listed(await known(guarded, "all")) == ["new", "shared", "theirs"]


async def test_a_key_reads_and_deletes_offsets_only_of_groups_within_its_prefixes(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    parts = [o.OffsetDeleteRequestPartition(partition_index=0)]
    for group, error in (("shared", REFUSED), ("mine", 0)):
        fetch = o.OffsetFetchRequest(group_id=group, topics=None)
        told = await mine.ask(ApiKey.OFFSET_FETCH, 5, fetch, o.OffsetFetchResponse)
        assert (told.error_code, [each.name for each in told.topics]) == (error, [] if error else ["mine.a"])
        delete = o.OffsetDeleteRequest(
            group_id=group,
            topics=[o.OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("mine.a", "their.a")],
        )
        gone = await mine.ask(ApiKey.OFFSET_DELETE, 0, delete, o.OffsetDeleteResponse)
        assert gone.error_code == error
        assert [each.partitions[0].error_code for each in gone.topics] == ([] if error else [0, ELSEWHERE])


async def test_a_key_is_no_member_of_a_share_group_of_others(guarded: KafkaServer) -> None:
    for name in ("mine.q", "their.q"):
        await guarded.engine.put_topic(name, TopicConfig(type=TopicType.QUEUE))
    mine, their = await known(guarded, "mine"), await known(guarded, "their")

    async def beat(wire: Wire, member: str, epoch: int, *topics: str) -> int:
        request = sh.ShareGroupHeartbeatRequest(
            group_id="mailers", member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics)
        )
        told = await wire.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, sh.ShareGroupHeartbeatResponse)
        return told.error_code

    assert await beat(their, "a", 0, "their.q") == 0
    assert await beat(mine, "b", 0, "mine.q") == REFUSED
    assert await beat(mine, "a", -1) == REFUSED
    assert guarded.broker.kafka_shares.members.size("mailers") == 1
    assert ("mailers" in await listed(mine), "mailers" in await listed(their)) == (False, True)
    assert await beat(their, "a", -1) == 0
    assert await beat(mine, "b", 0, "mine.q") == 0
