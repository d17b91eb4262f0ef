"""DescribeTopicPartitions: topics by name, in pages of partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final, TypeGuard

from broker.auth import READ
from broker.content import in_slices
from broker.kafka import cluster
from broker.kafka.apis import ApiKey
from broker.kafka.call import LIST_ITEMS, Call, Handler, decoded
from broker.kafka.cluster import LEADER_EPOCH
from broker.kafka.described import Shape, newest, recalled
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.messages.metadata import (
    DescribeTopicPartitionsCursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from broker.kafka.spread import all_there, from_all, from_those_there, passable
from schemas import is_topic_name

if TYPE_CHECKING:
    from storage.state import Topic

#: The most partitions in an answer, whatever the request says.
MAX_PARTITIONS: Final = 2000


async def describe(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Describe the named topics, or all, ordered by name, from the cursor on. The answer has the next cursor."""
    if request.topics:
        found, is_partial = await from_those_there(call, request, DescribeTopicPartitionsResponse, _describe)
        if is_partial:
            found.append(await _remembered(call, request, found))
    else:
        found = await from_all(call, request, DescribeTopicPartitionsResponse, _describe)
    return found[0] if len(found) == 1 else _merged(found, request)


async def _remembered(
    call: Call, request: DescribeTopicPartitionsRequest, found: Sequence[DescribeTopicPartitionsResponse]
) -> DescribeTopicPartitionsResponse:
    """The named topics that no cell has described, as their cells last did. All cells that are there have described
    theirs up to the first of their cursors."""
    cells, memory = call.broker.cells, call.broker.kafka_described
    assert cells is not None
    after, first = ("", 0) if request.cursor is None else (request.cursor.topic_name, request.cursor.partition_index)
    cut = min((_position(each.next_cursor) for each in found if each.next_cursor), default=None)
    shown = {topic.name for each in found for topic in each.topics}
    names = {topic.name for topic in request.topics} - shown
    missing = sorted(name for name in names if after <= name and (cut is None or (name, 0) < cut))
    others = await recalled(cells, [name for name in missing if is_topic_name(name)])
    nodes, answer = cluster.nodes(call), DescribeTopicPartitionsResponse()
    async for name in in_slices(missing):
        if not cluster.may(call.access, READ, name):
            topic = DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        elif (shape := newest(each for each in (memory.of(name), others.get(name)) if _has_id(each))) is None:
            topic = DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=name)
        else:
            begin = max(0, first) if name == after else 0
            leaders = [(number, cluster.leader_in(cell, nodes)) for number, cell in enumerate(shape.cells)][begin:]
            topic = _shown(call, name, shape.topic_id, leaders)
        answer.topics.append(topic)
    return answer


def _has_id(shape: Shape | None) -> TypeGuard[Shape]:
    return shape is not None and shape.topic_id != cluster.NO_UUID


async def _describe(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The same, of the topics of this cell."""
    answer = DescribeTopicPartitionsResponse()
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    after, first = ("", 0) if request.cursor is None else (request.cursor.topic_name, request.cursor.partition_index)
    async for name, topic in _wanted(call, request):
        if name < after:
            continue
        if not room:
            answer.next_cursor = DescribeTopicPartitionsCursorResponse(topic_name=name, partition_index=0)
            break
        if isinstance(topic, ErrorCode):
            answer.topics.append(DescribeTopicPartitionsResponseTopic(error_code=topic, name=name))
            continue
        numbers = range(max(0, first) if name == after else 0, topic.config.partitions)
        described = _described(call, topic, numbers[:room])
        answer.topics.append(described)
        room -= len(described.partitions)
        if len(described.partitions) < len(numbers):
            left = numbers[len(described.partitions)]
            answer.next_cursor = DescribeTopicPartitionsCursorResponse(topic_name=name, partition_index=left)
            break
    return answer


async def _wanted(call: Call, request: DescribeTopicPartitionsRequest) -> AsyncIterator[tuple[str, Topic | ErrorCode]]:
    """The names in order, each with its topic or its error."""
    if request.topics:
        cells = call.broker.cells
        async for name in in_slices(sorted({topic.name for topic in request.topics})):
            if cells is None or cells.owner(name) == cells.me:
                yield name, _found(call, name)
    elif cluster.may(call.access, READ):
        for page in cluster.pages(call.broker.engine, call.access):
            async for topic in in_slices(page):
                yield topic.name, topic


def _found(call: Call, name: str) -> Topic | ErrorCode:
    if not is_topic_name(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if not cluster.may(call.access, READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        return cluster.topic(call, name)
    except Exception as error:
        return code_of(error)


def _described(call: Call, topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    nodes = cluster.nodes(call)
    leaders = [(number, cluster.leader(topic, number, nodes)) for number in numbers]
    return _shown(call, topic.name, cluster.uuid_of(topic), leaders)


def _shown(
    call: Call, name: str, topic_id: bytes, leaders: Sequence[tuple[int, cluster.Leader]]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic_id,
        topic_authorized_operations=cluster.topic_operations(call.access, name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=leader.error_code,
                partition_index=number,
                leader_id=leader.node_id,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=[leader.replica],
                isr_nodes=[leader.replica],
                offline_replicas=leader.offline,
            )
            for number, leader in leaders
        ],
    )


def _merged(
    found: Sequence[DescribeTopicPartitionsResponse], request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One answer from those of the cells. It ends where the first of them was truncated, or where it is full."""
    answer = DescribeTopicPartitionsResponse()
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    cut = min((each.next_cursor for each in found if each.next_cursor), key=_position, default=None)
    for topic in sorted((topic for each in found for topic in each.topics), key=lambda topic: topic.name or ""):
        name = topic.name or ""
        if cut is not None and _position(cut) <= (name, 0):
            break
        if not room or len(topic.partitions) > room:
            left = topic.partitions[room].partition_index if topic.partitions else 0
            topic.partitions = topic.partitions[:room]
            if room:
                answer.topics.append(topic)
            answer.next_cursor = DescribeTopicPartitionsCursorResponse(topic_name=name, partition_index=left)
            return answer
        answer.topics.append(topic)
        room -= len(topic.partitions)
    answer.next_cursor = cut
    return answer


async def _wait(call: Call, request: DescribeTopicPartitionsRequest) -> None:
    if not request.topics:
        await all_there(call)


def _position(cursor: DescribeTopicPartitionsCursorResponse) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


passable(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, _describe)
HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: decoded(
        DescribeTopicPartitionsRequest,
        describe,
        lists=lambda request: not request.topics or len(request.topics) > LIST_ITEMS,
        before=_wait,
    )
}
