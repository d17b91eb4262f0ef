"""Topics.

Source: docs/reference/api.md#topics.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from schemas.config import EXAMPLE_CONFIG, TopicConfig, TopicType
from schemas.fields import AnswerModel, RouterBlocked
from schemas.performance import Performance, RoutedPerformance
from schemas.queues import QueueState
from schemas.records import EXAMPLE_PERFORMANCE


class TopicPutAnswer(AnswerModel):
    topic: str
    created: bool = Field(description="false: it existed before.")
    config: TopicConfig
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"topic": "orders", "created": True, "config": EXAMPLE_CONFIG, "performance": EXAMPLE_PERFORMANCE}
            ]
        },
        extra="forbid",
    )


class ConsumerFigures(AnswerModel):
    count: int
    lag: int = Field(description="Seqs after the cursor of the slowest consumer.")


class PartitionEntry(AnswerModel):
    """One of several partitions."""

    partition: int
    epoch: int
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    last_write_ts: int | None


class OfflinePartition(AnswerModel):
    """A partition of a topic in a set of cells whose cell is away."""

    partition: int
    cell: int


class TopicAnswer(AnswerModel):
    topic: str
    type: TopicType
    epoch: int = Field(description="It changes when the topic is deleted and created again.")
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int = Field(description="Live records.")
    bytes: int = Field(description="Live bytes of data and meta.")
    config: TopicConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    queue: QueueState | None = Field(default=None, description="For queues; omitted for logs.")
    consumers: ConsumerFigures | None = Field(default=None, description="Omitted if there are none.")
    partitions: list[PartitionEntry] | None = Field(
        default=None,
        description="If there are several. Then count and bytes above are sums, and seqs are those of partition 0.",
    )
    offline_partitions: list[OfflinePartition] | None = Field(
        default=None, description="Those of a cell that is away. They are not in partitions, count and bytes."
    )
    router_blocked: RouterBlocked = None
    performance: RoutedPerformance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "topic": "orders",
                    "type": "log",
                    "epoch": 1,
                    "head_seq": 40,
                    "earliest_seq": 13,
                    "next_seq": 41,
                    "count": 28,
                    "bytes": 2800,
                    "config": EXAMPLE_CONFIG,
                    "effective_priority": 0,
                    "last_write_ts": 1_767_225_600_000,
                    "last_read_ts": None,
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )


class QueueEntry(AnswerModel):
    """The jobs of a queue in a list. The fields mean what they mean in `QueueState`."""

    ready: int
    in_flight: int
    delayed: int
    paused: bool
    oldest_ready_age_ms: int | None = Field(None, description="Omitted when no job is ready.")


class TopicEntry(AnswerModel):
    topic: str
    type: TopicType
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int
    partitions: int | None = Field(None, description="Omitted for topics with one partition.")
    offline_partitions: list[OfflinePartition] | None = Field(
        None, description="Those of a cell that is away. count and bytes are without them."
    )
    queue: QueueEntry | None = Field(None, description="Only of queues.")


class TopicListAnswer(AnswerModel):
    topics: list[TopicEntry]
    next_cursor: str | None = Field(None, description="Omitted on the last page.")
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "topics": [
                        {
                            "topic": "orders",
                            "type": "log",
                            "head_seq": 40,
                            "earliest_seq": 13,
                            "count": 28,
                            "bytes": 2800,
                            "durable": True,
                            "effective_priority": 0,
                        }
                    ],
                    "performance": EXAMPLE_PERFORMANCE,
                }
            ]
        },
        extra="forbid",
    )


class TopicDeleteAnswer(AnswerModel):
    topic: str
    deleted: bool = Field(description="false: it did not exist.")
    routers_removed: list[str]
    performance: Performance

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"topic": "orders", "deleted": True, "routers_removed": [], "performance": EXAMPLE_PERFORMANCE}
            ]
        },
        extra="forbid",
    )
