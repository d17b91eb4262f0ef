"""What event streams and WebSockets carry.

An event of a stream is described as it is after parsing: its name, its id, and its data as JSON. A WebSocket carries
the same data beside the name.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, RootModel

from schemas.errors import ErrorCode
from schemas.fields import AnswerModel, Flag, JsonValue, PartitionOf, RequestModel
from schemas.queues import ClaimedJob
from schemas.records import AppendAnswer, AppendRequest, Record
from schemas.watch import Subscribe, Unsubscribe, WatchedTopic

_WHERE = "Left out for partition 0."
_POSITION = "The client's position in every topic: send it as Last-Event-ID to continue after this event."


class OfTopic(AnswerModel):
    topic: str
    partition: int | None = Field(None, description=_WHERE)


class Records(OfTopic):
    """Records, in the order of their seqs."""

    records: list[Record]
    from_seq: int = Field(description="Exclusive.")
    to_seq: int = Field(description="The last seq that was examined: continue after it.")
    head_seq: int
    corrupt_seqs: list[int] | None = Field(None, description="Given with skip_corrupt, when there were any.")


class Gap(OfTopic):
    """Seqs that are gone before they could be read, both ends included."""

    reason: Literal["cap", "ttl", "mixed", "crash", "source_trim", "salvage", "recreated", "from_seq_too_old"] = Field(
        description="from_seq_too_old: the gap was there when the stream opened."
    )
    gap_from: int
    gap_to: int
    earliest_seq: int
    head_seq: int


class CaughtUp(OfTopic):
    """The backlog ends here: what follows is live."""

    head_seq: int


class TopicDeleted(OfTopic):
    """No more events of the topic follow, even if it is made again."""

    head_seq: int
    reason: Literal["deleted"]


class StreamFailure(AnswerModel):
    """The end of the stream, or of the topic that is named."""

    code: int | Literal["server_shutting_down"] = Field(description="The status that a request would have got.")
    error: str = Field(description="What went wrong, for people.")
    reason: ErrorCode | Literal["slow_reader"] = Field(description="What went wrong, for programs.")
    topic: str | None = Field(None, description="Left out when the whole stream ends.")
    partition: int | None = Field(None, description=_WHERE)
    detail: dict[str, Any] | None = Field(None, description="Names and numbers that belong to the reason.")


class PushedJob(ClaimedJob):
    """A job, leased to the worker whose stream this is."""

    topic: str


# -- events of a stream ------------------------------------------------------------------------------------------------


class RecordEvent(AnswerModel):
    event: Literal["record"]
    id: str = Field(description=_POSITION)
    data: Records


class TombstoneEvent(AnswerModel):
    event: Literal["tombstone"]
    id: str = Field(description=_POSITION)
    data: Gap


class CaughtUpEvent(AnswerModel):
    event: Literal["caught-up"]
    id: str = Field(description=_POSITION)
    data: CaughtUp


class TopicDeletedEvent(AnswerModel):
    event: Literal["topic-deleted"]
    id: str | None = Field(None, description=_POSITION + " Left out in streams of jobs.")
    data: TopicDeleted


class ErrorEvent(AnswerModel):
    event: Literal["error"]
    data: StreamFailure


class JobEvent(AnswerModel):
    event: Literal["job"]
    id: str = Field(description="The seq of the job.")
    data: PushedJob


class WatchEvent(
    RootModel[
        Annotated[
            RecordEvent | TombstoneEvent | CaughtUpEvent | TopicDeletedEvent | ErrorEvent, Field(discriminator="event")
        ]
    ]
):
    """An event of GET /v0/watch/{wid}."""


class WorkEvent(RootModel[Annotated[JobEvent | TopicDeletedEvent | ErrorEvent, Field(discriminator="event")]]):
    """An event of GET …/work."""


# -- messages of a WebSocket -------------------------------------------------------------------------------------------


class _Command(RequestModel):
    request_id: JsonValue = Field(None, description="Given back in the answer.")


class SubscribeCommand(Subscribe, _Command):
    """One `topic` with where to start in it, or several `topics`, as a map or a list."""

    op: Literal["subscribe"]


class UnsubscribeCommand(Unsubscribe, _Command):
    """These topics are not wanted any more."""

    op: Literal["unsubscribe"]


class PublishCommand(AppendRequest, _Command):
    """Append records to a topic."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"op": "publish", "request_id": 2, "topic": "orders", "records": [{"data": 7}]}]
        }
    )

    op: Literal["publish"]
    topic: str
    partition: PartitionOf | None = Field(None, description="As in an append.")
    return_seqs: Flag = Field(False, description="List the seqs in the ack.")


class PingCommand(_Command):
    op: Literal["ping"]


class SocketCommand(
    RootModel[
        Annotated[SubscribeCommand | UnsubscribeCommand | PublishCommand | PingCommand, Field(discriminator="op")]
    ]
):
    """A message to the broker."""


class _Reply(AnswerModel):
    request_id: JsonValue = Field(None, description="That of the command.")


class SubscribedMessage(_Reply):
    op: Literal["subscribed"]
    topics: dict[str, WatchedTopic]


class UnsubscribedMessage(_Reply):
    op: Literal["unsubscribed"]
    topics: list[str] = Field(description="Those that were watched.")


class AckMessage(AppendAnswer, _Reply):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "op": "ack",
                    "request_id": 2,
                    "topic": "orders",
                    "first_seq": 1,
                    "last_seq": 1,
                    "head_seq": 1,
                    "count": 1,
                    "created": False,
                    "deduped": False,
                    "performance": {"server_total_ms": 0.9, "wal_append_ms": 0.6, "fsync_ms": 0},
                }
            ]
        },
    )

    op: Literal["ack"]


class PongMessage(_Reply):
    op: Literal["pong"]
    ts: int


class RecordMessage(Records):
    op: Literal["record"]


class TombstoneMessage(Gap):
    op: Literal["tombstone"]


class CaughtUpMessage(CaughtUp):
    op: Literal["caught_up"]


class TopicDeletedMessage(TopicDeleted):
    op: Literal["topic_deleted"]


class ErrorMessage(_Reply):
    """A command was refused; or the watch of the named topic, or the connection, ends."""

    op: Literal["error"]
    code: ErrorCode | Literal["invalid_json", "unsupported_message", "slow_reader", "server_shutting_down"]
    message: str
    topic: str | None = None
    partition: int | None = Field(None, description=_WHERE)
    detail: dict[str, Any] | None = Field(None, description="Names and numbers that belong to the code.")


class SocketMessage(
    RootModel[
        Annotated[
            SubscribedMessage
            | UnsubscribedMessage
            | AckMessage
            | PongMessage
            | RecordMessage
            | TombstoneMessage
            | CaughtUpMessage
            | TopicDeletedMessage
            | ErrorMessage,
            Field(discriminator="op"),
        ]
    ]
):
    """A message from the broker."""
