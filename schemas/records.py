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
    #: null is valid data.
    nullable = frozenset({"data"})

    data: JsonValue
    meta: JsonValue = Field(None, description="Any JSON value; an object has at most 64 keys.")
    tag: str | None = Field(None, description="At most 256 bytes; readers can filter by it.")
    node: str | None = Field(None, description="Name of the writer; at most 128 bytes.")
    delay_ms: DelayMs | None = Field(None, description="Queues: the job can be claimed after this many ms.")
    deliver_at: U64 | None = Field(None, description="Queues: the job can be claimed from this time on.")


class AppendRequest(RequestModel):
    """One atomic write: all records or none. They get consecutive seqs, in the order of the array."""

    records: Annotated[list[AppendRecord], Field(min_length=1, max_length=10_000)]
    node: str | None = Field(None, description="For records without a node of their own.")
    idempotency_key: str | None = Field(None, description="Takes precedence over the header Idempotency-Key.")
    idempotency_strict: Flag = Field(False, description="Refuse a repeated key if the records differ.")
    create: Flag = Field(True, description="Create the topic if it does not exist.")
    config: TopicSettings | None = Field(
        None, description="Settings of the topic if this write creates it; otherwise ignored."
    )
    expected_seq: U64 | None = Field(None, description="Refuse the write unless this is the last assigned seq.")
    disable_backpressure: Flag = False

    model_config = _example(
        {"records": [{"data": {"id": 7, "state": "paid"}, "tag": "order.paid"}], "idempotency_key": "order-7-paid"}
    )


class AppendAnswer(AnswerModel):
    topic: str
    partition: int | None = Field(
        None, description="The partition that was written to; omitted if the topic has only one."
    )
    first_seq: int
    last_seq: int
    seqs: list[int] | None = Field(None, description="Omitted with return_seqs=false.")
    head_seq: int
    count: int = Field(description="Number of records of this write.")
    created: bool
    deduped: bool
    payload_differs: bool = Field(False, description="true: a repeated key came with other records. Otherwise omitted.")
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
    """What to read. 0 for limit and max_batch_bytes means the default."""

    from_seq: U64 = Field(0, description="The last seq that the reader has; reading begins after it.")
    limit: U64 = Field(256, description="At most 1000.")
    max_batch_bytes: U64 = Field(
        1_048_576, description="At most 8 MiB. At least one record is returned, whatever its size."
    )
    max_bytes: U64 | None = Field(None, description="An alias of max_batch_bytes, which takes precedence.")
    node: str | list[str] | None = Field(None, description="Exclude records of these nodes.")
    include_tags: Flag = False
    include_meta: Flag = True
    include_data: Flag = True
    wait_ms: U64 = Field(0, description="How long to wait if there is no record; at most 30000.")
    from_ts: U64 | None = Field(None, description="Begin at this time; with from_seq, at the later of both.")
    tag: TagPredicate = None
    epoch: U64 | None = Field(None, description="The epoch of the reader's position.")
    skip_corrupt: Flag = False
    include_stored: Flag = Field(False, description="Return $stored if more is stored than is shown.")

    model_config = _example({"from_seq": 0, "limit": 100, "wait_ms": 0})


class Record(AnswerModel):
    seq: int = Field(alias="$seq")
    ts: int = Field(alias="$ts")
    node: str | None = Field(None, alias="$node", description="Omitted if the record has none.")
    tag: str | None = Field(None, alias="$tag", description="Omitted if the record has none, or without include_tags.")
    stored: str | None = Field(
        None,
        alias="$stored",
        description="The stored body in Base64; omitted if it is what is shown, or without include_stored.",
    )
    data: JsonValue = Field(None)
    meta: JsonValue = Field(None)

    model_config = _example(EXAMPLE_RECORD, extra="forbid")


class RecordAnswer(Record):
    """One record."""

    topic: str
    partition: int | None = Field(default=None, description="Omitted for partition 0.")
    router_blocked: RouterBlocked = None
    performance: RoutedPerformance

    model_config = _example({**EXAMPLE_RECORD, "topic": "orders", "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class Tombstone(AnswerModel):
    """Seqs that are gone before the reader could read them."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "crash", "source_trim", "salvage", "recreated"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffAnswer(AnswerModel):
    topic: str
    partition: int | None = Field(default=None, description="Omitted for partition 0.")
    records: list[Record]
    next_from_seq: int = Field(description="The from_seq for the next read.")
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int
    tombstone: Tombstone | None
    corrupt_seqs: list[int] | None = Field(
        None, description="Damaged records that were skipped, with skip_corrupt. Omitted if there were none."
    )
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
    """The records to delete: before a seq, by tag, or both conditions at once."""

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
    partition: int | None = Field(default=None, description="Omitted for partition 0.")
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
