"""POST /v0/topics/{topic}: the hot way in. The body becomes `NewRecord`s without a copy of its payloads."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.api import append_body, render, slices
from broker.api.answers import CREATED, OK, Answer
from broker.api.append_body import AppendBody, Records
from broker.api.operation import NUMBER, TOPIC, Operation, in_header, in_query
from broker.api.pending import Outcome, Pending, awaited
from broker.api.record_count import check_count
from broker.api.request import Request
from broker.auth.rules import Rule
from broker.auth.scopes import WRITE, WRITE_ADMIN
from broker.service import appends
from broker.tracing import notes
from schemas.records import AppendAnswer, AppendRequest
from storage.errors import InvalidRequest
from storage.records.values import Appended


def append(request: Request) -> Outcome:
    """A write of which nothing has to be waited for but its commit is pending in the engine: no task is needed."""
    raw = request.body
    if len(raw) <= slices.LARGE_BYTES:
        try:
            return _append(request, *append_body.decode(raw))
        except append_body.MayBeDeep:
            pass
    return _append_large(request)


async def _append_large(request: Request) -> Answer:
    await check_count(request.body, request.broker.engine.options.max_batch_records)
    return await awaited(_append(request, *await append_body.decode_any(request.body)))


def _append(request: Request, body: AppendBody, records: Records) -> Outcome:
    broker = request.broker
    key = body.idempotency_key or None
    if key is None and b"idempotency-key" in request.headers:
        key = _key(request.headers[b"idempotency-key"])
    partition, seqs = None, True
    if request.query_string:
        partition, seqs = request.partition(), request.query.flag("return_seqs", True)
    append_on = partial(_append_on, request, body, records, key, partition, seqs)
    if not body.disable_backpressure:
        broker.pressure.check()
    if not partition and body.expected_seq is None and not body.config and not body.idempotency_strict:
        pending = Pending(partial(_appended, request, records, seqs), append_on)
        if appends.try_append(
            broker.engine, request.values[0], records, body.node or None, key, pending.resolve, pending.leave
        ):
            return pending
    return append_on()


async def _append_on(
    request: Request, body: AppendBody, records: Records, key: str | None, partition: int | None, seqs: bool
) -> Answer:
    """A write of which something must be waited for, or against which something stands."""
    broker = request.broker
    write = _write(request.values[0], body, records)
    write.idempotency_key, write.partition = key, partition
    if write.settings is not None:
        request.access.require(WRITE_ADMIN, appends.names_of(write))
    return _appended(request, records, seqs, await appends.append(broker.engine, write, broker.pressure))


def _appended(request: Request, records: Records, seqs: bool, done: Appended) -> Answer:
    if request.broker.tracing is not None:
        request.take_note(notes.appended, done, records)
    text = render.appended(done, seqs=seqs, started=request.started)
    return Answer(text, status=CREATED if done.created else OK)


async def write_of(topic: str, raw: bytes) -> appends.Append:
    """The write that a body asks for. Raises InvalidRequest."""
    return _write(topic, *await append_body.decode_any(raw))


def _write(topic: str, body: AppendBody, records: Records) -> appends.Append:
    return appends.Append(
        topic=topic,
        records=records,
        node=body.node or None,
        idempotency_key=body.idempotency_key or None,
        idempotency_strict=body.idempotency_strict is True,
        create=body.create is not False,
        settings=append_body.settings(body),
        expected_seq=body.expected_seq,
        disable_backpressure=body.disable_backpressure is True,
    )


def _key(value: bytes) -> str | None:
    """The Idempotency-Key header; an empty one is none."""
    try:
        return value.decode() or None
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
        is_direct=True,
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
