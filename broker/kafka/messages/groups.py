"""Consumer groups: joining, syncing, heartbeats, leaving; describing, listing, deleting."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Bool, Bytes, Int16, Int32, Message, NullableString, Part, Since, String, Until, flexible


class JoinGroupRequestProtocol(Part):
    name: String = ""
    metadata: Bytes = b""


@flexible(6)
class JoinGroupRequest(Message):
    group_id: String = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Since(1)] = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(5)] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[NullableString, Since(8)] = None


class JoinGroupResponseMember(Part):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(5)] = None
    metadata: Bytes = b""


@flexible(6)
class JoinGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[NullableString, Since(7)] = None
    protocol_name: String = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, Since(9)] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []


class SyncGroupRequestAssignment(Part):
    member_id: String = ""
    assignment: Bytes = b""


@flexible(4)
class SyncGroupRequest(Message):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignments: list[SyncGroupRequestAssignment] = []


@flexible(4)
class SyncGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    protocol_type: Annotated[NullableString, Since(5)] = None
    protocol_name: Annotated[NullableString, Since(5)] = None
    assignment: Bytes = b""


@flexible(4)
class HeartbeatRequest(Message):
    group_id: String = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None


@flexible(4)
class HeartbeatResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0


class LeaveGroupMemberIdentity(Part):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    reason: Annotated[NullableString, Since(5)] = None


@flexible(4)
class LeaveGroupRequest(Message):
    group_id: String = ""
    member_id: Annotated[String, Until(2)] = ""
    members: Annotated[list[LeaveGroupMemberIdentity], Since(3)] = []


class LeaveGroupMemberResponse(Part):
    member_id: Annotated[String, Since(3)] = ""
    group_instance_id: Annotated[NullableString, Since(3)] = None
    error_code: Annotated[Int16, Since(3)] = 0


@flexible(4)
class LeaveGroupResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    members: Annotated[list[LeaveGroupMemberResponse], Since(3)] = []


@flexible(5)
class DescribeGroupsRequest(Message):
    groups: list[String] = []
    include_authorized_operations: Annotated[Bool, Since(3)] = False


class DescribeGroupsDescribedGroupMember(Part):
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(4)] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribeGroupsDescribedGroup(Part):
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(6)] = None
    group_id: String = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribeGroupsDescribedGroupMember] = []
    authorized_operations: Annotated[Int32, Since(3)] = -2147483648


@flexible(5)
class DescribeGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    groups: list[DescribeGroupsDescribedGroup] = []


@flexible(3)
class ListGroupsRequest(Message):
    states_filter: Annotated[list[String], Since(4)] = []
    types_filter: Annotated[list[String], Since(5)] = []


class ListGroupsListedGroup(Part):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, Since(4)] = ""
    group_type: Annotated[String, Since(5)] = ""


@flexible(3)
class ListGroupsResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Int16 = 0
    groups: list[ListGroupsListedGroup] = []


@flexible(2)
class DeleteGroupsRequest(Message):
    groups_names: list[String] = []


class DeleteGroupsDeletableGroupResult(Part):
    group_id: String = ""
    error_code: Int16 = 0


@flexible(2)
class DeleteGroupsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[DeleteGroupsDeletableGroupResult] = []
