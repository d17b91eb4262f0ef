"""Share groups (KIP-932, KIP-1206, KIP-1222): heartbeats, acquiring and acknowledging records, administration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from broker.kafka.codec import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Uuid,
    flexible,
)


@flexible(0)
class ShareGroupHeartbeatRequest(Message):
    group_id: String = ""
    member_id: String = ""
    member_epoch: Int32 = 0
    rack_id: NullableString = None
    subscribed_topic_names: list[String] | None = None


class ShareGroupHeartbeatTopicPartitions(Part):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []


class ShareGroupHeartbeatAssignment(Part):
    topic_partitions: list[ShareGroupHeartbeatTopicPartitions] = []


@flexible(0)
class ShareGroupHeartbeatResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: ShareGroupHeartbeatAssignment | None = None


class AcknowledgementBatch(Part):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: list[Int8] = []


class SharePartition(Part):
    partition_index: Int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = []


class ShareTopic(Part):
    topic_id: Uuid = bytes(16)
    partitions: list[SharePartition] = []


class ShareForgottenTopic(Part):
    topic_id: Uuid = bytes(16)
    partitions: list[Int32] = []


@flexible(0)
class ShareFetchRequest(Message):
    group_id: NullableString = None
    member_id: NullableString = None
    share_session_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 0x7FFFFFFF
    max_records: Int32 = 0
    batch_size: Int32 = 0
    share_acquire_mode: Annotated[Int8, Since(2)] = 0
    is_renew_ack: Annotated[Bool, Since(2)] = False
    topics: list[ShareTopic] = []
    forgotten_topics_data: list[ShareForgottenTopic] = []


class LeaderIdAndEpoch(Part):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class AcquiredRecords(Part):
    first_offset: Int64 = 0
    last_offset: Int64 = 0
    delivery_count: Int16 = 0


class ShareFetchPartition(Part):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acknowledge_error_code: Int16 = 0
    acknowledge_error_message: NullableString = None
    current_leader: LeaderIdAndEpoch = msgspec.field(default_factory=LeaderIdAndEpoch)
    records: Bytes = b""
    acquired_records: list[AcquiredRecords] = []


class ShareFetchTopicResponse(Part):
    topic_id: Uuid = bytes(16)
    partitions: list[ShareFetchPartition] = []


class NodeEndpoint(Part):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None


@flexible(0)
class ShareFetchResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


@flexible(0)
class ShareAcknowledgeRequest(Message):
    group_id: NullableString = None
    member_id: NullableString = None
    share_session_epoch: Int32 = 0
    is_renew_ack: Annotated[Bool, Since(2)] = False
    topics: list[ShareTopic] = []


class ShareAcknowledgePartition(Part):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    current_leader: LeaderIdAndEpoch = msgspec.field(default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Part):
    topic_id: Uuid = bytes(16)
    partitions: list[ShareAcknowledgePartition] = []


@flexible(0)
class ShareAcknowledgeResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Annotated[Int32, Since(2)] = 0
    responses: list[ShareAcknowledgeTopicResponse] = []
    node_endpoints: list[NodeEndpoint] = []


@flexible(0)
class ShareGroupDescribeRequest(Message):
    group_ids: list[String] = []
    include_authorized_operations: Bool = False


class ShareGroupDescribeTopicPartitions(Part):
    topic_id: Uuid = bytes(16)
    topic_name: String = ""
    partitions: list[Int32] = []


class ShareGroupDescribeAssignment(Part):
    topic_partitions: list[ShareGroupDescribeTopicPartitions] = []


class ShareGroupDescribeMember(Part):
    member_id: String = ""
    rack_id: NullableString = None
    member_epoch: Int32 = 0
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: list[String] = []
    assignment: ShareGroupDescribeAssignment = msgspec.field(default_factory=ShareGroupDescribeAssignment)


class ShareGroupDescribeDescribedGroup(Part):
    error_code: Int16 = 0
    error_message: NullableString = None
    group_id: String = ""
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[ShareGroupDescribeMember] = []
    authorized_operations: Int32 = -2147483648


@flexible(0)
class ShareGroupDescribeResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[ShareGroupDescribeDescribedGroup] = []


class DescribeShareGroupOffsetsRequestTopic(Part):
    topic_name: String = ""
    partitions: list[Int32] = []


class DescribeShareGroupOffsetsRequestGroup(Part):
    group_id: String = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = None


@flexible(0)
class DescribeShareGroupOffsetsRequest(Message):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = []


class DescribeShareGroupOffsetsResponsePartition(Part):
    partition_index: Int32 = 0
    start_offset: Int64 = 0
    leader_epoch: Int32 = 0
    lag: Annotated[Int64, Since(1)] = -1
    error_code: Int16 = 0
    error_message: NullableString = None


class DescribeShareGroupOffsetsResponseTopic(Part):
    topic_name: String = ""
    topic_id: Uuid = bytes(16)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = []


class DescribeShareGroupOffsetsResponseGroup(Part):
    group_id: String = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = []
    error_code: Int16 = 0
    error_message: NullableString = None


@flexible(0)
class DescribeShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = []


class AlterShareGroupOffsetsRequestPartition(Part):
    partition_index: Int32 = 0
    start_offset: Int64 = 0


class AlterShareGroupOffsetsRequestTopic(Part):
    topic_name: String = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = []


@flexible(0)
class AlterShareGroupOffsetsRequest(Message):
    group_id: String = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = []


class AlterShareGroupOffsetsResponsePartition(Part):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None


class AlterShareGroupOffsetsResponseTopic(Part):
    topic_name: String = ""
    topic_id: Uuid = bytes(16)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = []


@flexible(0)
class AlterShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = []


class DeleteShareGroupOffsetsRequestTopic(Part):
    topic_name: String = ""


@flexible(0)
class DeleteShareGroupOffsetsRequest(Message):
    group_id: String = ""
    topics: list[DeleteShareGroupOffsetsRequestTopic] = []


class DeleteShareGroupOffsetsResponseTopic(Part):
    topic_name: String = ""
    topic_id: Uuid = bytes(16)
    error_code: Int16 = 0
    error_message: NullableString = None


@flexible(0)
class DeleteShareGroupOffsetsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: list[DeleteShareGroupOffsetsResponseTopic] = []
