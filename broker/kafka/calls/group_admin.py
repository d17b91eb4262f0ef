"""DescribeGroups, ListGroups, DeleteGroups.

The protocol type of a share group is `share`, as in Kafka 4. DescribeGroups is for consumer groups only: it does not
find share groups.

Source: docs/guides/kafka.md#consumer-groups.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Final

from broker.auth import DELETE, READ
from broker.kafka.apis import ApiKey
from broker.kafka.call import Call, Handler, decoded
from broker.kafka.calls import share
from broker.kafka.cluster import group_operations, may
from broker.kafka.errors import ErrorCode
from broker.kafka.group_access import denial, may_use_share_group, topics_of, usable_groups
from broker.kafka.groups import Described, State
from broker.kafka.messages.groups import (
    DeleteGroupsDeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsDescribedGroup,
    DescribeGroupsDescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from storage import Unavailable

#: The protocol type, and the type, of a share group; and the type of all other groups.
_SHARE: Final = "share"
_CLASSIC: Final = "classic"
#: From this version on, DescribeGroups reports an unknown group as not found, older versions as dead.
_NOT_FOUND_SINCE: Final = 6


async def describe(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe consumer groups. An unknown group is reported as dead, from version 6 on as not found."""
    return DescribeGroupsResponse(
        groups=[
            await _described(call, group_id, tell_operations=request.include_authorized_operations)
            for group_id in request.groups
        ]
    )


async def _described(call: Call, group_id: str, *, tell_operations: bool) -> DescribeGroupsDescribedGroup:
    groups = call.broker.kafka_groups
    error = await denial(call, group_id, look=True)
    if error is ErrorCode.NONE:
        error = groups.refusal(group_id)
    if error is not ErrorCode.NONE:
        return DescribeGroupsDescribedGroup(error_code=error, group_id=group_id)
    found = groups.describe(group_id)
    if found.state is State.DEAD and call.version >= _NOT_FOUND_SINCE:
        return DescribeGroupsDescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Consumer group {group_id} does not exist.",
            group_id=group_id,
            group_state=found.state,
        )
    described = DescribeGroupsDescribedGroup(
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol if found.state is State.STABLE else "",
        members=_members(found),
    )
    if tell_operations:
        described.authorized_operations = group_operations(call.access)
    return described


def _members(found: Described) -> list[DescribeGroupsDescribedGroupMember]:
    stable = found.state is State.STABLE
    return [
        DescribeGroupsDescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata(found.protocol) if stable else b"",
            member_assignment=each.assignment if stable else b"",
        )
        for each in found.members
    ]


async def list_all(call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
    """List groups in the requested states and of the requested types, or all."""
    if not may(call.access, READ):
        return ListGroupsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = call.broker.kafka_groups.refusal_of_all()
    if error is not ErrorCode.NONE:
        return ListGroupsResponse(error_code=error)
    try:
        await call.broker.kafka_offsets.look(None)
        await call.broker.kafka_shares.look(None)
    except Unavailable:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    states = {name.lower() for name in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    found = [*_classic(call), *[each async for each in _shares(call)]]
    return ListGroupsResponse(
        groups=[
            each
            for each in found
            if (not states or each.group_state.lower() in states) and (not types or each.group_type in types)
        ]
    )


def _classic(call: Call) -> Iterator[ListGroupsListedGroup]:
    is_shown = usable_groups(call.broker, call.access)
    for each in call.broker.kafka_groups.all_groups():
        if is_shown(each.group_id):
            yield ListGroupsListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state,
                group_type=_CLASSIC,
            )


async def _shares(call: Call) -> AsyncIterator[ListGroupsListedGroup]:
    shares = call.broker.kafka_shares
    for group_id in sorted(shares.groups()):
        if await may_use_share_group(call, group_id):
            state = State.STABLE if shares.members.size(group_id) else State.EMPTY
            yield ListGroupsListedGroup(group_id=group_id, protocol_type=_SHARE, group_state=state, group_type=_SHARE)


async def delete(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups with their offsets. The key must cover all their topics."""
    results: list[DeleteGroupsDeletableGroupResult] = []
    for group_id in request.groups_names:
        groups = call.broker.kafka_groups
        error = groups.refusal(group_id)
        if error is ErrorCode.NONE:
            error = await denial(call, group_id, DELETE, look=True)
        # `denial` decides about groups without topics.
        if error is ErrorCode.NONE and not may(call.access, DELETE, *topics_of(call.broker, group_id)):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if error is ErrorCode.NONE:
            error = await groups.delete(group_id)
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            error = await share.delete(call, group_id)
        results.append(DeleteGroupsDeletableGroupResult(group_id=group_id, error_code=error))
    return DeleteGroupsResponse(results=results)


HANDLERS: Final[dict[int, Handler]] = {
    ApiKey.DESCRIBE_GROUPS: decoded(DescribeGroupsRequest, describe),
    ApiKey.LIST_GROUPS: decoded(ListGroupsRequest, list_all),
    ApiKey.DELETE_GROUPS: decoded(DeleteGroupsRequest, delete),
}
