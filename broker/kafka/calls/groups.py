"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A join and a sync wait for other members, but do not block later requests on their connection. The metadata of members
and the leader's assignments are passed on as they are.

Source: docs/guides/kafka.md#consumer-groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Body, Call, Handler, Later, decoded
from broker.kafka.codec import Message, decode, encode
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import covers_all, denial
from broker.kafka.groups import Join, consumer_protocol
from broker.kafka.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

#: From these versions on: new members first get an id; several may leave at once; answers contain the operations.
_ROUND_TRIP_SINCE: Final = 4
_LEAVE_MEMBERS_SINCE: Final = 3
#: The longest that others wait for a member in a rebalance, whatever timeout it requests.
_MAX_REBALANCE_MS: Final = 24 * 3600 * 1000

Q = TypeVar("Q", bound=Message)


def _waiting(kind: type[Q], handle: Callable[[Call, Q], Awaitable[Message]]) -> Handler:
    """Like `decoded`, but later requests on the connection begin while this one waits."""

    async def handler(call: Call, body: memoryview) -> Answer:
        request = decode(kind, call.version, body)
        call.flight.end()

        async def whole() -> Body:
            return encode(await handle(call, request), call.version, call.errors)

        answer = asyncio.ensure_future(whole())
        await asyncio.sleep(0)  # it begins before any later request
        return Later(answer)

    return handler


async def join(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join a group. The answer waits until all members have joined."""
    error = await denial(call, request.group_id)
    if error is ErrorCode.NONE and not covers_all(call.access, _wanted(request)):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error is not ErrorCode.NONE:
        return JoinGroupResponse(error_code=error, member_id=request.member_id)
    groups = call.broker.kafka_groups
    session_ms = request.session_timeout_ms
    rebalance_ms = session_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms
    client_id = call.client_id or ""
    asked = Join(
        member_id=request.member_id,
        fresh_id=groups.fresh_id(client_id, request.group_instance_id),
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{call.connection.address}",
        session_ms=session_ms,
        rebalance_ms=max(1, min(rebalance_ms, _MAX_REBALANCE_MS)),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        round_trip=call.version >= _ROUND_TRIP_SINCE,
    )
    answer = await groups.join(request.group_id, asked, call.access.prefixes)
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        leader=answer.leader,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in answer.members
        ],
    )


def _wanted(request: JoinGroupRequest) -> set[str]:
    """The topics that a consumer subscribes to: they become topics of the group."""
    if request.protocol_type != consumer_protocol.TYPE:
        return set()
    return consumer_protocol.wanted((each.name, each.metadata) for each in request.protocols)


async def sync(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Get the assignment. The answer waits for the leader's."""
    error = await denial(call, request.group_id)
    if error is not ErrorCode.NONE:
        return SyncGroupResponse(error_code=error)
    answer = await call.broker.kafka_groups.sync(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        {each.member_id: each.assignment for each in request.assignments},
        request.protocol_type,
        request.protocol_name,
    )
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )


async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keep the session of a member alive."""
    error = await denial(call, request.group_id)
    if error is not ErrorCode.NONE:
        return HeartbeatResponse(error_code=error)
    error = call.broker.kafka_groups.heartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=error)


async def leave(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove one member, which leaves, or several on behalf of an operator."""
    error = await denial(call, request.group_id)
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    groups = call.broker.kafka_groups
    if call.version < _LEAVE_MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=groups.leave(request.group_id, request.member_id, None))
    error = groups.refusal(request.group_id)
    if error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=error)
    return LeaveGroupResponse(
        members=[
            LeaveGroupMemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=groups.leave(request.group_id, each.member_id, each.group_instance_id),
            )
            for each in request.members
        ]
    )


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.JOIN_GROUP: _waiting(JoinGroupRequest, join),
    ApiKey.SYNC_GROUP: _waiting(SyncGroupRequest, sync),
    ApiKey.HEARTBEAT: decoded(HeartbeatRequest, heartbeat),
    ApiKey.LEAVE_GROUP: decoded(LeaveGroupRequest, leave),
}
