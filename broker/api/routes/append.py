"""POST /v0/topics/{topic}: the hot way in. The body becomes `NewRecord`s without a copy of its payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.api import append_body, render
from broker.api.answers import CREATED, OK, Answer
from broker.api.operation import NUMBER, TOPIC, Operation, in_header, in_query
from broker.api.record_count import check_count
from broker.api.request import Request
from broker.auth.rules import Rule
from broker.auth.scopes import WRITE, WRITE_ADMIN
from broker.service import appends
from broker.tracing import notes
from schemas.records import AppendAnswer, AppendRequest
from storage.errors import InvalidRequest


async def append(request: Request) -> Answer:
    body = await request.body()
    await check_count(body, request.broker.engine.options.max_batch_records)
    write = await write_of(request.values[0], body, lambda: _key(request))
    write.partition = request.partition()
    if write.settings is not None:
        request.access.require(WRITE_ADMIN, appends.names_of(write))
    seqs = request.query.flag("return_seqs", True) if request.scope["query_string"] else True
    done = await appends.append(request.broker.engine, write, request.broker.pressure)
    if request.broker.tracing is not None:
        request.note = notes.appended(done, write.records)
    text = render.appended(done, seqs=seqs, started=request.started)
    return Answer(text, status=CREATED if done.created else OK)


async def write_of(topic: str, raw: bytes, key: Callable[[], str | None] = lambda: None) -> appends.Append:
    """The write that a body asks for; `key` counts when the body has none. Raises InvalidRequest."""
    body, records = await append_body.decode_any(raw)
    return appends.Append(
        topic=topic,
        records=records,
        node=body.node or None,
        idempotency_key=body.idempotency_key or key(),
        idempotency_strict=body.idempotency_strict is True,
        create=body.create is not False,
        settings=append_body.settings(body),
        expected_seq=body.expected_seq,
        disable_backpressure=body.disable_backpressure is True,
    )


def _key(request: Request) -> str | None:
    """The Idempotency-Key header; an empty one is none."""
    value = request.headers.get(b"idempotency-key")
    if not value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("Idempotency-Key: not UTF-8.", field="Idempotency-Key") from None


_WRITTEN_TO: Final = in_query(
    "partition",
    NUMBER,
    "Which partition, counted from 0. Unless said: the one that knows the key, else 0 with expected_seq, else the one "
    "that the tags belong to (murmur2, as Kafka's clients have it), else one after the other.",
)


OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v0/topics/{topic}",
        name="append",
        handler=append,
        rule=Rule(WRITE),
        summary="Append records",
        description="All of them or none, with consecutive seqs. Answered when they are as safe as the topic's class "
        "of durability says. 201 when this write made the topic.",
        answer=AppendAnswer,
        request=AppendRequest,
        parameters=(
            TOPIC,
            _WRITTEN_TO,
            in_query("return_seqs", {"type": "boolean", "default": True}, "List the seqs of the records."),
            in_header("Idempotency-Key", "As idempotency_key in the body, which wins.")),
        successes={OK: "Appended, or found under its key.", CREATED: "Appended; the topic was made."},
        refusals=(
            "invalid_request", "batch_too_large", "record_too_large", "topic_not_found", "seq_conflict",
            "idempotency_conflict", "payload_too_large", "unsupported_media_type", "topic_full", "throttled",
            "wal_saturated", "storage_failed", "storage_full",
        ),
    ),
]  # fmt: skip
