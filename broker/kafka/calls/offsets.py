"""OffsetCommit, OffsetFetch, OffsetDelete.

Source: docs/guides/kafka.md#how-kafka-maps-to-topics, docs/guides/kafka.md#consumer-groups.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.auth import DELETE, READ, READ_WRITE
from broker.content import in_slices
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.cluster import may
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import denial
from broker.kafka.groups import Committed, State, code_of_commit
from broker.kafka.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from storage import StorageError

#: Versions of OffsetFetch: from these on, the whole request may have an error, and it may name several groups.
_WHOLE_ERROR_SINCE: Final = 2
_GROUPS_SINCE: Final = 8
_NO_OFFSET: Final = -1


# -- commit ------------------------------------------------------------------------------------------------------------


async def commit(call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Commit offsets, each partition by itself. Durable when it is answered."""
    wanted = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    refused = await denial(call, request.group_id)
    if refused is ErrorCode.NONE and wanted and not any(may(call.access, READ_WRITE, name) for name, _ in wanted):
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED  # and it creates no group
    if refused is ErrorCode.NONE:
        refused = await call.broker.kafka_groups.admit_commit(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            call.access.prefixes,
        )
    if refused is ErrorCode.NONE:
        generation = request.generation_id_or_member_epoch
        if generation < 0 and call.broker.cells is not None:
            generation = call.broker.kafka_groups.describe(request.group_id).generation
        codes = await asyncio.gather(
            *(_commit_one(call, request.group_id, generation, name, each) for name, each in wanted)
        )
    else:
        codes = [refused] * len(wanted)
    code = iter(codes)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=next(code))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _commit_one(
    call: Call, group_id: str, generation: int, topic: str, asked: OffsetCommitRequestPartition
) -> ErrorCode:
    if not may(call.access, READ_WRITE, topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    metadata = asked.committed_metadata or ""
    if len(metadata.encode()) > call.broker.engine.options.max_offset_metadata_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    committed = Committed(topic, asked.partition_index, asked.committed_offset, metadata, asked.committed_leader_epoch)
    try:
        await call.broker.kafka_offsets.commit_in(group_id, generation, committed)
    except Exception as error:
        return code_of_commit(error)
    return ErrorCode.NONE


# -- fetch -------------------------------------------------------------------------------------------------------------


async def fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The committed offsets; -1 if none is committed or the partition does not exist."""
    if call.version >= _GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[
                await _of_group(
                    call,
                    each.group_id,
                    None if each.topics is None else [(topic.name, topic.partition_indexes) for topic in each.topics],
                )
                for each in request.groups
            ]
        )
    wanted = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    found = await _of_group(call, request.group_id, wanted)
    in_each = found.error_code if call.version < _WHOLE_ERROR_SINCE else 0
    if in_each:
        found.topics = [_topic(name, [(p, None, ErrorCode(in_each)) for p in each]) for name, each in wanted or ()]
    return OffsetFetchResponse(
        error_code=found.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in found.topics
        ],
    )


async def _of_group(call: Call, group_id: str, wanted: list[tuple[str, list[int]]] | None) -> OffsetFetchResponseGroup:
    """`wanted` None: all committed offsets, in topics that the key covers."""
    error = await denial(call, group_id)
    if error is ErrorCode.NONE:
        error = call.broker.kafka_groups.refusal(group_id)
    if error is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=_code_of_fetch(error))
    topics: dict[str, list[_Found]] = {}
    try:
        if wanted is None:
            async for each in in_slices(await call.broker.kafka_offsets.find_all(group_id)):
                if may(call.access, READ, each.topic):
                    topics.setdefault(each.topic, []).append((each.partition, each, ErrorCode.NONE))
        else:
            async for name, partitions in in_slices(wanted):
                topics[name] = await _fetch_in(call, group_id, name, partitions)
    except StorageError as error:  # in another cell: an answer without its offsets would reset them
        return OffsetFetchResponseGroup(group_id=group_id, error_code=_code_of_fetch(code_of_commit(error)))
    return OffsetFetchResponseGroup(group_id=group_id, topics=[_topic(name, found) for name, found in topics.items()])


def _code_of_fetch(code: ErrorCode) -> ErrorCode:
    """The code for a group whose offsets another cell has, which is away. This is the right coordinator all the same.
    For COORDINATOR_NOT_AVAILABLE, librdkafka looks for another one, finds this one, and never asks again."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else code


#: A partition, its commit, and an error.
_Found = tuple[int, Committed | None, ErrorCode]


async def _fetch_in(call: Call, group_id: str, topic: str, partitions: list[int]) -> list[_Found]:
    if not may(call.access, READ, topic):
        return [(partition, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for partition in partitions]
    found = await call.broker.kafka_offsets.find(group_id, topic, partitions)
    return [(partition, each, ErrorCode.NONE) for partition, each in zip(partitions, found, strict=True)]


def _topic(name: str, found: list[_Found]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=_NO_OFFSET if committed is None else committed.offset,
                committed_leader_epoch=-1 if committed is None else committed.leader_epoch,
                metadata="" if committed is None else committed.metadata,
                error_code=error,
            )
            for partition, committed, error in found
        ],
    )


# -- delete ------------------------------------------------------------------------------------------------------------


async def delete(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete offsets, but not in topics that members read: they would lose their position."""
    groups = call.broker.kafka_groups
    error = await denial(call, request.group_id, DELETE, look=True)
    if error is ErrorCode.NONE:
        error = groups.refusal(request.group_id)
    read = groups.topics(request.group_id)
    if error is ErrorCode.NONE:
        state = groups.describe(request.group_id).state
        if state is State.DEAD:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif state is not State.EMPTY and not read:
            error = ErrorCode.NON_EMPTY_GROUP  # the topics of its members are unknown
    if error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=error)
    return OffsetDeleteResponse(
        topics=[await _delete_in(call, request.group_id, topic, is_read=topic.name in read) for topic in request.topics]
    )


async def _delete_in(
    call: Call, group_id: str, topic: OffsetDeleteRequestTopic, *, is_read: bool
) -> OffsetDeleteResponseTopic:
    deleted: list[OffsetDeleteResponsePartition] = []
    for each in topic.partitions:
        error = ErrorCode.NONE
        try:
            if not may(call.access, DELETE, topic.name):
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif is_read:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                await call.broker.kafka_offsets.delete(group_id, topic.name, each.partition_index)
        except Exception as failure:
            error = code_of_commit(failure)
        deleted.append(OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=error))
    return OffsetDeleteResponseTopic(name=topic.name, partitions=deleted)


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.OFFSET_COMMIT: decoded(OffsetCommitRequest, commit),
    ApiKey.OFFSET_FETCH: decoded(OffsetFetchRequest, fetch),
    ApiKey.OFFSET_DELETE: decoded(OffsetDeleteRequest, delete),
}
