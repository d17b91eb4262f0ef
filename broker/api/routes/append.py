"""POST /v0/topics/{topic}: the body of an append, its handler, and its answer.

Payloads stay raw, byte for byte. `schemas.records.AppendRequest` documents the body, and a test compares it with the
structs here, field by field. There are two forms because a model of each record would cost more than storing it.
WebSockets decode their publishes here as well.
"""

from __future__ import annotations

from functools import lru_cache
from operator import attrgetter
from time import perf_counter
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw
from pydantic import ValidationError

from broker.api.operation import NUMBER, TOPIC, Natural, Operation, in_header, in_query
from broker.api.record_count import check_count
from broker.api.request import Outcome, Pending, Request, awaited
from broker.auth import WRITE, WRITE_ADMIN, Rule
from broker.content import CREATED, OK, Answer, slices, strict_json, wrong_model
from broker.memory import SMALL
from broker.service import appends
from broker.tracing import notes
from schemas import MAX_U64, AppendAnswer, AppendRequest, TopicSettings
from storage import InvalidRequest, StorageError
from storage.records import Appended, NewRecord, PlainRecords, address

#: The default of an absent field of raw JSON: msgspec accepts no other default for a Raw beside None.
_ABSENT: Final = Raw()
_NULL: Final = Raw(b"null")
#: A body of at most this size cannot be nested too deeply, its outer brackets included.
_SURELY_FLAT_BYTES: Final = 2 * (strict_json.MAX_NESTING - 8)


class _PlainRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    data: Raw


class _Record(NewRecord, gc=False):
    meta: Raw = _ABSENT  # pyright: ignore[reportIncompatibleVariableOverride]


class _Options(msgspec.Struct, kw_only=True, gc=False):
    node: str | None = None
    idempotency_key: str | None = None
    idempotency_strict: bool | None = None
    create: bool | None = None
    config: Raw = _ABSENT
    expected_seq: Natural | None = None
    disable_backpressure: bool | None = None


