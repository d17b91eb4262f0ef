"""Brokers, topics, partitions, and coordinators."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import (
    Bool,
    Int8,
    Int16,
    Int32,
    Message,
    NullableString,
    Part,
    Since,
    String,
    Until,
    Uuid,
    flexible,
)


class MetadataRequestTopic(Part):
    topic_id: Annotated[Uuid, Since(10)] = bytes(16)
    name: NullableString = None


@flexible(9)
class MetadataRequest(Message):
    topics: list[MetadataRequestTopic] | None = []
    allow_auto_topic_creation: Annotated[Bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[Bool, Since(8)] = False


class MetadataResponseBroker(Part):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[NullableString, Since(1)] = None


class MetadataResponsePartition(Part):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], Since(5)] = []


class MetadataResponseTopic(Part):
    error_code: Int16 = 0
    name: NullableString = None
    topic_id: Annotated[Uuid, Since(10)] = bytes(16)
    is_internal: Annotated[Bool, Since(1)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, Since(8)] = -2147483648


@flexible(9)
class MetadataResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[NullableString, Since(2)] = None
    controller_id: Annotated[Int32, Since(1)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = -2147483648
    error_code: Annotated[Int16, Since(13)] = 0


@flexible(3)
class FindCoordinatorRequest(Message):
    key: Annotated[String, Until(3)] = ""
    key_type: Annotated[Int8, Since(1)] = 0
    coordinator_keys: Annotated[list[String], Since(4)] = []


class FindCoordinatorCoordinator(Part):
    key: Annotated[String, Since(4)] = ""
    node_id: Annotated[Int32, Since(4)] = -1
    host: Annotated[String, Since(4)] = ""
    port: Annotated[Int32, Since(4)] = -1
    error_code: Annotated[Int16, Since(4)] = 0
    error_message: Annotated[NullableString, Since(4)] = None


@flexible(3)
class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    error_code: Annotated[Int16, Until(3)] = 0
    error_message: Annotated[NullableString, Since(1), Until(3)] = None
    node_id: Annotated[Int32, Until(3)] = 0
    host: Annotated[String, Until(3)] = ""
    port: Annotated[Int32, Until(3)] = 0
    coordinators: Annotated[list[FindCoordinatorCoordinator], Since(4)] = []


@flexible(0)
class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[Bool, Since(2)] = False


class DescribeClusterBroker(Part):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: NullableString = None
    is_fenced: Annotated[Bool, Since(2)] = False


@flexible(0)
class DescribeClusterResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsTopicRequest(Part):
    name: String = ""


class DescribeTopicPartitionsCursor(Part):
    topic_name: String = ""
    partition_index: Int32 = 0


@flexible(0)
class DescribeTopicPartitionsRequest(Message):
    topics: list[DescribeTopicPartitionsTopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsCursor | None = None


class DescribeTopicPartitionsResponsePartition(Part):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    # Kafka allows null for these two, but Java's client iterates over them without a check: they are empty, never null.
    eligible_leader_replicas: list[Int32] = []
    last_known_elr: list[Int32] = []
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Part):
    error_code: Int16 = 0
    name: NullableString = None
    topic_id: Uuid = bytes(16)
    is_internal: Bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -2147483648


class DescribeTopicPartitionsCursorResponse(Part):
    topic_name: String = ""
    partition_index: Int32 = 0


@flexible(0)
class DescribeTopicPartitionsResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: DescribeTopicPartitionsCursorResponse | None = None
