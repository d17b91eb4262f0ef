"""A topic in another cell than its home, as those of the directory that became cell 0: the home cell says where."""

from __future__ import annotations

from broker.cells.cells import ENTRY_KIND
from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.kafka.messages.topics import DeleteTopicsDeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse
from storage.config import TopicConfig
from tests.kafka.cells.several import CELLS, Several, name_of
from tests.kafka.cells.test_groups import commit, committed
from tests.kafka.cells.topics import create

NAME = name_of(2, "orders")


def _anybody(topic: str) -> None:
    """The directory was not part of a set yet."""


async def test_a_topic_that_is_not_at_home_is_found_from_everywhere(cells: Several) -> None:
    admin = cells.servers[0].engine.admin
    check, admin.check_home = admin.check_home, _anybody
    await cells.servers[0].engine.put_topic(NAME, TopicConfig(partitions=2))
    admin.check_home = check
    await cells.servers[2].engine.states.put(ENTRY_KIND, NAME, b"0")
    for at in range(CELLS):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)], allow_auto_topic_creation=True)
        found = (await cells.ask(at, ApiKey.METADATA, 12, request, MetadataResponse)).topics[0]
        assert (found.error_code, [each.leader_id for each in found.partitions]) == (0, [1, 1])
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