class PlainBody(_Options, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A write whose records have only data. Most writes are like that, and they decode fastest."""

    records: list[_PlainRecord]


class AnyBody(_Options, kw_only=True, gc=False):
    """Any write."""

    records: list[_Record]


AppendBody: TypeAlias = PlainBody | AnyBody
Records: TypeAlias = list[NewRecord] | PlainRecords

_plain_body: Final = msgspec.json.Decoder(PlainBody)
_any_body: Final = msgspec.json.Decoder(AnyBody)
_data_of: Final = attrgetter("data")
_encode: Final = msgspec.json.Encoder().encode


def append(request: Request) -> Outcome:
    """Append records. A write that waits only for its commit becomes a `Pending` of the engine and needs no task."""
    raw = request.body
    if len(raw) <= slices.LARGE_BYTES:
        try:
            return _append(request, *decode(raw))
        except MayBeDeep:
            pass
    return _append_large(request)


async def _append_large(request: Request) -> Answer:
    await check_count(request.body, request.broker.engine.options.max_batch_records)
    return await awaited(_append(request, *await decode_any(request.body)))


def _append(request: Request, body: AppendBody, records: Records) -> Outcome:
    broker = request.broker
    key = body.idempotency_key or None
    if key is None and b"idempotency-key" in request.headers:
        key = _key(request.headers[b"idempotency-key"])
    partition, seqs = None, True
    if request.query_string:
        partition, seqs = request.partition(), request.query.flag("return_seqs", True)
    wanted = _Wanted(request, body, records, key, partition, seqs)
    if broker.pressure.refusing and not body.disable_backpressure:
        broker.pressure.check()
    engine, topic = broker.engine, request.values[0]
    if (
        not partition
        and body.expected_seq is None
        and not body.config
        and not body.idempotency_strict
        and topic not in engine.catalog.partitioned  # the partition still has to be chosen
    ):
        pending = Pending(wanted.finish, wanted.append_on)
        node = body.node or None
        try:
            if len(records) == 1 and key is None and isinstance(records, PlainRecords):
                is_under_way = engine.try_append_coalesced(topic, records[0], pending.resolve, pending.leave, node=node)
            else:
                is_under_way = engine.try_append(topic, records, pending.resolve, node=node, idempotency_key=key)
            if is_under_way:
                return pending
        except StorageError:
            pass  # `append_on` raises the error to answer with
    return wanted.append_on()


class _Wanted(msgspec.Struct, eq=False):
    """A write as a request asks for it, with what its query and headers say."""

    request: Request
    body: AppendBody
    records: Records
    key: str | None
    partition: int | None
    seqs: bool

    def finish(self, done: Appended) -> Answer:
        """The answer, once the records are stored."""
        request = self.request
        if request.broker.tracing is not None:
            request.take_note(notes.appended, done, self.records)
        text = rendered(done, seqs=self.seqs, started=request.started)
        return Answer(text, status=CREATED) if done.created else Answer(text)

    async def append_on(self) -> Answer:
        """Append with a task: the write has to wait for something, or is refused."""
        request, partition = self.request, self.partition
        broker = request.broker
        if partition and len(request.body) <= SMALL:
            # Who can send it again learns which cell has the partition. A large body is passed on.
            broker.engine.logs.check_elsewhere(address(request.values[0], partition))
        write = _write(request.values[0], self.body, self.records)
        write.idempotency_key, write.partition = self.key, partition
        if write.settings is not None:
            request.access.require(WRITE_ADMIN, appends.names_of(write))
        return self.finish(await appends.append(broker.engine, write, broker.pressure))


async def write_of(topic: str, raw: bytes) -> appends.Append:
    """The write that a body describes. Raises InvalidRequest."""
    return _write(topic, *await decode_any(raw))


def _write(topic: str, body: AppendBody, records: Records) -> appends.Append:
    return appends.Append(
        topic=topic,
        records=records,
        node=body.node or None,
        idempotency_key=body.idempotency_key or None,
        idempotency_strict=body.idempotency_strict is True,
        create=body.create is not False,
        settings=settings_of(body),
        expected_seq=body.expected_seq,
        disable_backpressure=body.disable_backpressure is True,
    )


def _key(value: bytes) -> str | None:
    """The key in the Idempotency-Key header; None if it is empty."""
    try:
        return value.decode() or None
    except UnicodeDecodeError:
        raise InvalidRequest("Idempotency-Key: not UTF-8.", field="Idempotency-Key") from None


# -- the body ----------------------------------------------------------------------------------------------------------


class MayBeDeep(Exception):
    """Only a full walk can tell whether the body is nested too deeply: use `decode_any`."""


def decode(raw: bytes) -> tuple[AppendBody, Records]:
    """The body and its records, without waiting, for a body of at most `slices.LARGE_BYTES`.

    Raises InvalidRequest, which names the byte or the field, and MayBeDeep.
    """
    try:
        raw.decode()
        plain = _plain_body.decode(raw)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        # Either records have more than data, which mostly the first one shows, so that little was decoded in vain; or
        # the body is wrong.
        strict_json.check_utf8(raw)
        if strict_json.may_be_deep(raw):
            raise MayBeDeep from None
        return _taken_apart(strict_json.decoded(raw, _any_body))
    records = PlainRecords(map(_data_of, plain.records))
    # Only data and config can nest, and a short body cannot be deep.
    if len(raw) > _SURELY_FLAT_BYTES:
        largest = max(records.sizes(), default=0)
        if (largest > _SURELY_FLAT_BYTES or plain.config) and strict_json.may_be_deep(raw):
            raise MayBeDeep
    if plain.expected_seq is not None:
        _check_seq(plain.expected_seq)
    return plain, records


async def decode_any(raw: bytes) -> tuple[AppendBody, Records]:
    """Like `decode`, for any body; a large one in slices, so that others run in between. Raises InvalidRequest."""
    if len(raw) <= slices.LARGE_BYTES:
        try:
            return decode(raw)
        except MayBeDeep:
            pass
    return _taken_apart(await strict_json.decode(raw, _any_body))


def _taken_apart(body: AnyBody) -> tuple[AnyBody, list[NewRecord]]:
    if body.expected_seq is not None:
        _check_seq(body.expected_seq)
    for record in body.records:
        meta = record.meta
        if not meta or meta == _NULL:
            record.meta = None  # pyright: ignore[reportAttributeAccessIssue]
    return body, [*body.records]


def _check_seq(expected_seq: int) -> None:
    if expected_seq > MAX_U64:
        raise InvalidRequest(f"expected_seq: expected an integer from 0 to {MAX_U64}.", field="expected_seq")


def settings_of(body: AppendBody) -> TopicSettings | None:
    """The inline config. It is rare, so it is decoded like the body of a PUT. Raises InvalidRequest."""
    if not body.config or body.config == _NULL:
        return None
    try:
        return TopicSettings.model_validate(strict_json.loads(bytes(body.config)))
    except ValidationError as error:
        first: Any = error.errors()[0]
        raise wrong_model(first, ("config",), "config") from None


# -- the answer --------------------------------------------------------------------------------------------------------


def rendered(done: Appended, *, seqs: bool, started: float) -> bytes:
    """The answer to a write."""
    listed = b""
    if seqs:
        first, last = done.first_seq, done.last_seq
        listed = b'"seqs":[%d],' % first if first == last else b'"seqs":%b,' % _encode(list(range(first, last + 1)))
    return (
        b'{"topic":%b%b,"first_seq":%d,"last_seq":%d,%b"head_seq":%d,"count":%d,"created":%b,"deduped":%b%b,'
        b'"performance":{"server_total_ms":%.3f,%b}}'
    ) % (
        _encode(done.topic),
        b"" if done.partition is None else b',"partition":%d' % done.partition,
        done.first_seq,
        done.last_seq,
        listed,
        done.head_seq,
        done.count,
        b"true" if done.created else b"false",
        b"true" if done.deduped else b"false",
        b',"payload_differs":true' if done.payload_differs else b"",
        (perf_counter() - started) * 1000,
        _waits(done.wal_append_ms, done.fsync_ms, done.throttle_wait_ms),
    )


@lru_cache(maxsize=64)
def _waits(wal_append_ms: float, fsync_ms: float, throttle_wait_ms: float) -> bytes:
    """How long a write waited. All writes of a group waited equally long."""
    throttle = b',"throttle_wait_ms":%.3f' % throttle_wait_ms if throttle_wait_ms else b""
    return b'"wal_append_ms":%.3f,"fsync_ms":%.3f%b' % (wal_append_ms, fsync_ms, throttle)


_WRITTEN_TO: Final = in_query(
    "partition",
    NUMBER,
    "The partition, counted from 0. The default is the partition that knows the idempotency key; or 0 with "
    "expected_seq; or the partition of the tags (murmur2, as in Kafka's clients); or one after the other.",
)


OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v0/topics/{topic}",
        name="append_records",
        handler=append,
        rule=Rule(WRITE),
        is_direct=True,
        summary="Append records",
        description="Appends all records or none, with consecutive seqs. It is answered when they are as durable "
                    "as the topic's class defines. 201: the write has created the topic.",
        answer=AppendAnswer,
        request=AppendRequest,
        parameters=(
            TOPIC,
            _WRITTEN_TO,
            in_query("return_seqs", {"type": "boolean", "default": True}, "Return the seqs of the records."),
            in_header("Idempotency-Key", "As idempotency_key in the body, which takes precedence.")),
        successes={OK: "Appended, now or before with the same key.", CREATED: "Appended; the topic was created."},
        refusals=(
            "invalid_request", "batch_too_large", "record_too_large", "topic_not_found", "seq_conflict",
            "idempotency_conflict", "payload_too_large", "unsupported_media_type", "topic_full", "throttled",
            "wal_saturated", "storage_failed", "storage_full",
        ),
    ),
]  # fmt: skip
