"""Committed offsets of groups."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Bool, Int16, Int32, Int64, Message, NullableString, Part, Since, String, Until, flexible


class OffsetCommitRequestPartition(Part):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Since(6)] = -1
    committed_metadata: NullableString = None


class OffsetCommitRequestTopic(Part):
    name: String = ""
    partitions: list[OffsetCommitRequestPartition] = []


@flexible(8)
class OffsetCommitRequest(Message):
    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[NullableString, Since(7)] = None
    retention_time_ms: Annotated[Int64, Until(4)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Part):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Part):
    name: String = ""
    partitions: list[OffsetCommitResponsePartition] = []


@flexible(8)
class OffsetCommitResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: list[OffsetCommitResponseTopic] = []


class OffsetFetchRequestTopic(Part):
    name: Annotated[String, Until(7)] = ""
    partition_indexes: Annotated[list[Int32], Until(7)] = []


class OffsetFetchRequestTopics(Part):
    name: Annotated[String, Since(8)] = ""
    partition_indexes: Annotated[list[Int32], Since(8)] = []


class OffsetFetchRequestGroup(Part):
    group_id: Annotated[String, Since(8)] = ""
    member_id: Annotated[NullableString, Since(9)] = None
    member_epoch: Annotated[Int32, Since(9)] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, Since(8)] = []


@flexible(6)
class OffsetFetchRequest(Message):
    group_id: Annotated[String, Until(7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, Until(7)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], Since(8)] = []
    require_stable: Annotated[Bool, Since(7)] = False


class OffsetFetchResponsePartition(Part):
    partition_index: Annotated[Int32, Until(7)] = 0
    committed_offset: Annotated[Int64, Until(7)] = 0
    committed_leader_epoch: Annotated[Int32, Since(5), Until(7)] = -1
    metadata: Annotated[NullableString, Until(7)] = None
    error_code: Annotated[Int16, Until(7)] = 0


class OffsetFetchResponseTopic(Part):
    name: Annotated[String, Until(7)] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], Until(7)] = []


class OffsetFetchResponsePartitions(Part):
    partition_index: Annotated[Int32, Since(8)] = 0
    committed_offset: Annotated[Int64, Since(8)] = 0
    committed_leader_epoch: Annotated[Int32, Since(8)] = -1
    metadata: Annotated[NullableString, Since(8)] = None
    error_code: Annotated[Int16, Since(8)] = 0


class OffsetFetchResponseTopics(Part):
    name: Annotated[String, Since(8)] = ""
    partitions: Annotated[list[OffsetFetchResponsePartitions], Since(8)] = []


class OffsetFetchResponseGroup(Part):
    group_id: Annotated[String, Since(8)] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], Since(8)] = []
    error_code: Annotated[Int16, Since(8)] = 0


@flexible(6)
class OffsetFetchResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], Until(7)] = []
    error_code: Annotated[Int16, Since(2), Until(7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], Since(8)] = []


class OffsetDeleteRequestPartition(Part):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Part):
    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(Message):
    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Part):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Part):
    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message):
    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []
