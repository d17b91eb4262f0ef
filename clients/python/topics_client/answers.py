"""Turns answers into values or errors. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from topics_client.consumer_values import ConsumerRead
from topics_client.errors import ConnectionFailed, TopicsError, UnexpectedAnswer, api_error
from topics_client.values import Claimed, Diff, Job, Record, Settled, Tombstone, Watched
from topics_client.wire import Call, NoReply, Reply

T = TypeVar("T")

#: How much of an unreadable answer is shown.
_EXCERPT_BYTES = 120


def result_of(call: Call[T], outcome: Reply | NoReply) -> T:
    """The value of the call. Raises the error of `topics_client.errors` for a failure."""
    if isinstance(outcome, NoReply):
        raise ConnectionFailed(outcome.reason, outcome="unknown" if outcome.sent else "none")
    if not 200 <= outcome.status < 300:
        raise refusal(outcome)
    try:
        return call.parse(outcome)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unexpected(call, outcome, str(error)) from error


def refusal(reply: Reply) -> TopicsError:
    """The error for an answer that is not a success."""
    try:
        envelope = msgspec.json.decode(reply.body, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if reply.status in (502, 503, 504):
            message = f"A proxy in front of the broker answered {reply.status}."
            return api_error(reply.status, "bad_gateway", message, None, _retry_after_s(reply, {}))
        excerpt = reply.body[:_EXCERPT_BYTES].decode("utf-8", "replace")
        return UnexpectedAnswer(f"The answer has status {reply.status} and is not from a topics broker: {excerpt!r}.")
    error = envelope.error
    detail = error.detail or {}
    return api_error(reply.status, error.code, error.message, detail, _retry_after_s(reply, detail))


def json_value(kind: type[T]) -> Callable[[Reply], T]:
    """A parser for bodies of that shape. Unknown fields are ignored."""

    def parse(reply: Reply) -> T:
        return msgspec.json.decode(reply.body, type=kind)

    return parse


def diff(reply: Reply) -> Diff:
    """The answer of a read."""
    body = _DIFF.decode(reply.body)
    return Diff(
        topic=body.topic,
        records=[_record(record, body.partition) for record in body.records],
        next_from_seq=body.next_from_seq,
        head_seq=body.head_seq,
        earliest_seq=body.earliest_seq,
        caught_up=body.caught_up,
        lag=body.lag,
        tombstone=_at(body.tombstone, body.partition),
        corrupt_seqs=body.corrupt_seqs,
    )


def consumer_read(reply: Reply) -> ConsumerRead:
    """The answer of a consumer's read."""
    body = _CONSUMER_READ.decode(reply.body)
    return ConsumerRead(
        topic=body.topic,
        records=[_record(record, body.partition) for record in body.records],
        next_from_seq=body.next_from_seq,
        head_seq=body.head_seq,
        earliest_seq=body.earliest_seq,
        caught_up=body.caught_up,
        lag=body.lag,
        tombstone=_at(body.tombstone, body.partition),
        corrupt_seqs=body.corrupt_seqs,
        consumer=body.consumer,
        cursor_seq=body.cursor_seq,
        unread=body.unread,
        repeated=body.repeated,
    )


def record(reply: Reply) -> Record:
    """The answer of a point read."""
    return _record(_RECORD.decode(reply.body))


def claimed(reply: Reply) -> Claimed:
    """The answer of a claim."""
    body = _CLAIMED.decode(reply.body)
    return Claimed(topic=body.topic, jobs=[_job_of(job) for job in body.claimed], ready=body.ready)


def watched(kind: str, id: str, text: str) -> Watched:
    """An event of a watch."""
    body = _WATCHED.decode(text)
    gap = None
    if kind == "tombstone":
        gap = Tombstone(
            gap_from=body.gap_from,
            gap_to=body.gap_to,
            reason=body.reason,
            missed_estimate=0 if body.reason == "recreated" else body.gap_to - body.gap_from + 1,
            earliest_seq=body.earliest_seq,
            head_seq=body.head_seq,
            partition=body.partition,
        )
    return Watched(
        topic=body.topic,
        kind=kind,
        partition=body.partition,
        records=[_record(record, body.partition) for record in body.records],
        corrupt_seqs=body.corrupt_seqs,
        tombstone=gap,
        from_seq=body.from_seq,
        to_seq=body.to_seq,
        head_seq=body.head_seq,
        id=id,
    )


