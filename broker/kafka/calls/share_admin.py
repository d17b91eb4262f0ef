"""ShareGroupDescribe, and the calls that describe and change offsets of share groups.

Source: docs/guides/kafka.md#share-groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.auth import DELETE, READ, Scopes
from broker.kafka import cluster
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded, log_start_offset
from broker.kafka.cluster import LEADER_EPOCH, group_operations, may
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import may_use_share_group
from broker.kafka.groups import State
from broker.kafka.messages.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    ShareGroupDescribeAssignment,
    ShareGroupDescribeDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)
from broker.kafka.refusals import Refused, refusal
from broker.kafka.spread import ask, passable, spread
from storage import StorageError, Unavailable

if TYPE_CHECKING:
    from storage.state import Topic

#: Every member is assigned all topics that it subscribes to.
_ASSIGNOR: Final = "simple"
_NOTHING_BEGUN: Final = -1


async def _refusal(call: Call, group_id: str) -> tuple[ErrorCode, str | None]:
    """The error if the group cannot be described. The coordinator has checked requests that another cell forwards."""
    if call.hops:
        return ErrorCode.NONE, None
    shares = call.broker.kafka_shares
    try:
        if shares.refusal(group_id) is not ErrorCode.NONE:
            return shares.refusal(group_id), f"Another node coordinates {group_id}."
        await shares.look(group_id)
    except Unavailable as error:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message
    if not may(call.access, READ) or not await may_use_share_group(call, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, None
    if not shares.queues(group_id) and not shares.members.size(group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} does not exist."
    return ErrorCode.NONE, None


async def describe(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe the members of groups. After a restart, a group has none until they join again."""
    return ShareGroupDescribeResponse(
        groups=[
            await _described(call, group_id, tell_operations=request.include_authorized_operations)
            for group_id in request.group_ids
        ]
    )


async def _described(call: Call, group_id: str, *, tell_operations: bool) -> ShareGroupDescribeDescribedGroup:
    error, message = await _refusal(call, group_id)
    if error is not ErrorCode.NONE:
        return ShareGroupDescribeDescribedGroup(
            error_code=error, error_message=message, group_id=group_id, group_state=State.DEAD
        )
    members = call.broker.kafka_shares.members.of(group_id)
    epoch = max((member.epoch for _, member in members), default=0)
    described = ShareGroupDescribeDescribedGroup(
        group_id=group_id,
        group_state=State.STABLE if members else State.EMPTY,
        group_epoch=epoch,
        assignment_epoch=epoch,
        assignor_name=_ASSIGNOR,
        members=[
            ShareGroupDescribeMember(
                member_id=member_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=list(member.wanted),
                assignment=ShareGroupDescribeAssignment(topic_partitions=_assigned(call, member.announced or ())),
            )
            for member_id, member in members
        ],
    )
    if tell_operations:
        described.authorized_operations = group_operations(call.access)
    return described


def _assigned(call: Call, ids: tuple[bytes, ...]) -> list[ShareGroupDescribeTopicPartitions]:
    topics = [(uuid, call.broker.kafka_shares.name_of(uuid)) for uuid in ids]
    return [
        ShareGroupDescribeTopicPartitions(topic_id=uuid, topic_name=name, partitions=[0])
        for uuid, name in topics
        if name is not None
    ]


async def describe_offsets(call: Call, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    """Describe the queues of groups: the offset of the first job, and the number of jobs."""
    return DescribeShareGroupOffsetsResponse(groups=[await _offsets_of(call, each) for each in request.groups])


async def _offsets_of(
    call: Call, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    error, message = await _refusal(call, asked.group_id)
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, error_code=error, error_message=message)
    if error is not ErrorCode.NONE:
        return answer
    queues = {topic.name: topic for topic in call.broker.kafka_shares.owners.queues(asked.group_id)}
    wanted = asked.topics
    if wanted is None:
        names = sorted(call.broker.kafka_shares.queues(asked.group_id))
        wanted = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
            for name in names
            if may(call.access, READ, name)
        ]
    cells = call.broker.cells
    for each in wanted:
        name, partitions = each.topic_name, each.partitions
        if cells is not None and not call.hops and (cell := cells.owner(name)) != cells.me:
            part = DescribeShareGroupOffsetsRequestGroup(group_id=asked.group_id, topics=[each])
            try:
                found = await ask(
                    call,
                    cell,
                    DescribeShareGroupOffsetsRequest(groups=[part]),
                    DescribeShareGroupOffsetsResponse,
                )
            except StorageError as failure:
                answer.error_code, answer.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE, failure.message
                answer.topics = []
                return answer
            answer.topics += found.groups[0].topics
            continue
        topic = queues.get(name)
        described = DescribeShareGroupOffsetsResponseTopic(topic_name=name)
        if topic is not None and may(call.access, READ, name):
            described.topic_id = cluster.uuid_of(topic)
        described.partitions = [_offset(call, name, topic, number) for number in partitions]
        answer.topics.append(described)
    return answer


