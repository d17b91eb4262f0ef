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

if TYPE_CHECKING:
    from storage.state import Topic

#: Every member is assigned all topics that it subscribes to.
_ASSIGNOR: Final = "simple"
_NOTHING_BEGUN: Final = -1


def _refusal(call: Call, group_id: str) -> tuple[ErrorCode, str | None]:
    """The error if the group cannot be described."""
    shares = call.broker.kafka_shares
    if not may(call.access, READ) or not may_use_share_group(call, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, None
    if not shares.owners.queues(group_id) and not shares.members.size(group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} does not exist."
    return ErrorCode.NONE, None


async def describe(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe the members of groups. After a restart, a group has none until they join again."""
    return ShareGroupDescribeResponse(
        groups=[
            _described(call, group_id, tell_operations=request.include_authorized_operations)
            for group_id in request.group_ids
        ]
    )


def _described(call: Call, group_id: str, *, tell_operations: bool) -> ShareGroupDescribeDescribedGroup:
    error, message = _refusal(call, group_id)
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
    topics = [(uuid, cluster.with_uuid(call.broker.engine, uuid)) for uuid in ids]
    return [
        ShareGroupDescribeTopicPartitions(topic_id=uuid, topic_name=topic.name, partitions=[0])
        for uuid, topic in topics
        if topic is not None
    ]


async def describe_offsets(call: Call, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    """Describe the queues of groups: the offset of the first job, and the number of jobs."""
    return DescribeShareGroupOffsetsResponse(groups=[_offsets_of(call, each) for each in request.groups])


def _offsets_of(call: Call, asked: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    error, message = _refusal(call, asked.group_id)
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id, error_code=error, error_message=message)
    if error is not ErrorCode.NONE:
        return answer
    queues = {topic.name: topic for topic in call.broker.kafka_shares.owners.queues(asked.group_id)}
    wanted = [(name, [0]) for name in queues if may(call.access, READ, name)]
    if asked.topics is not None:
        wanted = [(each.topic_name, each.partitions) for each in asked.topics]
    for name, partitions in wanted:
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
    error, message = _change_refusal(call, request.group_id)
    if error is not ErrorCode.NONE:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=message)
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
    error, message = _change_refusal(call, request.group_id)
    if error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message)
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


def _change_refusal(call: Call, group_id: str) -> tuple[ErrorCode, str | None]:
    error, message = _refusal(call, group_id)
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


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.SHARE_GROUP_DESCRIBE: decoded(ShareGroupDescribeRequest, describe),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: decoded(DescribeShareGroupOffsetsRequest, describe_offsets),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: decoded(AlterShareGroupOffsetsRequest, alter_offsets),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: decoded(DeleteShareGroupOffsetsRequest, delete_offsets),
}