def settled(reply: Reply) -> Settled:
    """The answer of an ack, nack or extend."""
    body = _SETTLED.decode(reply.body)
    return Settled(
        topic=body.topic,
        count=body.acked + body.nacked + body.extended,
        skipped=body.skipped,
        ready=body.ready,
        in_flight=body.in_flight,
        deadlines=body.deadlines,
    )


def text(reply: Reply) -> str:
    """A body that is plain text."""
    return reply.body.decode("utf-8")


class _Refusal(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Envelope(msgspec.Struct):
    error: _Refusal


class _Record(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str | None = msgspec.field(name="$node", default=None)
    tag: str | None = msgspec.field(name="$tag", default=None)
    data: msgspec.Raw = msgspec.Raw(b"null")
    # Empty if absent. (`Raw | None` would accept only null, because msgspec prefers the None.)
    meta: msgspec.Raw = msgspec.Raw()


class _Diff(msgspec.Struct):
    topic: str
    records: list[_Record]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    lag: int = 0
    tombstone: Tombstone | None = None
    corrupt_seqs: list[int] | None = None
    partition: int = 0


class _ConsumerRead(_Diff, kw_only=True):
    consumer: str
    cursor_seq: int
    unread: int = 0
    repeated: bool = False


class _Job(_Record, kw_only=True):
    lease_id: str
    deadline: int
    deliveries: int


class _Claimed(msgspec.Struct):
    topic: str
    claimed: list[_Job]
    ready: int = 0


class _Watched(msgspec.Struct):
    """Any event of a watch."""

    topic: str
    head_seq: int
    records: list[_Record] = []
    corrupt_seqs: list[int] = []
    partition: int = 0
    from_seq: int = 0
    to_seq: int = 0
    reason: str = ""
    gap_from: int = 0
    gap_to: int = 0
    earliest_seq: int = 0


class _Settled(msgspec.Struct):
    """One of the three counts is present."""

    topic: str
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    skipped: list[int] = []
    ready: int = 0
    in_flight: int = 0
    deadlines: dict[int, int] = {}


_DIFF = msgspec.json.Decoder(_Diff)
_CONSUMER_READ = msgspec.json.Decoder(_ConsumerRead)
_RECORD = msgspec.json.Decoder(_Record)
_CLAIMED = msgspec.json.Decoder(_Claimed)
_WATCHED = msgspec.json.Decoder(_Watched)
_SETTLED = msgspec.json.Decoder(_Settled)


def _record(raw: _Record, partition: int = 0) -> Record:
    # A copy: a Raw would keep the whole answer, up to 8 MiB, alive as long as one of its records.
    return Record(
        seq=raw.seq,
        ts=raw.ts,
        node=raw.node,
        tag=raw.tag,
        data_raw=bytes(raw.data),
        meta_raw=bytes(raw.meta) or None,
        partition=partition,
    )


def _at(gap: Tombstone | None, partition: int) -> Tombstone | None:
    return msgspec.structs.replace(gap, partition=partition) if gap is not None and partition else gap


def _job_of(raw: _Job) -> Job:
    return Job(
        seq=raw.seq,
        ts=raw.ts,
        node=raw.node,
        tag=raw.tag,
        data_raw=bytes(raw.data),
        meta_raw=bytes(raw.meta) or None,
        lease_id=raw.lease_id,
        deadline=raw.deadline,
        deliveries=raw.deliveries,
    )


def _retry_after_s(reply: Reply, detail: dict[str, Any]) -> float | None:
    """How long to wait: from detail.retry_after_ms (finer), or else from the header, as seconds or a date."""
    milliseconds = detail.get("retry_after_ms")
    if isinstance(milliseconds, int | float):
        return max(0.0, milliseconds / 1000)
    value = reply.headers.get("retry-after", "").strip()
    if not value:
        return None
    if value.isdecimal():
        return float(value)
    # Loading it takes longer than a short command takes for all else.
    import email.utils

    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


def _unexpected(call: Call[Any], reply: Reply, reason: str) -> UnexpectedAnswer:
    request = call.request
    return UnexpectedAnswer(f"The answer to {request.method} {request.target} cannot be read: {reason}.")
