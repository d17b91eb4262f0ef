"""Writing, reading and deleting records.

Source: docs/reference/api.md#records.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from schemas.config import TopicSettings
from schemas.fields import U64, AnswerModel, DelayMs, Flag, JsonValue, RequestModel, RouterBlocked, TagPredicate
from schemas.performance import Performance, ReadPerformance, RoutedPerformance, WritePerformance

EXAMPLE_RECORD: dict[str, Any] = {"$seq": 1, "$ts": 1_767_225_600_000, "data": {"id": 7, "state": "paid"}}
EXAMPLE_PERFORMANCE: dict[str, Any] = {"server_total_ms": 0.4}


def _example(value: dict[str, Any], **settings: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, **settings)


class AppendRecord(RequestModel):
    #: null is a payload like any other.
    nullable = frozenset({"data"})

    data: JsonValue
    meta: JsonValue = Field(None, description="As data; at most 64 keys when an object.")
    tag: str | None = Field(None, description="At most 256 bytes; readers can filter by it.")
    node: str | None = Field(None, description="Who wrote it, at most 128 bytes.")
    delay_ms: DelayMs | None = Field(None, description="Queues: not to be claimed before that many ms have passed.")
    deliver_at: U64 | None = Field(None, description="Queues: not to be claimed before that time.")


class AppendRequest(RequestModel):
    """One atomic write: all records or none, with consecutive seqs in array order."""

    records: Annotated[list[AppendRecord], Field(min_length=1, max_length=10_000)]
    node: str | None = Field(None, description="For records that name none themselves.")
    idempotency_key: str | None = Field(None, description="Wins over the header Idempotency-Key.")
    idempotency_strict: Flag = Field(False, description="Refuse the key when the payload differs.")
    create: Flag = Field(True, description="Make the topic when there is none.")
    config: TopicSettings | None = Field(None, description="Counts only when this write makes the topic.")
    expected_seq: U64 | None = Field(None, description="The last assigned seq, or the write is refused.")
    disable_backpressure: Flag = False

    model_config = _example(
        {"records": [{"data": {"id": 7, "state": "paid"}, "tag": "order.paid"}], "idempotency_key": "order-7-paid"}
    )


class AppendAnswer(AnswerModel):
    topic: str
    partition: int | None = Field(None, description="Where it went; left out for a topic of one partition.")
    first_seq: int
    last_seq: int
    seqs: list[int] | None = Field(None, description="Left out with return_seqs=false.")
    head_seq: int
    count: int = Field(description="Records of this write.")
    created: bool
    deduped: bool
    payload_differs: bool = Field(False, description="Given, and true, when a repeated key came with other records.")
    performance: WritePerformance

    model_config = _example(
        {
            "topic": "orders",
            "first_seq": 1,
            "last_seq": 1,
            "seqs": [1],
            "head_seq": 1,
            "count": 1,
            "created": True,
            "deduped": False,
            "performance": {"server_total_ms": 0.9, "wal_append_ms": 0.6, "fsync_ms": 0},
        },
        extra="forbid",
    )


class DiffRequest(RequestModel):
    """What to read. 0 for limit and max_batch_bytes means their default."""

    from_seq: U64 = Field(0, description="Exclusive: the seq of the last record already seen.")
    limit: U64 = Field(256, description="At most 1000.")
    max_batch_bytes: U64 = Field(1_048_576, description="At most 8 MiB; at least one record is given.")
    max_bytes: U64 | None = Field(None, description="Another name for max_batch_bytes, which wins.")
    node: str | list[str] | None = Field(None, description="Leave out what these nodes wrote.")
    include_tags: Flag = False
    include_meta: Flag = True
    include_data: Flag = True
    wait_ms: U64 = Field(0, description="Wait so long for a record when there is none; at most 30000.")
    from_ts: U64 | None = Field(None, description="Not before this time; with from_seq the later of the two.")
    tag: TagPredicate = None
    epoch: U64 | None = Field(None, description="The epoch the reader's position belongs to.")
    skip_corrupt: Flag = False
    include_stored: Flag = Field(False, description="Give $stored, too, where more is stored than is shown.")

    model_config = _example({"from_seq": 0, "limit": 100, "wait_ms": 0})


class Record(AnswerModel):
    seq: int = Field(alias="$seq")
    ts: int = Field(alias="$ts")
    node: str | None = Field(None, alias="$node", description="Left out when the record has none.")
    tag: str | None = Field(None, alias="$tag", description="Left out when it has none or was not asked for.")
    stored: str | None = Field(
        None,
        alias="$stored",
        description="The stored body in Base64; left out when it is what is shown, or not asked for.",
    )
    data: JsonValue = Field(None)
    meta: JsonValue = Field(None)

    model_config = _example(EXAMPLE_RECORD, extra="forbid")


class RecordAnswer(Record):
    """One record."""

    topic: str
    partition: int | None = Field(default=None, description="Left out for partition 0.")
    router_blocked: RouterBlocked = None
    performance: RoutedPerformance

    model_config = _example({**EXAMPLE_RECORD, "topic": "orders", "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class Tombstone(AnswerModel):
    """Records that were lost before they could be read."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "crash", "source_trim", "salvage", "recreated"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffAnswer(AnswerModel):
    topic: str
    partition: int | None = Field(default=None, description="Left out for partition 0.")
    records: list[Record]
    next_from_seq: int = Field(description="The from_seq to go on with.")
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: Tombstone | None
    corrupt_seqs: list[int] | None = Field(None, description="Given with skip_corrupt, when there were any.")
    router_blocked: RouterBlocked = None
    performance: ReadPerformance

    model_config = _example(
        {
            "topic": "orders",
            "records": [EXAMPLE_RECORD],
            "next_from_seq": 1,
            "head_seq": 1,
            "earliest_seq": 1,
            "caught_up": True,
            "lag": 0,
            "tombstone": None,
            "performance": {"server_total_ms": 0.2, "records_scanned": 1, "cold_segments_read": 0},
        },
        extra="forbid",
    )


class DeleteRecordsRequest(RequestModel):
    """Which records to delete for good: below a seq, by tag, or both at once."""

    before_seq: U64 | None = None
    match: TagPredicate = None

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"before_seq": 100, "match": ["tag", "Glob", "order.*"]}],
            "minProperties": 1,
        }
    )


class DeleteRecordsAnswer(AnswerModel):
    topic: str
    partition: int | None = Field(default=None, description="Left out for partition 0.")
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance

    model_config = _example(
        {
            "topic": "orders",
            "deleted": 12,
            "earliest_seq": 13,
            "head_seq": 40,
            "count": 28,
            "bytes": 2800,
            "performance": EXAMPLE_PERFORMANCE,
        },
        extra="forbid",
    )
