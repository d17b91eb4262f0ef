"""Offsets of a partition: by time, and by leader epoch."""

from __future__ import annotations

from typing import Annotated

from broker.kafka.codec import Int8, Int16, Int32, Int64, Message, Part, Since, String, flexible


class ListOffsetsPartition(Part):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Since(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Part):
    name: String = ""
    partitions: list[ListOffsetsPartition] = []


@flexible(6)
class ListOffsetsRequest(Message):
    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Since(2)] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, Since(10)] = 0


class ListOffsetsPartitionResponse(Part):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Since(4)] = -1


class ListOffsetsTopicResponse(Part):
    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = []


@flexible(6)
class ListOffsetsResponse(Message):
    throttle_time_ms: Annotated[Int32, Since(2)] = 0
    topics: list[ListOffsetsTopicResponse] = []


class OffsetForLeaderEpochOffsetForLeaderPartition(Part):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderEpochOffsetForLeaderTopic(Part):
    topic: String = ""
    partitions: list[OffsetForLeaderEpochOffsetForLeaderPartition] = []


@flexible(4)
class OffsetForLeaderEpochRequest(Message):
    replica_id: Annotated[Int32, Since(3)] = -2
    topics: list[OffsetForLeaderEpochOffsetForLeaderTopic] = []


class OffsetForLeaderEpochEpochEndOffset(Part):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderEpochOffsetForLeaderTopicResult(Part):
    topic: String = ""
    partitions: list[OffsetForLeaderEpochEpochEndOffset] = []


@flexible(4)
class OffsetForLeaderEpochResponse(Message):
    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderEpochOffsetForLeaderTopicResult] = []
