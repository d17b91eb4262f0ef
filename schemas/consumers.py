"""Consumers: readers whose position the broker keeps.

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


#: A word is moved to `to` before this is looked at.
SeekTo = Annotated[
    U64,
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_U64}, {"enum": ["earliest", "head"]}]}),
]


#: The engine decides, and says how many.
PersistEvery = Annotated[U64, WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 1_000_000_000})]


class _Promise(ConfigModel):
    consistency: Consistency = Field(
        "at_least_once",
        description="After a crash of the broker: some records may come again, or (strictly_at_once) none does.",
    )
    persist_every: PersistEvery = Field(
        1000, description="at_least_once: no more records than this come again after a crash."
    )


class ConsumerRequest(_Promise):
    """What a crash of the broker may do to the position, and where a new consumer begins."""

    start: StartAt = Field(
        "earliest",
        description="Of a new consumer: with the oldest record there is, with what comes from now on, or behind a seq.",
    )

    model_config = _example({"consistency": "at_least_once", "persist_every": 1000, "start": "earliest"})


class ConsumerChange(_Promise, ChangeModel):
    """What a crash of the broker may do to the position. Fields left out stay as they are."""

    model_config = _example({"persist_every": 100})

    @model_validator(mode="before")
    @classmethod
    def _start_is_over(cls, value: Any) -> Any:
        if isinstance(value, dict) and "start" in value:
            raise ValueError("start counts when a consumer is made; seek moves one that is there")
        return value  # pyright: ignore[reportUnknownVariableType]


class ConsumerEntry(AnswerModel):
    """A consumer as it is now."""

    topic: str
    partition: int | None = Field(default=None, description="Left out for partition 0.")
    consumer: str
    consistency: Consistency
    persist_every: int
    cursor_seq: int = Field(description="The seq handed out, or committed, last: reads go on behind it.")
    durable_seq: int = Field(description="What a crash of the broker at this moment would set it back to.")
    unread: int = Field(description="Live records behind the cursor.")
    lag: int = Field(description="Seqs behind the cursor.")


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
    next_cursor: str | None = Field(None, description="Left out on the last page.")
    performance: Performance

    model_config = _example(
        {"topic": "orders", "consumers": [EXAMPLE_CONSUMER], "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class ConsumerDeleteAnswer(AnswerModel):
    topic: str
    consumer: str
    deleted: bool = Field(description="False when there was none.")
    performance: Performance

    model_config = _example(
        {"topic": "orders", "consumer": "billing", "deleted": True, "performance": EXAMPLE_PERFORMANCE}, extra="forbid"
    )


class ConsumerReadRequest(RequestModel):
    """How much to read. 0 for limit and max_batch_bytes means their default."""

    limit: U64 = Field(256, description="At most 1000.")
    max_batch_bytes: U64 = Field(1_048_576, description="At most 8 MiB; at least one record is given.")
    max_bytes: U64 | None = Field(None, description="Another name for max_batch_bytes, which wins.")
    checkpoint: Flag = Field(True, description="The cursor passes what is handed out; false: only a commit moves it.")
    wait_ms: U64 = Field(0, description="Wait so long for a record when there is none; at most 30000.")
    node: str | list[str] | None = Field(None, description="Leave out what these nodes wrote.")
    attempt_key: AttemptKey | None = Field(
        None, description="At most 128 bytes. The same key within 60 s is given the same answer again."
    )
    include_tags: Flag = False
    include_meta: Flag = True
    include_data: Flag = True
    skip_corrupt: Flag = False

    model_config = _example({"limit": 100, "wait_ms": 0, "attempt_key": "worker-7/41"})


class ConsumerReadAnswer(DiffAnswer):
    """A read, and where it leaves the consumer."""

    consumer: str
    cursor_seq: int = Field(description="Where the next read goes on.")
    unread: int = Field(description="Live records behind the cursor.")
    repeated: bool = Field(False, description="Given, and true, when the key was answered before.")

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
    """How far the reader has come."""

    seq: U64 = Field(description="The last seq that is done, this one included.")

    model_config = _example({"seq": 1})


class SeekRequest(RequestModel):
    """Where to go on: exactly one of seq, ts and to."""

    seq: SeekTo | None = Field(None, description="Behind this seq; earliest and head are taken as in to.")
    ts: U64 | None = Field(None, description="With the first record of this time or later.")
    to: Edge | None = Field(None, description="With the oldest record there is, or with what comes from now on.")

    model_config = ConfigDict(json_schema_extra={"examples": [{"to": "earliest"}], "minProperties": 1})

    @model_validator(mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        """{"earliest": true}, {"head": true} and a word in seq are other ways to say `to`."""
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
