"""A topic that is not in its home cell, like those of the directory that became cell 0: the home cell names its
cell."""

from __future__ import annotations

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.kafka.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from broker.kafka.messages.topics import DeleteTopicsDeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse
from storage import ENTRY_KIND, TopicConfig
from tests.kafka.cells.several import CELLS, Several, name_of
from tests.kafka.cells.test_groups import GROUP, HOME, commit, committed
from tests.kafka.cells.topics import create

NAME = name_of(2, "orders")


def _anybody(topic: str) -> None:
    """The directory was not part of a set before."""


async def test_a_topic_that_is_not_at_home_is_found_from_everywhere(cells: Several) -> None:
    admin = cells.servers[0].engine.admin
    check, admin.check_home = admin.check_home, _anybody
    await cells.servers[0].engine.put_topic(NAME, TopicConfig(partitions=2))
    admin.check_home = check
    await cells.servers[2].engine.states.put(ENTRY_KIND, NAME, b"0")
    for at in range(CELLS):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=True)
        found = (await cells.ask(at, ApiKey.METADATA, 12, request, MetadataResponse)).topics[0]
        assert (found.error_code, [each.leader_id for each in found.partitions]) == (0, [1, 2])
        assert await create(cells, [NAME], at=at) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    for offset in (3, 4):
        assert await commit(cells, offset, [NAME]) == [0]
        offsets = await committed(cells)
        assert isinstance(offsets, dict)
        assert offsets[NAME] == offset
    assert [NAME in cells.servers[cell].engine.catalog.topics for cell in range(CELLS)] == [True, False, False]
    away = DeleteTopicsRequest(topics=[DeleteTopicsDeleteTopicState(name=NAME)])
    gone = await cells.ask(1, ApiKey.DELETE_TOPICS, 6, away, DeleteTopicsResponse)
    assert gone.responses[0].error_code == 0
    assert NAME not in cells.servers[0].engine.catalog.topics


async def test_an_entry_for_a_topic_that_is_gone_is_an_unknown_topic(cells: Several) -> None:
    name = name_of(HOME, "gone")
    await cells.servers[HOME].engine.states.put(ENTRY_KIND, name, b"0")
    assert await commit(cells, 3, [name]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1])]
    )
    answer = await cells.ask(HOME, ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[asked]), OffsetFetchResponse)
    found = answer.groups[0].topics[0].partitions
    assert [(each.error_code, each.committed_offset) for each in found] == [(0, -1)] * 2
