"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: the bounds of a partition.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics, docs/guides/kafka.md#protocol-versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.auth import DELETE, READ
from broker.content import in_slices
from broker.kafka.apis import NEVER, ApiKey
from broker.kafka.call import LIST_ITEMS, Call, Handler, decoded, located, log_start_offset
from broker.kafka.cluster import LEADER_EPOCH
from broker.kafka.errors import ErrorCode, code_of
from broker.kafka.fetching import offset_of_max_timestamp, offset_since, stale_epoch
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
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from broker.kafka.spread import MAX_HOPS, ask, spread
from storage import NotMine, StorageError
from storage.state import COLD

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic

#: Timestamps with a special meaning, and the versions since when each exists: the end; the beginning; the record with
#: the latest time; the first record on the local disk; the last record in the cold tier; the first record that is not
#: in the cold tier yet.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SERVED_SINCE: Final = {
    LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11
}  # fmt: skip
#: In DeleteRecords: delete all records.
ALL: Final = -1


async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Find the first offset, the next one to be written, or the first one at or after a time."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[await _listed(call, topic.name, each) async for each in in_slices(topic.partitions)],
            )
            async for topic in in_slices(request.topics)
        ]
    )


def _is_list(request: ListOffsetsRequest | OffsetForLeaderEpochRequest) -> bool:
    return sum(len(topic.partitions) for topic in request.topics) > LIST_ITEMS


async def _listed(call: Call, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        partition_name, topic = located(call, READ, name, asked.partition_index)
        stale = stale_epoch(asked.current_leader_epoch)
        if stale is not None:
            answer.error_code = stale
        elif asked.timestamp < 0 and call.version < _SERVED_SINCE.get(asked.timestamp, NEVER):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            found = await _offset_of(call.broker.engine, partition_name, topic, asked.timestamp)
            if found is not None:
                answer.offset, answer.timestamp = found
                answer.leader_epoch = LEADER_EPOCH
    except Exception as error:
        answer.error_code = code_of(error)
    return answer


async def _offset_of(engine: Engine, partition_name: str, topic: Topic, timestamp: int) -> tuple[int, int] | None:
    """Offset and time (-1 if there is no record at the offset); None: no such record exists."""
    if timestamp == LATEST:
        return topic.log.head, -1
    if timestamp == EARLIEST:
        return log_start_offset(topic), -1
    if timestamp == MAX_TIMESTAMP:
        return await offset_of_max_timestamp(engine, partition_name, topic)
    if timestamp == EARLIEST_LOCAL:
        return _first_local(topic), -1
    if timestamp == LATEST_TIERED:
        tiered = _tiered_end(topic)
        return None if tiered is None else (tiered - 1, -1)
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return (_first_local(topic), -1) if engine.moves_segments else None
    return await offset_since(engine, partition_name, topic, timestamp)


def _tiered_end(topic: Topic) -> int | None:
    """The offset after the last record in the cold tier; None: no records are there."""
    cold = [each for each in topic.log.held.manifest.behind(topic.log.marks.live_floor) if each.tier == COLD]
    return cold[-1].end_seq - 1 if cold else None


def _first_local(topic: Topic) -> int:
    """The offset of the first record on the local disk: segments move to the cold tier oldest first."""
    return max(log_start_offset(topic), _tiered_end(topic) or 0)


async def offset_for_leader_epoch(call: Call, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """Find the end of an epoch. Leadership never moves: the only epoch ends where the partition ends."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochOffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(call, topic.topic, each) async for each in in_slices(topic.partitions)],
            )
            async for topic in in_slices(request.topics)
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
    """Delete the records before an offset. Durable when it is answered."""
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
        partition_name, topic = located(call, DELETE, name, asked.partition_index)
        offset = topic.log.head if asked.offset == ALL else asked.offset
        if not 0 <= offset <= topic.log.head:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            if offset:
                await call.broker.engine.delete_records(partition_name, before_seq=offset + 1)
            answer.low_watermark = log_start_offset(topic)
    except NotMine as error:
        return await _deleted_elsewhere(call, error, name, asked)
    except Exception as error:
        answer.error_code = code_of(error)
    return answer


async def _deleted_elsewhere(
    call: Call, not_mine: NotMine, name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    """Forward the request to the cell of the partition, which belongs to a topic of this cell."""
    cells, cell = call.broker.cells, int(not_mine.detail["cell"])
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[asked])])
    try:
        if cells is None or cell == cells.me or call.hops >= MAX_HOPS:
            raise not_mine
        answer = await ask(call, cell, request, DeleteRecordsResponse, is_last=True)
        return answer.topics[0].partitions[0]
    except Exception as error:
        unknown = isinstance(error, StorageError) and error.outcome != "none"
        code = code_of(error, unavailable=ErrorCode.REQUEST_TIMED_OUT) if unknown else code_of(error)
        return DeleteRecordsPartitionResult(partition_index=asked.partition_index, error_code=code)


_delete_records = spread(
    ApiKey.DELETE_RECORDS,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    delete_records,
    owner=lambda cells, topic: cells.owner(topic.name),
    refused=lambda topic, code, _: DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            DeleteRecordsPartitionResult(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    ),
    into=[("topics", "topics")],
)

HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.LIST_OFFSETS: decoded(ListOffsetsRequest, list_offsets, lists=_is_list),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: decoded(OffsetForLeaderEpochRequest, offset_for_leader_epoch, lists=_is_list),
    ApiKey.DELETE_RECORDS: decoded(DeleteRecordsRequest, _delete_records),
}