def _offset(call: Call, name: str, topic: Topic | None, number: int) -> DescribeShareGroupOffsetsResponsePartition:
    """A queue that does not belong to the group has no offset."""
    answer = DescribeShareGroupOffsetsResponsePartition(partition_index=number, start_offset=_NOTHING_BEGUN)
    if not may(call.access, READ, name):
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is not None and number == 0:
        figures = call.broker.engine.queues.figures_of(topic)
        answer.start_offset, answer.leader_epoch = log_start_offset(topic), LEADER_EPOCH
        answer.lag = figures.ready + figures.in_flight + figures.delayed
    return answer


# -- changing offsets --------------------------------------------------------------------------------------------------


async def alter_offsets(call: Call, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    """Delete the jobs before the offsets. An earlier offset does not bring back jobs: acknowledged ones are deleted."""
    error, message = await _change_refusal(call, request.group_id)
    if error is not ErrorCode.NONE:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=message)
    return await _alter_in_cells(call, request)


async def _alter_here(call: Call, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    """The same, of the queues of this cell."""
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
    for asked in request.topics:
        topic = call.broker.engine.catalog.topics.get(asked.topic_name)
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name, partitions=[])
        if topic is not None and may(call.access, READ, asked.topic_name):
            answer.topic_id = cluster.uuid_of(topic)
        for each in asked.partitions:
            part = AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            try:
                await _begin_at(call, request.group_id, asked.topic_name, each)
            except Exception as failure:
                refused = refusal(failure)
                part.error_code, part.error_message = refused.code, refused.message
            answer.partitions.append(part)
        responses.append(answer)
    return AlterShareGroupOffsetsResponse(responses=responses)


async def _begin_at(call: Call, group_id: str, name: str, asked: AlterShareGroupOffsetsRequestPartition) -> None:
    """Raises Refused, StorageError."""
    shares = call.broker.kafka_shares
    topic = _queue(call, DELETE, name, asked.partition_index)
    owner = shares.owners.owner(topic)
    if owner not in (None, group_id):
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} belongs to another share group.")
    if not 0 <= asked.start_offset <= topic.log.head:
        raise Refused(ErrorCode.INVALID_REQUEST, f"start_offset of {name} must be from 0 to {topic.log.head}.")
    await shares.owners.take(topic, group_id)
    await shares.begin_at(topic, asked.start_offset)


async def delete_offsets(call: Call, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    """Take queues away from the group. A queue then belongs to the next group that fetches from it, from that group's
    configured position on."""
    error, message = await _change_refusal(call, request.group_id)
    if error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message)
    return await _delete_in_cells(call, request)


async def _delete_here(call: Call, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    """The same, of the queues of this cell."""
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
    for asked in request.topics:
        answer = DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        try:
            topic = _queue(call, DELETE, asked.topic_name, 0)
            answer.topic_id = cluster.uuid_of(topic)
            await call.broker.kafka_shares.owners.release_one(topic, request.group_id)
        except Exception as failure:
            refused = refusal(failure)
            answer.error_code, answer.error_message = refused.code, refused.message
        responses.append(answer)
    return DeleteShareGroupOffsetsResponse(responses=responses)


async def _change_refusal(call: Call, group_id: str) -> tuple[ErrorCode, str | None]:
    error, message = await _refusal(call, group_id)
    if error is ErrorCode.NONE and call.broker.kafka_shares.members.size(group_id):
        return ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members: stop them first."
    return error, message


def _queue(call: Call, scopes: Scopes, name: str, partition: int) -> Topic:
    """Raises Refused."""
    if not may(call.access, scopes, name):
        raise Refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"This needs a key with the scope delete that covers {name}."
        )
    topic = call.broker.engine.catalog.topics.get(name)
    if topic is None or topic.provisional or "/" in name or partition != 0:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {partition} of {name} does not exist.")
    if topic.log.queue is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is a log; share groups need queues.")
    return topic


_alter_in_cells = spread(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    _alter_here,
    owner=lambda cells, topic: cells.owner(topic.topic_name),
    refused=lambda topic, code, message: AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code, error_message=message
            )
            for each in topic.partitions
        ],
    ),
    into=[("topics", "responses")],
)
_delete_in_cells = spread(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    _delete_here,
    owner=lambda cells, topic: cells.owner(topic.topic_name),
    refused=lambda topic, code, message: DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, error_code=code, error_message=message
    ),
    into=[("topics", "responses")],
)
passable(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsRequest, describe_offsets)

HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.SHARE_GROUP_DESCRIBE: decoded(ShareGroupDescribeRequest, describe),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: decoded(DescribeShareGroupOffsetsRequest, describe_offsets),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: decoded(AlterShareGroupOffsetsRequest, alter_offsets),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: decoded(DeleteShareGroupOffsetsRequest, delete_offsets),
}
