"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup; DescribeGroups, ListGroups, DeleteGroups (source: kafka.md §2).

A join and a sync wait for other members, and hold up nothing that comes behind them on their connection. What members
say of themselves, and what their leader assigns, is theirs: nothing here reads it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.auth.scopes import DELETE, READ
from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Body, Call, Handler, Later, decoded
from broker.kafka.calls import share
from broker.kafka.cluster import may
from broker.kafka.codec.schema import Message, decode, encode
from broker.kafka.errors import ErrorCode
from broker.kafka.groups.coordinator import Described
from broker.kafka.groups.states import State
from broker.kafka.groups.values import Join
from broker.kafka.messages.groups import (
    DeleteGroupsDeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsDescribedGroup,
    DescribeGroupsDescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupMemberResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

#: From these versions on: new members are given an id first; leaving is for several; a group's operations are told.
_ROUND_TRIP_SINCE: Final = 4
_LEAVE_MEMBERS_SINCE: Final = 3
#: The longest that others wait for a member in a rebalance, whatever it asks for.
_MAX_REBALANCE_MS: Final = 24 * 3600 * 1000
#: Bits of Kafka's operations on a group: read and describe, delete.
_READ_BITS: Final = 1 << 3 | 1 << 8
_DELETE_BITS: Final = 1 << 6

Q = TypeVar("Q", bound=Message)


def _waiting(kind: type[Q], handle: Callable[[Call, Q], Awaitable[Message]]) -> Handler:
    """As `decoded`; what comes behind it on the connection begins while this waits."""

    async def handler(call: Call, body: memoryview) -> Answer:
        request = decode(kind, call.version, body)

        async def whole() -> Body:
            return encode(await handle(call, request), call.version, call.errors)

        answer = asyncio.ensure_future(whole())
        await asyncio.sleep(0)  # it has begun before anything that was sent behind it
        return Later(answer)

    return handler


async def join(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    """Waits for the barrier."""
    if not may(call.access, READ):
        return JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, member_id=request.member_id)
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
    answer = await groups.join(request.group_id, asked)
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
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


async def sync(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    """Waits for the leader."""
    if not may(call.access, READ):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = await call.broker.kafka_groups.sync(
        request.group_id,
        request.member_id,
        request.generation_id,
        request.group_instance_id,
        {each.member_id: each.assignment for each in request.assignments},
    )
    return SyncGroupResponse(error_code=answer.error, assignment=answer.assignment)


async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    """Keeps a session."""
    if not may(call.access, READ):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = call.broker.kafka_groups.heartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    return HeartbeatResponse(error_code=error)


async def leave(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """One member goes, or an operator sends several away."""
    if not may(call.access, READ):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
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


# -- groups as a whole -------------------------------------------------------------------------------------------------


async def describe(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Of a group that is not there: that it is dead."""
    return DescribeGroupsResponse(
        groups=[
            _described(call, group_id, tell_operations=request.include_authorized_operations)
            for group_id in request.groups
        ]
    )


def _described(call: Call, group_id: str, *, tell_operations: bool) -> DescribeGroupsDescribedGroup:
    groups = call.broker.kafka_groups
    error = groups.refusal(group_id) if may(call.access, READ) else ErrorCode.GROUP_AUTHORIZATION_FAILED
    if error is not ErrorCode.NONE:
        return DescribeGroupsDescribedGroup(error_code=error, group_id=group_id)
    found = groups.describe(group_id)
    told = DescribeGroupsDescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol if found.state is State.STABLE else "",
        members=_members(found),
    )
    if tell_operations:
        told.authorized_operations = _READ_BITS | (_DELETE_BITS if may(call.access, DELETE) else 0)
    return told


def _members(found: Described) -> list[DescribeGroupsDescribedGroupMember]:
    settled = found.state is State.STABLE
    return [
        DescribeGroupsDescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata(found.protocol) if settled else b"",
            member_assignment=each.assignment if settled else b"",
        )
        for each in found.members
    ]


async def list_all(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """Those in the states asked for; in any, when none is."""
    if not may(call.access, READ):
        return ListGroupsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    groups = call.broker.kafka_groups
    error = groups.refusal("any")
    if error is not ErrorCode.NONE:
        return ListGroupsResponse(error_code=error)
    wanted = {name.lower() for name in request.states_filter}
    return ListGroupsResponse(
        groups=[
            ListGroupsListedGroup(group_id=each.group_id, protocol_type=each.protocol_type, group_state=each.state)
            for each in groups.all_groups()
            if not wanted or each.state.lower() in wanted
        ]
    )


async def delete(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """With their offsets, in topics that the key is for."""
    results: list[DeleteGroupsDeletableGroupResult] = []
    for group_id in request.groups_names:
        groups, offsets = call.broker.kafka_groups, call.broker.kafka_offsets
        error = groups.refusal(group_id)
        if error is ErrorCode.NONE and not may(call.access, DELETE, *offsets.topics(group_id)):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if error is ErrorCode.NONE:
            error = await groups.delete(group_id)
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            error = await share.delete(call, group_id)
        results.append(DeleteGroupsDeletableGroupResult(group_id=group_id, error_code=error))
    return DeleteGroupsResponse(results=results)


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.JOIN_GROUP: _waiting(JoinGroupRequest, join),
    ApiKey.SYNC_GROUP: _waiting(SyncGroupRequest, sync),
    ApiKey.HEARTBEAT: decoded(HeartbeatRequest, heartbeat),
    ApiKey.LEAVE_GROUP: decoded(LeaveGroupRequest, leave),
    ApiKey.DESCRIBE_GROUPS: decoded(DescribeGroupsRequest, describe),
    ApiKey.LIST_GROUPS: decoded(ListGroupsRequest, list_all),
    ApiKey.DELETE_GROUPS: decoded(DeleteGroupsRequest, delete),
}
