"""DescribeTopicPartitions: topics by name, in pages of partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from broker.auth import READ
from broker.content import in_slices
from broker.kafka import cluster
from broker.kafka.apis import ApiKey
from broker.kafka.call import LIST_ITEMS, Call, Handler, decoded
from broker.kafka.cluster import BROKER_ID, LEADER_EPOCH
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.messages.metadata import (
    DescribeTopicPartitionsCursorResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from schemas import is_topic_name

if TYPE_CHECKING:
    from storage.state import Topic

#: The most partitions in an answer, whatever the request says.
MAX_PARTITIONS: Final = 2000


async def describe(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """Describe the named topics, or all, ordered by name, from the cursor on. The answer has the next cursor."""
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
        async for name in in_slices(sorted({topic.name for topic in request.topics})):
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
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=cluster.uuid_of(topic),
        topic_authorized_operations=cluster.topic_operations(call.access, topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=BROKER_ID,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=[BROKER_ID],
                isr_nodes=[BROKER_ID],
            )
            for number in numbers
        ],
    )


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: decoded(
        DescribeTopicPartitionsRequest,
        describe,
        lists=lambda request: not request.topics or len(request.topics) > LIST_ITEMS,
    )
}
