"""Watching topics.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from schemas.fields import U64, AnswerModel, Flag, PartitionOf, RequestModel
from schemas.names import TOPIC_NAME_PATTERN
from schemas.performance import RoutedPerformance
from schemas.records import EXAMPLE_PERFORMANCE


def _example(value: dict[str, Any], **settings: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, **settings)


class WatchStart(RequestModel):
    """Where to start in a topic. The default is after the newest record."""

    partition: PartitionOf | None = Field(None, description="Counted from 0; the default is 0.")
    partitions: Annotated[list[PartitionOf], Field(min_length=1)] | None = Field(
        None, description="Several partitions, besides partition if it is given. from_seq and tail apply to each."
    )
    from_seq: U64 | None = Field(None, description="The last seq that the reader has; watching begins after it.")
    tail: Flag | U64 | None = Field(
        None, description="true: after the newest record; a number: that many seqs earlier."
    )


class WatchRequest(RequestModel):
    """What to watch, and how to show records. 0 for limit, max_batch_bytes, heartbeat_ms means the default."""

    topics: Annotated[
        dict[str, WatchStart | None],
        Field(
            description="1 to 256 topics by name.",
            json_schema_extra={
                "minProperties": 1,
                "maxProperties": 256,
                "propertyNames": {"pattern": TOPIC_NAME_PATTERN},
            },
        ),
    ]
    node: str | list[str] | None = Field(None, description="Exclude records of these nodes.")
    limit: U64 = Field(256, description="The most records in one event; at most 1000.")
    max_batch_bytes: U64 = Field(
        262_144, description="The most bytes of an event, unless its only record is larger; ≤ 8 MiB."
    )
    heartbeat_ms: U64 = Field(
        15_000, description="A heartbeat is sent after this long without events; clamped to 1000 … 60000."
    )
    include_meta: Flag = True
    include_tags: Flag = False
    include_data: Flag = True
    consistency: Literal["eventual", "strong"] = Field("eventual", description="strong: only records that are synced.")
    skip_corrupt: Flag = Field(False, description="Continue after damaged records, and list them in corrupt_seqs.")

    model_config = _example({"topics": {"orders": {"from_seq": 0}, "payments": {}}, "node": "till-1"})


class WatchedPartition(AnswerModel):
    partition: int
    from_seq: int = Field(description="Watching begins after this seq.")
    head_seq: int
    earliest_seq: int


class WatchedTopic(AnswerModel):
    """The seqs are those of the first watched partition."""

    from_seq: int = Field(description="Watching begins after this seq.")
    head_seq: int
    earliest_seq: int
    partitions: list[WatchedPartition] = Field(
        default_factory=list[WatchedPartition], description="Each watched partition, if there are several."
    )


class WatchAnswer(AnswerModel):
    wid: str
    stream_url: str = Field(description="URL of the event stream.")
    session_ttl_ms: int = Field(description="How long the session exists after its last stream has ended.")
    topics: dict[str, WatchedTopic]
    performance: RoutedPerformance

    model_config = _example(
        {
            "wid": "wid_9vKX3Zb1Qm0Rr2Tt4Yy6Ug",
            "stream_url": "/v0/watch/wid_9vKX3Zb1Qm0Rr2Tt4Yy6Ug",
            "session_ttl_ms": 300_000,
            "topics": {
                "orders": {"from_seq": 0, "head_seq": 40, "earliest_seq": 13},
                "payments": {"from_seq": 7, "head_seq": 7, "earliest_seq": 1},
            },
            "performance": EXAMPLE_PERFORMANCE,
        },
        extra="forbid",
    )


class Unsubscribe(RequestModel):
    """A WebSocket message: stop watching these topics."""

    topic: str | None = None
    topics: list[str] | dict[str, Any] | None = None
    partition: U64 | None = Field(None, description="The partition of each topic; the default is 0.")
    partitions: Annotated[list[PartitionOf], Field(min_length=1)] | None = Field(
        None, description="Several partitions of each topic, besides partition if it is given."
    )

    def names(self) -> list[str]:
        """The named topics, each once."""
        return list(dict.fromkeys([*([] if self.topic is None else [self.topic]), *(self.topics or ())]))


class Subscribe(WatchStart):
    """A WebSocket message: watch one `topic` from a position, or several `topics`, as a map or a list."""

    topic: str | None = None
    topics: list[str] | dict[str, WatchStart | None] | None = None
    node: str | list[str] | None = None
    limit: U64 = 1000
    max_batch_bytes: U64 = 1_048_576
    include_meta: Flag = True
    include_tags: Flag = False
    include_data: Flag = True
    consistency: Literal["eventual", "strong"] = "eventual"
    skip_corrupt: Flag = False
    lenient: Flag = False

    def starts(self) -> dict[str, WatchStart | None]:
        """The named topics, each with the position to start at."""
        found: dict[str, WatchStart | None] = {}
        if self.topic is not None:
            found[self.topic] = WatchStart(
                partition=self.partition, partitions=self.partitions, from_seq=self.from_seq, tail=self.tail
            )
        if isinstance(self.topics, list):
            return {**found, **dict.fromkeys(self.topics)}
        return {**found, **(self.topics or {})}
