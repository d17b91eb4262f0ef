"""Creating, extending and deleting topics, and deleting records."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Until,
    Uuid,
    flexible,
)


class CreateTopicsCreatableReplicaAssignment(Part):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreateTopicsCreatableTopicConfig(Part):
    name: String = ""
    value: NullableString = None


class CreateTopicsCreatableTopic(Part):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreateTopicsCreatableReplicaAssignment] = []
    configs: list[CreateTopicsCreatableTopicConfig] = []


@flexible(5)
class CreateTopicsRequest(Message):
    topics: list[CreateTopicsCreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = False


class CreateTopicsCreatableTopicConfigs(Part):
    name: Annotated[String, Since(5)] = ""
    value: Annotated[NullableString, Since(5)] = None
    read_only: Annotated[Bool, Since(5)] = False
    config_source: Annotated[Int8, Since(5)] = -1
    is_sensitive: Annotated[Bool, Since(5)] = False


class CreateTopicsCreatableTopicResult(Part):
    name: String = ""
    topic_id: Annotated[Uuid, Since(7)] = bytes(16)
    error_code: Int16 = 0
    error_message: NullableString = None
    num_partitions: Annotated[Int32, Since(5)] = -1
    replication_factor: Annotated[Int16, Since(5)] = -1
    configs: Annotated[list[CreateTopicsCreatableTopicConfigs] | None, Since(5)] = []


@flexible(5)
class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[CreateTopicsCreatableTopicResult] = []


class DeleteTopicsDeleteTopicState(Part):
    name: Annotated[NullableString, Since(6)] = None
    topic_id: Annotated[Uuid, Since(6)] = bytes(16)


@flexible(4)
class DeleteTopicsRequest(Message):
    topics: Annotated[list[DeleteTopicsDeleteTopicState], Since(6)] = []
    topic_names: Annotated[list[String], Until(5)] = []
    timeout_ms: Int32 = 0


class DeleteTopicsDeletableTopicResult(Part):
    #: Null only from version 6 on, for an unknown id.
    name: NullableString = ""
    topic_id: Annotated[Uuid, Since(6)] = bytes(16)
    error_code: Int16 = 0
    error_message: Annotated[NullableString, Since(5)] = None


@flexible(4)
class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[DeleteTopicsDeletableTopicResult] = []


class CreatePartitionsAssignment(Part):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Part):
    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


@flexible(2)
class CreatePartitionsRequest(Message):
    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Part):
    name: String = ""
    error_code: Int16 = 0
    error_message: NullableString = None


@flexible(2)
class CreatePartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class DeleteRecordsPartition(Part):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Part):
    name: String = ""
    partitions: list[DeleteRecordsPartition] = []


@flexible(2)
class DeleteRecordsRequest(Message):
    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Part):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Part):
    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = []


@flexible(2)
class DeleteRecordsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []


class DescribeLogDirsDescribableLogDirTopic(Part):
    topic: String = ""
    partitions: list[Int32] = []


@flexible(2)
class DescribeLogDirsRequest(Message):
    topics: list[DescribeLogDirsDescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Part):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Part):
    name: String = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Part):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1
    is_cordoned: Annotated[Bool, Since(5)] = False


@flexible(2)
class DescribeLogDirsResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Since(3)] = 0
    results: list[DescribeLogDirsResult] = []
