"""ShareGroupHeartbeat, ShareFetch, ShareAcknowledge.

Acknowledgements in a fetch are applied before it, so that the same fetch may return released jobs. Those with a valid
lease are applied even if others of their partition fail; the answer is then INVALID_RECORD_STATE.

Source: docs/guides/kafka.md#share-groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.auth import DELETE, READ, READ_WRITE
from broker.kafka import cluster
from broker.kafka import group_settings as settings
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.cluster import may
from broker.kafka.errors import ErrorCode, code_of, message_of
from broker.kafka.group_access import may_use_share_group
from broker.kafka.messages.share import (
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopicResponse,
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatTopicPartitions,
    SharePartition,
    ShareTopic,
)
from broker.kafka.packed import packed
from broker.kafka.share import FIRST_EPOCH, MAX_TOPICS, InvalidBatches, Session, Step, plan
from broker.kafka.share.acquiring import MAX_BYTES, Acquired, Room, acquire, batches_of, ranges_of
from broker.memory import SMALL
from storage import StorageError, Unavailable

if TYPE_CHECKING:
    from storage.state import Topic

#: As in Kafka. The id is part of the node name of the member's leases, whose length is limited.
MAX_MEMBER_ID_CHARS: Final = 36
_LEFT_EPOCHS: Final = (-1, -2)
#: The lease duration in answers without a queue: the default of queues.
_LOCK_MS: Final = 30_000


class Refused(Exception):
    """The code and the message of a refusal."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


# -- members -----------------------------------------------------------------------------------------------------------


async def heartbeat(call: Call, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """A member joins, stays or leaves."""
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    shares = call.broker.kafka_shares
    try:
        await _check(call, group_id, member_id)
        if shares.refusal(group_id) is not ErrorCode.NONE:
            raise Refused(shares.refusal(group_id), f"Another node coordinates {group_id}.")
        if epoch in _LEFT_EPOCHS:
            if not shares.leave(group_id, member_id):
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of {group_id}.")
            return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
        if epoch < 0 or (epoch == 0 and not request.subscribed_topic_names):
            raise Refused(ErrorCode.INVALID_REQUEST, "A member that joins must send epoch 0 and topic names.")
        if len(request.subscribed_topic_names or ()) > MAX_TOPICS:
            raise Refused(ErrorCode.INVALID_REQUEST, f"A member can subscribe to at most {MAX_TOPICS} topics.")
        for name in request.subscribed_topic_names or ():
            if not may(call.access, READ, name):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"This key does not cover {name}.")
        wanted = request.subscribed_topic_names or shares.members.wanted(group_id)
        config = shares.configs.of(group_id, wanted)
        member = shares.members.heartbeat(
            group_id, member_id, epoch, request.subscribed_topic_names, shares.now_ms(), settings.session_ms(config)
        )
        if isinstance(member, ErrorCode):
            raise Refused(member, f"{member_id} must join {group_id} again.")
    except Refused as refused:
        return ShareGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message)
    member.client_id, member.client_host = call.client_id or "", f"/{call.connection.address}"
    ids = await shares.find(member.wanted)
    assignment = None
    if member.announce(ids):
        assignment = ShareGroupHeartbeatAssignment(
            topic_partitions=[ShareGroupHeartbeatTopicPartitions(topic_id=each, partitions=[0]) for each in ids]
        )
    return ShareGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=settings.heartbeat_ms(config),
        assignment=assignment,
    )


