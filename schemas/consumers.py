"""Consumers: readers whose cursor the broker keeps.

Source: docs/reference/api.md#consumers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator

from schemas.fields import MAX_U64, U64, AnswerModel, AttemptKey, ChangeModel, ConfigModel, Flag, RequestModel
from schemas.performance import Performance
from schemas.records import EXAMPLE_PERFORMANCE, EXAMPLE_RECORD, DiffAnswer

Consistency = Literal["at_least_once", "strictly_at_once"]
Edge = Literal["earliest", "head"]

EXAMPLE_CONSUMER: dict[str, Any] = {
    "topic": "orders",
    "consumer": "billing",
    "consistency": "at_least_once",
    "persist_every": 1000,
    "cursor_seq": 40,
    "durable_seq": 40,
    "unread": 2,
    "lag": 2,
}


def _example(value: dict[str, Any], **settings: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, **settings)


def _start(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_U64
    if not whole and value not in ("earliest", "head"):
        raise ValueError("expected earliest, head or a seq")
    return value


StartAt = Annotated[
    int | Edge,
    PlainValidator(_start),
    WithJsonSchema({"anyOf": [{"enum": ["earliest", "head"]}, {"type": "integer", "minimum": 0, "maximum": MAX_U64}]}),
]


#: A word is moved to `to` before validation.
SeekTo = Annotated[
    U64,
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_U64}, {"enum": ["earliest", "head"]}]}),
]


#: The engine checks the limits.
PersistEvery = Annotated[U64, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 1_000_000_000})]


class _Promise(ConfigModel):
    consistency: Consistency = Field(
        "at_least_once",
        description="After a crash of the broker: some records may be delivered again, or (strictly_at_once) none.",
    )
    persist_every: PersistEvery = Field(
        1000, description="at_least_once: the most records that are delivered again after a crash."
    )


class ConsumerRequest(_Promise):
    """The settings of a consumer, and the position where a new one begins."""

    start: StartAt = Field(
        "earliest",
        description="Where a new consumer begins: at the oldest record, at the head, or after a seq.",
    )

    model_config = _example({"consistency": "at_least_once", "persist_every": 1000, "start": "earliest"})


class ConsumerChange(_Promise, ChangeModel):
    """Changes of a consumer's settings. Omitted fields stay."""

    model_config = _example({"persist_every": 100})

    @model_validator(mode="before")
    @classmethod
    def _start_is_over(cls, value: Any) -> Any:
        if isinstance(value, dict) and "start" in value:
            raise ValueError("start applies only to a new consumer; use seek to move an existing one")
        return value  # pyright: ignore[reportUnknownVariableType]


class ConsumerEntry(AnswerModel):
    """The state of a consumer."""

    topic: str
    partition: int | None = Field(default=None, description="Omitted for partition 0.")
    consumer: str
    consistency: Consistency
    persist_every: int
    cursor_seq: int = Field(description="The last seq that was delivered or committed: the next read begins after it.")
    durable_seq: int = Field(description="The cursor that the consumer would have after a crash of the broker now.")
    unread: int = Field(description="Live records after the cursor.")
    lag: int = Field(description="Seqs after the cursor.")


class ConsumerPutAnswer(ConsumerEntry):
    created: bool
    performance: Performance

    model_config = _example({**EXAMPLE_CONSUMER, "created": True, "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class ConsumerAnswer(ConsumerEntry):
    performance: Performance

    model_config = _example({**EXAMPLE_CONSUMER, "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class ConsumerListAnswer(AnswerModel):
    topic: str
    consumers: list[ConsumerEntry]
    next_cursor: str | None = Field(None, description="Omitted on the last page.")
    performance: Performance

    model_config = _example(
        {"topic": "orders", "consumers": [EXAMPLE_CONSUMER], "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class AllConsumersAnswer(AnswerModel):
    consumers: list[ConsumerEntry]
    next_cursor: str | None = Field(None, description="Omitted on the last page.")
    performance: Performance

    model_config = _example({"consumers": [EXAMPLE_CONSUMER], "performance": EXAMPLE_PERFORMANCE}, extra="forbid")


class ConsumerDeleteAnswer(AnswerModel):
    topic: str
    consumer: str
    deleted: bool = Field(description="false: it did not exist.")
    performance: Performance

    model_config = _example(
        {"topic": "orders", "consumer": "billing", "deleted": True, "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class ConsumerReadRequest(RequestModel):
    """How to read. 0 for limit and max_batch_bytes means the default."""

    limit: U64 = Field(256, description="At most 1000.")
    max_batch_bytes: U64 = Field(
        1_048_576, description="At most 8 MiB. At least one record is returned, whatever its size."
    )
    max_bytes: U64 | None = Field(None, description="An alias of max_batch_bytes, which takes precedence.")
    checkpoint: Flag = Field(True, description="true: a read moves the cursor; false: only a commit moves it.")
    wait_ms: U64 = Field(0, description="How long to wait if there is no record; at most 30000.")
    node: str | list[str] | None = Field(None, description="Exclude records of these nodes.")
    attempt_key: AttemptKey | None = Field(
        None, description="At most 128 bytes. The same key within 60 s gets the same answer again."
    )
    include_tags: Flag = False
    include_meta: Flag = True
    include_data: Flag = True
    skip_corrupt: Flag = False

    model_config = _example({"limit": 100, "wait_ms": 0, "attempt_key": "worker-7/41"})


class ConsumerReadAnswer(DiffAnswer):
    """The records, and the cursor of the consumer."""

    consumer: str
    cursor_seq: int = Field(description="The next read begins after this seq.")
    unread: int = Field(description="Live records after the cursor.")
    repeated: bool = Field(False, description="true: this answer was given before for the same key. Otherwise omitted.")

    model_config = _example(
        {
            "topic": "orders",
            "records": [EXAMPLE_RECORD],
            "next_from_seq": 1,
            "head_seq": 3,
            "earliest_seq": 1,
            "caught_up": False,
            "lag": 2,
            "tombstone": None,
            "consumer": "billing",
            "cursor_seq": 1,
            "unread": 2,
            "performance": {"server_total_ms": 0.2, "records_scanned": 1, "cold_segments_read": 0},
        },
        extra="forbid",
    )


class CommitRequest(RequestModel):
    """The new cursor."""

    seq: U64 = Field(description="The last processed seq.")
    epoch: U64 | None = Field(
        None, description="The epoch of the topic that the seq is of; the default is the present one."
    )

    model_config = _example({"seq": 1})


class SeekRequest(RequestModel):
    """The new position: exactly one of seq, ts and to."""

    seq: SeekTo | None = Field(None, description="After this seq; earliest and head are accepted as in to.")
    ts: U64 | None = Field(None, description="At the first record of this time or later.")
    to: Edge | None = Field(None, description="At the oldest record (earliest), or after the newest one (head).")

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "earliest"}], "minProperties": 1})

    @model_validator(mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        """Turn {"earliest": true}, {"head": true} and a word in seq into `to`."""
        if not isinstance(value, dict):
            return value
        fields: dict[str, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        for word in ("earliest", "head"):
            if fields.get(word) is True:
                fields.setdefault("to", word)
            if fields.get("seq") == word:
                del fields["seq"]
                fields.setdefault("to", word)
        return fields
