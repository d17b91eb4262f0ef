"""Whose groups a key with prefixes reaches: those that work on its topics, and those that work on none yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages import groups as m
from broker.kafka.messages import offsets as o
from tests.kafka.groups.test_calls import codes, commit, committing, joined, known, stable
from tests.kafka.server import KafkaServer, Wire

REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
ELSEWHERE = ErrorCode.TOPIC_AUTHORIZATION_FAILED
STRANGER = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    """Groups by what they have committed offsets for: theirs, shared, mine; and new, for nothing yet."""
    async with KafkaServer(tmp_path, api_keys="all,mine:rw+d:mine.", kafka_rebalance_delay_ms=0) as server:
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


async def test_a_key_sees_groups_of_its_topics_and_those_that_have_none(guarded: KafkaServer) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    await stable(everything, "new")
    assert await listed(everything) == ["mine", "new", "shared", "theirs"]
    assert await listed(mine) == ["mine", "new", "shared"]
    request = m.DescribeGroupsRequest(groups=["mine", "new", "shared", "theirs"])
    for wire, theirs in ((everything, 0), (mine, REFUSED)):
        told = await wire.ask(ApiKey.DESCRIBE_GROUPS, 5, request, m.DescribeGroupsResponse)
        assert [each.error_code for each in told.groups] == [0, 0, 0, theirs]


async def test_a_key_joins_none_that_works_on_topics_of_others_only(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    for group, error in (("mine", 0), ("new", 0), ("shared", 0), ("theirs", REFUSED)):
        assert (await joined(mine, group)).error_code == error, group
    assert guarded.broker.kafka_groups.describe("theirs").state == "Empty"


@pytest.mark.parametrize("version", [2, 4])
async def test_a_key_sends_nobody_away_from_a_group_of_others(guarded: KafkaServer, version: int) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    answer = await joined(everything, "theirs", 5, group_instance_id="one")
    assert answer.error_code == 0
    named = m.LeaveGroupMemberIdentity(member_id="", group_instance_id="one")
    request = m.LeaveGroupRequest(group_id="theirs", member_id=answer.member_id, members=[named])
    told = await mine.ask(ApiKey.LEAVE_GROUP, version, request, m.LeaveGroupResponse)
    assert (told.error_code, told.members) == (REFUSED, [])
    assert len(guarded.broker.kafka_groups.describe("theirs").members) == 1


async def test_a_key_commits_for_its_topics_only_and_not_by_the_id_of_others(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    topics = ("mine.b", "their.a")
    for group, errors in (("shared", (0, ELSEWHERE)), ("new", (0, ELSEWHERE)), ("theirs", (REFUSED, REFUSED))):
        found = codes(await commits(mine, group, *topics))
        assert found == [(topic, 0, error) for topic, error in zip(topics, errors, strict=True)], group
    # Else the group would be the key's from then on, and its owner could not delete it any more.
    assert guarded.broker.kafka_offsets.topics("theirs") == {"their.a"}
    assert "theirs" not in await listed(mine)


async def test_who_is_in_a_group_commits_also_when_it_has_come_to_others(guarded: KafkaServer) -> None:
    everything, mine = await known(guarded, "all"), await known(guarded, "mine")
    answer = await stable(mine, "new")
    assert codes(await commits(everything, "new", "their.a")) == [("their.a", 0, STRANGER)]
    member = {"generation": answer.generation_id, "member_id": answer.member_id}
    assert codes(await commits(everything, "new", "their.a", **member)) == [("their.a", 0, 0)]
    assert (await joined(mine, "new", member_id=answer.member_id)).error_code == REFUSED
    assert codes(await commits(mine, "new", "mine.a", **member)) == [("mine.a", 0, 0)]
    assert (await joined(mine, "new", member_id=answer.member_id)).error_code == 0


async def test_a_key_deletes_a_group_all_of_whose_topics_are_its_own(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    await guarded.broker.kafka_groups.admit_commit("new", "", -1, None)
    request = m.DeleteGroupsRequest(groups_names=["mine", "new", "shared", "theirs"])
    told = await mine.ask(ApiKey.DELETE_GROUPS, 2, request, m.DeleteGroupsResponse)
    assert [each.error_code for each in told.results] == [0, 0, REFUSED, REFUSED]
    assert await listed(await known(guarded, "all")) == ["shared", "theirs"]


async def test_a_key_reads_and_deletes_offsets_of_its_topics_in_any_group(guarded: KafkaServer) -> None:
    mine = await known(guarded, "mine")
    fetch = o.OffsetFetchRequest(group_id="shared", topics=None)
    told = await mine.ask(ApiKey.OFFSET_FETCH, 5, fetch, o.OffsetFetchResponse)
    assert [each.name for each in told.topics] == ["mine.a"]
    parts = [o.OffsetDeleteRequestPartition(partition_index=0)]
    delete = o.OffsetDeleteRequest(
        group_id="shared",
        topics=[o.OffsetDeleteRequestTopic(name=name, partitions=parts) for name in ("mine.a", "their.a")],
    )
    gone = await mine.ask(ApiKey.OFFSET_DELETE, 0, delete, o.OffsetDeleteResponse)
    assert [each.partitions[0].error_code for each in gone.topics] == [0, ELSEWHERE]
    assert await listed(mine) == ["mine"]