async def _check(call: Call, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Check the ids and the permission. Returns both ids. Raises Refused."""
    if not group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "The group id is missing.")
    if not member_id or len(member_id) > MAX_MEMBER_ID_CHARS or len(member_id.encode()) > MAX_MEMBER_ID_CHARS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"The member id must have 1 to {MAX_MEMBER_ID_CHARS} bytes.")
    if not may(call.access, READ):
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "This key lacks the scope read.")
    # A client with a session was checked before. Fetches are frequent, and the check visits topics of all members.
    has_session = call.broker.kafka_shares.is_peer(group_id, member_id, call.connection)
    try:
        allowed = has_session or await may_use_share_group(call, group_id)
        await call.broker.kafka_shares.look_up_config(group_id)
    except Unavailable as error:
        raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message) from None
    if not allowed:
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "This key does not cover all topics of that share group.")
    return group_id, member_id


async def delete(call: Call, group_id: str) -> ErrorCode:
    """Delete a share group. Its queues belong to no group then."""
    shares = call.broker.kafka_shares
    try:
        await shares.look(group_id)
    except Unavailable:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not shares.queues(group_id):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not may(call.access, DELETE, *shares.topics(group_id)):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if shares.members.size(group_id):
        return ErrorCode.NON_EMPTY_GROUP
    try:
        await shares.release(group_id)
    except Exception as error:
        return code_of(error, unavailable=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ErrorCode.NONE


# -- queues ------------------------------------------------------------------------------------------------------------


async def _queue(call: Call, session: Session, topic_id: bytes, partition: int) -> Topic:
    """The queue, if this group may take jobs from it. Raises Refused, StorageError."""
    topic = cluster.with_uuid(call.broker.engine, topic_id)
    cells = call.broker.cells
    if topic is None and cells is not None and cluster.cell_of_uuid(cells, topic_id) != cells.me:
        raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Another node has this queue.")
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "No topic has this id.")
    name = topic.name
    if not may(call.access, READ_WRITE, name):
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"Fetching jobs of {name} needs the scopes read and write.")
    if topic.log.queue is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} is a log; share groups need queues.")
    if partition != 0:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has only partition 0.")
    owner = await call.broker.kafka_shares.take(topic, session.group_id)
    if owner != session.group_id:
        raise Refused(
            ErrorCode.INVALID_GROUP_ID, f"{name} belongs to the share group {owner}; a queue has only one share group."
        )
    return topic


def _refusal(error: Exception) -> tuple[ErrorCode, str | None]:
    if isinstance(error, Refused):
        return error.code, error.message
    return code_of(error), message_of(error)


async def _acknowledge(
    call: Call, session: Session, topic_id: bytes, said: SharePartition
) -> tuple[ErrorCode, str | None]:
    """Apply the acknowledgements of one partition. Returns code and message."""
    try:
        topic = await _queue(call, session, topic_id, said.partition_index)
        held = session.holding(topic_id).leases
        planned = plan(said.acknowledgement_batches, held, call.version)
        stood = await call.broker.kafka_shares.acknowledge(session, topic, planned)
    except InvalidBatches as error:
        return ErrorCode.INVALID_REQUEST, str(error)
    except Exception as error:
        return _refusal(error)
    if planned.unknown or not stood:
        return ErrorCode.INVALID_RECORD_STATE, "This member does not hold some of these records, or no longer."
    return ErrorCode.NONE, None


async def _session(
    call: Call, group_id: str | None, member_id: str | None, epoch: int, topics: Sequence[ShareTopic]
) -> tuple[Session, Step]:
    """The session of the request. Raises Refused."""
    group, member = await _check(call, group_id, member_id)
    says = any(part.acknowledgement_batches for topic in topics for part in topic.partitions)
    if epoch == FIRST_EPOCH and says:
        raise Refused(
            ErrorCode.INVALID_SHARE_SESSION_EPOCH, "The first request of a session cannot acknowledge records."
        )
    found = call.broker.kafka_shares.session(group, member, epoch, call.connection)
    if isinstance(found, ErrorCode):
        raise Refused(found, "Open a new share session.")
    return found


# -- fetching ----------------------------------------------------------------------------------------------------------


async def fetch(call: Call, request: ShareFetchRequest) -> ShareFetchResponse:
    """Apply the acknowledgements, then acquire jobs. Waits if there are none."""
    try:
        session, step = await _session(
            call, request.group_id, request.member_id, request.share_session_epoch, request.topics
        )
    except Refused as refused:
        return ShareFetchResponse(error_code=refused.code, error_message=refused.message)
    answers = _Answers(call)
    for topic in request.topics:
        for part in topic.partitions:
            if part.acknowledgement_batches:
                code, message = await _acknowledge(call, session, topic.topic_id, part)
                answers.acknowledged(topic.topic_id, part.partition_index, code, message)
    if step is Step.CLOSE:
        call.broker.kafka_shares.end((session.group_id, session.member_id), forgiven=True)
        return answers.done()
    for forgotten in request.forgotten_topics_data:
        session.forget(forgotten.topic_id)
    for topic in request.topics:
        for part in topic.partitions:
            if part.partition_index != 0:
                answers.failed(topic.topic_id, part.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
            elif not session.add(topic.topic_id):
                answers.failed(topic.topic_id, 0, ErrorCode.INVALID_REQUEST, "The session has too many queues.")
    if request.max_records > 0 and not request.is_renew_ack:
        await _acquire(call, session, request, answers)
    return answers.done()


async def _acquire(call: Call, session: Session, request: ShareFetchRequest, answers: _Answers) -> None:
    topics: list[Topic] = []
    for topic_id in [*session.queues]:
        try:
            topics.append(await _queue(call, session, topic_id, 0))
        except Exception as error:
            answers.failed(topic_id, 0, *_refusal(error))
    wait_ms = 0 if answers.any else max(0, request.max_wait_ms)
    if wait_ms:
        call.flight.end()
    room = await _hold(call, topics, Room(request.max_records, max(1, request.max_bytes), wait_ms))
    if room is None:
        return  # clients fetch again
    shares = call.broker.kafka_shares
    for acquired in await acquire(shares, session, topics, room):
        batches = await packed(call.broker, acquired.topic, batches_of(acquired.jobs), None)
        answers.acquired(acquired, b"".join(batches))
    if session.queues:
        session.rotate()
    answers.lock_ms = min((shares.lock_ms(session.group_id, topic) for topic in topics), default=_LOCK_MS)


async def _hold(call: Call, topics: Sequence[Topic], room: Room) -> Room | None:
    """Reserve memory for the jobs before they are claimed, from the mean size of records in each queue. Returns `room`.

    With less memory, the answer has fewer jobs, but at least one. None: there is not enough for one. Jobs that arrive
    later reserve nothing: an answer that waits for them gets few.
    """
    queues, memory = call.broker.engine.queues, call.broker.memory
    mean, ready = 0, 0
    for topic in topics:
        with suppress(StorageError):  # the claim will report it
            one, all_ready = queues.claimable_bytes(topic.name, room.jobs)
            mean, ready = max(mean, one), ready + all_ready
    if ready <= SMALL:
        return room._replace(bytes=min(room.bytes, SMALL))
    most = memory.most_for_one(min(room.bytes, MAX_BYTES, ready))
    call.room = memory.answers.try_hold(call.connection, most)
    if call.room is None:
        call.room = await memory.try_answer(call.connection, min(most, max(mean, SMALL)))
    if call.room is None:
        return None
    # Others may claim these jobs first. The answer is then empty at once: no request waits while it holds memory.
    room = room._replace(wait_ms=0)
    if call.room.size >= ready:
        return room
    return room._replace(bytes=min(room.bytes, call.room.size))


class _Answers:
    """The answer to a fetch, as it is made: the partitions with a result."""

    def __init__(self, call: Call) -> None:
        self.lock_ms = _LOCK_MS
        self._call = call
        self._parts: dict[tuple[bytes, int], ShareFetchPartition] = {}

    @property
    def any(self) -> bool:
        return bool(self._parts)

    def _part(self, topic_id: bytes, partition: int) -> ShareFetchPartition:
        return self._parts.setdefault((topic_id, partition), ShareFetchPartition(partition_index=partition))

    def acknowledged(self, topic_id: bytes, partition: int, code: ErrorCode, message: str | None) -> None:
        part = self._part(topic_id, partition)
        part.acknowledge_error_code, part.acknowledge_error_message = code, message
        if code is not ErrorCode.NONE:
            self._call.errors.append(code)

    def failed(self, topic_id: bytes, partition: int, code: ErrorCode, message: str | None) -> None:
        part = self._part(topic_id, partition)
        part.error_code, part.error_message = code, message

    def acquired(self, acquired: Acquired, records: bytes) -> None:
        topic_id = cluster.uuid_of(acquired.topic)
        if acquired.error is not None:
            self.failed(topic_id, 0, *_refusal(acquired.error))
            return
        part = self._part(topic_id, 0)
        part.records = records
        part.acquired_records = ranges_of(acquired.jobs)

    def done(self) -> ShareFetchResponse:
        topics: dict[bytes, ShareFetchTopicResponse] = {}
        for (topic_id, _), part in self._parts.items():
            topics.setdefault(topic_id, ShareFetchTopicResponse(topic_id=topic_id, partitions=[])).partitions.append(
                part
            )
        return ShareFetchResponse(acquisition_lock_timeout_ms=self.lock_ms, responses=[*topics.values()])


async def acknowledge(call: Call, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    """Apply acknowledgements without a fetch."""
    epoch = request.share_session_epoch
    try:
        if epoch == FIRST_EPOCH:
            raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "A share session must begin with a fetch.")
        session, step = await _session(call, request.group_id, request.member_id, epoch, request.topics)
    except Refused as refused:
        return ShareAcknowledgeResponse(error_code=refused.code, error_message=refused.message)
    responses: list[ShareAcknowledgeTopicResponse] = []
    lock_ms = _LOCK_MS
    for topic in request.topics:
        parts: list[ShareAcknowledgePartition] = []
        for part in topic.partitions:
            code, message = await _acknowledge(call, session, topic.topic_id, part)
            parts.append(
                ShareAcknowledgePartition(partition_index=part.partition_index, error_code=code, error_message=message)
            )
        responses.append(ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=parts))
        found = cluster.with_uuid(call.broker.engine, topic.topic_id)
        lock_ms = lock_ms if found is None else min(lock_ms, call.broker.kafka_shares.lock_ms(session.group_id, found))
    if step is Step.CLOSE:
        call.broker.kafka_shares.end((session.group_id, session.member_id), forgiven=True)
    return ShareAcknowledgeResponse(acquisition_lock_timeout_ms=lock_ms, responses=responses)


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: decoded(ShareGroupHeartbeatRequest, heartbeat),
    ApiKey.SHARE_FETCH: decoded(ShareFetchRequest, fetch),
    ApiKey.SHARE_ACKNOWLEDGE: decoded(ShareAcknowledgeRequest, acknowledge),
}
