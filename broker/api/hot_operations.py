"""How the hot routes are described: they do not pass through the framework, which describes the others."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic import BaseModel

from broker.api.answers import CREATED, OK
from broker.api.refusals import refusals
from schemas.names import TOPIC_NAME_PATTERN
from schemas.records import AppendAnswer, AppendRequest, DiffAnswer, DiffRequest, RecordAnswer

TOPIC: dict[str, Any] = {
    "name": "topic",
    "in": "path",
    "required": True,
    "description": "The topic's name.",
    "schema": {"type": "string", "pattern": TOPIC_NAME_PATTERN, "examples": ["orders"]},
}
_SEQ: dict[str, Any] = {
    "name": "seq",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 1, "maximum": 2**64 - 1, "examples": [1]},
}
_IN_QUOTES: Final = r'[^*"\\\x00-\x1f]*'
#: Empty, a tag as it stands (which begins like no JSON and has no *), or one of the predicates.
_TAG_IN_QUERY: Final = (
    rf'^([^*\["][^*]*|"{_IN_QUOTES}"|\["tag", ?"Eq", ?"{_IN_QUOTES}"\]|\["tag", ?"Glob", ?"{_IN_QUOTES}\*"\])?$'
)
_SHAPE = ("include_tags", "include_meta", "include_data", "include_stored")


class HotOperation(msgspec.Struct, kw_only=True):
    """One operation: what the document says of it. One without a model for its answer gives bytes."""

    method: str
    path: str
    name: str
    summary: str
    description: str
    answer: type[BaseModel] | None
    tag: str = "records"
    headers: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"
    example: str = ""
    request: type[BaseModel] | None = None
    body_required: bool = True
    parameters: list[dict[str, Any]]
    successes: dict[int, str]
    refusals: dict[int | str, dict[str, Any]]


def _query(name: str, schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": "query", "required": False, "schema": schema}
    return parameter | ({"description": description} if description else {})


_NUMBER: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**64 - 1}
PARTITION: dict[str, Any] = _query("partition", _NUMBER, "Which partition, counted from 0; 0 unless said.")
_WRITTEN_TO: dict[str, Any] = _query(
    "partition",
    _NUMBER,
    "Which partition, counted from 0. Unless said: the one that knows the key, else 0 with expected_seq, else the one "
    "that the tags belong to (murmur2, as Kafka's clients have it), else one after the other.",
)


def _read_parameters(*only: str) -> list[dict[str, Any]]:
    """The fields of a read, as query parameters."""
    properties: dict[str, Any] = DiffRequest.model_json_schema()["properties"]
    parameters: list[dict[str, Any]] = []
    for name, schema in properties.items():
        if only and name not in only:
            continue
        if name == "node":
            schema = {"type": "array", "items": {"type": "string"}}
        if name == "tag":
            schema = {
                "type": "string",
                "description": 'A tag, or a predicate such as ["tag","Glob","x*"].',
                "pattern": _TAG_IN_QUERY,
            }
        parameters.append(_query(name, schema))
    return parameters


HOT_OPERATIONS = [
    HotOperation(
        method="post",
        path="/v0/topics/{topic}",
        name="append",
        summary="Append records",
        description="All of them or none, with consecutive seqs. Answered when they are as safe as the topic's class "
        "of durability says. 201 when this write made the topic.",
        answer=AppendAnswer,
        request=AppendRequest,
        parameters=[
            TOPIC,
            _WRITTEN_TO,
            _query("return_seqs", {"type": "boolean", "default": True}, "List the seqs of the records."),
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "As idempotency_key in the body, which wins.",
                "schema": {"type": "string"},
            },
        ],
        successes={OK: "Appended, or found under its key.", CREATED: "Appended; the topic was made."},
        refusals=refusals(
            "invalid_request", "batch_too_large", "record_too_large", "topic_not_found", "seq_conflict",
            "idempotency_conflict", "payload_too_large", "unsupported_media_type", "topic_full", "throttled",
            "wal_saturated", "storage_failed", "storage_full",
        ),
    ),
    HotOperation(
        method="post",
        path="/v0/topics/{topic}/diff",
        name="diff",
        summary="Read what came after a seq",
        description="With wait_ms the answer is held back until there is something to give.",
        answer=DiffAnswer,
        request=DiffRequest,
        body_required=False,
        parameters=[TOPIC, PARTITION],
        successes={OK: "What there is."},
        refusals=refusals(
            "invalid_request", "topic_not_found", "payload_too_large", "unsupported_media_type", "throttled",
            "segment_corrupt",
        ),
    ),
    HotOperation(
        method="get",
        path="/v0/topics/{topic}/records",
        name="get_records",
        summary="Read what came after a seq, by query",
        description="The same as POST …/diff.",
        answer=DiffAnswer,
        parameters=[TOPIC, PARTITION, *_read_parameters()],
        successes={OK: "What there is."},
        refusals=refusals("invalid_request", "topic_not_found", "throttled", "segment_corrupt"),
    ),
    HotOperation(
        method="get",
        path="/v0/topics/{topic}/records/{seq}",
        name="get_record",
        summary="Read one record",
        description="When there is none, detail.reason says why: future, expired, evicted, lost or deleted.",
        answer=RecordAnswer,
        parameters=[TOPIC, _SEQ, PARTITION, *_read_parameters(*_SHAPE)],
        successes={OK: "The record."},
        refusals=refusals("invalid_request", "topic_not_found", "not_found", "segment_corrupt"),
    ),
]  # fmt: skip
