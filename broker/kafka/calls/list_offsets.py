"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: where a partition begins and ends (source: kafka.md §1, §2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.auth.scopes import DELETE, READ
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.cluster import LEADER_EPOCH
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.fetching import offset_since, stale_epoch
from broker.kafka.messages.positions import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEpochEndOffset,
    OffsetForLeaderEpochOffsetForLeaderPartition,
    OffsetForLeaderEpochOffsetForLeaderTopicResult,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from broker.kafka.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from broker.kafka.places import located, log_start_offset

if TYPE_CHECKING:
    from storage.catalog import Topic
    from storage.engine import Engine

#: Timestamps that mean an end of the partition.
LATEST: Final = -1
EARLIEST: Final = -2
#: The offset up to which records are deleted that means all there are.
ALL: Final = -1


async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The first offset, the next one to be written, or the first of a time."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[await _listed(call, topic.name, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


async def _listed(call: Call, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        place, topic = located(call, READ, name, asked.partition_index)
        stale = stale_epoch(asked.current_leader_epoch)
        if stale is not None:
            answer.error_code = stale
        elif asked.timestamp < EARLIEST:
            answer.error_code = ErrorCode.INVALID_REQUEST
        else:
            found = await _offset_of(call.broker.engine, place, topic, asked.timestamp)
            if found is not None:
                answer.offset, answer.timestamp = found
                answer.leader_epoch = LEADER_EPOCH
    except Exception as error:
        answer.error_code = code_of(error)
    return answer


async def _offset_of(engine: Engine, place: str, topic: Topic, timestamp: int) -> tuple[int, int] | None:
    """Offset and time; None: no record is as young."""
    if timestamp == LATEST:
        return topic.log.head, -1
    if timestamp == EARLIEST:
        return log_start_offset(topic), -1
    return await offset_since(engine, place, topic, timestamp)


async def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Where an epoch ends: leadership never moves, so there is one, and it ends where the partition does."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochOffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_epoch_end(call, topic.topic, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _epoch_end(
    call: Call, name: str, asked: OffsetForLeaderEpochOffsetForLeaderPartition
) -> OffsetForLeaderEpochEpochEndOffset:
    answer = OffsetForLeaderEpochEpochEndOffset(partition=asked.partition)
    try:
        _, topic = located(call, READ, name, asked.partition)
        stale = stale_epoch(asked.current_leader_epoch)
        if stale is not None:
            answer.error_code = stale
        elif asked.leader_epoch == LEADER_EPOCH:
            answer.leader_epoch, answer.end_offset = LEADER_EPOCH, topic.log.head
    except Exception as error:
        answer.error_code = code_of(error)
    return answer


async def delete_records(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete what lies in front of an offset; permanent, and durable when it is answered."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[await _deleted(call, topic.name, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


async def _deleted(call: Call, name: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index)
    try:
        place, topic = located(call, DELETE, name, asked.partition_index)
        offset = topic.log.head if asked.offset == ALL else asked.offset
        if not 0 <= offset <= topic.log.head:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            if offset:
                await call.broker.engine.delete_records(place, before_seq=offset + 1)
            answer.low_watermark = log_start_offset(topic)
    except Exception as error:
        answer.error_code = code_of(error)
    return answer


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.LIST_OFFSETS: decoded(ListOffsetsRequest, list_offsets),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: decoded(OffsetForLeaderEpochRequest, offset_for_leader_epoch),
    ApiKey.DELETE_RECORDS: decoded(DeleteRecordsRequest, delete_records),
}
