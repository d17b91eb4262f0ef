"""POST /v0/topics/{topic}: the hot way in. The body becomes `NewRecord`s without a copy of its payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType
from pydantic import ValidationError

from broker.api import render, strict_json
from broker.api.answers import CREATED, OK, Answer
from broker.api.errors import wrong_model
from broker.api.record_count import check_count
from broker.api.request import Request
from broker.auth.scopes import WRITE_ADMIN
from broker.service import appends
from broker.tracing import notes
from schemas.config import TopicSettings
from schemas.fields import MAX_U64
from storage.errors import InvalidRequest
from storage.records.values import NewRecord

Natural = Annotated[int, Meta(ge=0)]


class _Record(NewRecord):
    """A record whose meta may be any JSON value: next to None msgspec would take nothing else for a Raw."""

    meta: Raw | UnsetType = UNSET  # pyright: ignore[reportIncompatibleVariableOverride, reportGeneralTypeIssues]


class _Options(msgspec.Struct, kw_only=True):
    node: str | None = None
    idempotency_key: str | None = None
    idempotency_strict: bool | None = None
    create: bool | None = None
    config: Raw | UnsetType = UNSET
    expected_seq: Natural | None = None
    disable_backpressure: bool | None = None


class _Body(_Options, kw_only=True):
    records: list[NewRecord]


class _BodyWithMeta(_Options, kw_only=True):
    records: list[_Record]


_body = msgspec.json.Decoder(_Body)
_body_with_meta = msgspec.json.Decoder(_BodyWithMeta)


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
    body = await _decoded(raw)
    if body.expected_seq is not None and body.expected_seq > MAX_U64:
        raise InvalidRequest(f"expected_seq: expected an integer from 0 to {MAX_U64}.", field="expected_seq")
    return appends.Append(
        topic=topic,
        records=body.records,
        node=body.node or None,
        idempotency_key=body.idempotency_key or key(),
        idempotency_strict=body.idempotency_strict is True,
        create=body.create is not False,
        settings=None if body.config is UNSET else _settings(bytes(body.config)),
        expected_seq=body.expected_seq,
        disable_backpressure=body.disable_backpressure is True,
    )


async def _decoded(raw: bytes) -> _Body | _BodyWithMeta:
    # Most bodies carry no meta. A backslash may spell it otherwise ("\u006deta"), so that it takes the other way too.
    if b'"meta"' not in raw and b"\\u" not in raw:
        return await strict_json.decode(raw, _body)
    body = await strict_json.decode(raw, _body_with_meta)
    for record in body.records:
        meta = record.meta
        if meta is UNSET or bytes(meta) == b"null":
            record.meta = None  # pyright: ignore[reportAttributeAccessIssue]
    return body


def _key(request: Request) -> str | None:
    """The Idempotency-Key header; an empty one is none."""
    value = request.headers.get(b"idempotency-key")
    if not value:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("Idempotency-Key: not UTF-8.", field="Idempotency-Key") from None


def _settings(raw: bytes) -> TopicSettings | None:
    """The inline config: rare, so it takes the same way as the body of a PUT."""
    if raw == b"null":
        return None
    try:
        return TopicSettings.model_validate(strict_json.loads(raw))
    except ValidationError as error:
        raise wrong_model(error.errors()[0], ("config",), "config") from None
