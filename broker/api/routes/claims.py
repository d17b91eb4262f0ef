"""POST …/claim, …/ack, …/nack and …/extend: their bodies, handlers and answers, and the lease ids in them.

lease_00c0ffee00c0ffee      `lease_` and 16 lower-case hex digits; never all zeros
"""

from __future__ import annotations

import re
import struct
from binascii import unhexlify
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

import kernel
from broker.api.operation import TOPIC, Handler, Natural, Operation, in_query
from broker.api.request import Outcome, Pending, Request
from broker.auth import READ_WRITE, WRITE, Rule
from broker.content import OK, Answer, quoted, render, strict_json
from broker.memory import SMALL
from broker.service import queues, routers
from broker.tracing import notes
from schemas import (
    MAX_U64,
    AckAnswer,
    AckRequest,
    ClaimAnswer,
    ClaimRequest,
    ExtendAnswer,
    ExtendRequest,
    NackAnswer,
    NackRequest,
)
from storage import InvalidRequest, StorageError
from storage.queues import MAX_JOBS, Claimed, ClaimedBatch, ClaimedJob
from storage.records import FrameRecords, parts_of
from storage.state.queues import Settled

if TYPE_CHECKING:
    from storage.routers import Waited

#: Copies in memory: the records of a claim, and the answer made from them.
COPIES: Final = 2
#: Larger claims hold their memory before they get jobs, which takes a task.
MAX_CLAIM_BYTES: Final = 256 << 10

LEASE_PREFIX: Final = "lease_"
_LEASE_ID = re.compile(rf"{LEASE_PREFIX}[0-9a-f]{{16}}")
#: The start of a JSON array of lease ids, as most clients write it.
_OPENING: Final = b'["' + LEASE_PREFIX.encode()
_BETWEEN: Final = b'","' + LEASE_PREFIX.encode()
_CLOSING: Final = b'"]'
_texts = msgspec.json.Decoder(list[str] | None)


class _Claim(msgspec.Struct, kw_only=True):
    node: str
    max: Natural | None = None
    lease_ms: Natural | None = None
    wait_ms: Natural | None = None
    attempt_key: str | None = None


class _AckBody(msgspec.Struct, kw_only=True):
    node: str
    seqs: list[Natural]
    lease_ids: Raw = Raw()


class _Nack(_AckBody, kw_only=True):
    delay_ms: Natural | None = None
    penalty: bool | None = None
    reason: str | None = None


class _Extend(_AckBody, kw_only=True):
    lease_ms: Natural


class _AnyLeaseIds(msgspec.Struct):
    """A `lease_ids` that is no array: an empty string means none."""

    lease_ids: list[str] | str | None


_any_lease_ids = msgspec.json.Decoder(_AnyLeaseIds)
_claim = msgspec.json.Decoder(_Claim)
_ack_body = msgspec.json.Decoder(_AckBody)
_nack = msgspec.json.Decoder(_Nack)
_extend = msgspec.json.Decoder(_Extend)


def claim(request: Request) -> Outcome:
    return request.decoded(_claim, partial(_claim_jobs, request, monotonic()))


def _claim_jobs(request: Request, began: float, body: _Claim) -> Outcome:
    if max(body.max or 0, body.lease_ms or 0, body.wait_ms or 0) > MAX_U64:
        for field in ("max", "lease_ms", "wait_ms"):
            _check_u64(getattr(body, field) or 0, field)
    asked = queues.Claim(
        topic=request.values[0],
        node=body.node,
        max=1 if body.max is None else body.max,
        lease_ms=body.lease_ms,
        wait_ms=body.wait_ms or 0,
        attempt_key=body.attempt_key,
    )

    def finish(claimed: Claimed) -> Answer | Coroutine[Any, Any, Answer]:
        if asked.wait_ms and not claimed.jobs:
            return _claim_on(request, asked, began)  # the jobs went while they were read: now the claim has to wait
        return _claimed(request, claimed, None)

    if body.attempt_key is None and body.node:
        pending = Pending(finish)
        try:
            if request.broker.engine.queues.try_claim(
                asked.topic, body.node, asked.max, body.lease_ms, pending.resolve, MAX_CLAIM_BYTES
            ):
                return pending
        except StorageError:
            pass  # `_claim_on` raises the error to answer with
    return _claim_on(request, asked, began)


async def _claim_on(request: Request, asked: queues.Claim, began: float) -> Answer:
    engine = request.broker.engine
    queues.check_claim(engine, asked)
    waited = await routers.caught_up(engine, asked.topic)
    claimed = await queues.claim(engine, asked, await _room(request, asked))
    if asked.wait_ms and not claimed.jobs:
        request.release_room()
        # Many claims may wait for the same jobs, and hold no memory meanwhile: of large jobs each claim gets one.
        waiting = queues.claim_on(engine, request.parking, asked, claimed, began, SMALL)
        claimed = await request.unless_gone(waiting, discard=lambda late: late.undo())
    await _counted(request, claimed)
    return _claimed(request, claimed, waited)


def _claimed(request: Request, claimed: Claimed, waited: Waited | None) -> Answer:
    try:
        if request.broker.tracing is not None:
            request.take_note(notes.claimed, claimed)
        text = rendered_claim(claimed, request.started)
        if waited is not None:
            text = render.routed(text, waited)
    except BaseException:
        claimed.undo()  # no answer can name these jobs
        raise
    return Answer(text, withdraw=claimed.undo)


async def _room(request: Request, asked: queues.Claim) -> int:
    """How many bytes of jobs may be claimed: those ready, as far as memory allows. Raises Overloaded: not one fits."""
    memory = request.broker.memory
    one, size = queues.claimable_bytes(request.broker.engine, asked.topic, asked.max)
    if size * COPIES <= SMALL:
        return SMALL
    await request.room_for(one * COPIES)
    room = await request.room(memory.most_for_one(size * COPIES))
    await memory.acquire(min(size, room))
    return room // COPIES


async def _counted(request: Request, claimed: Claimed) -> None:
    """Hold memory for the claimed jobs, by their size. Raises Overloaded, after giving the jobs back."""
    size = sum(len(job.record.body) for job in claimed.jobs)
    if size <= SMALL:
        request.release_room()
        return
    try:
        await request.room_for(size * COPIES)
    except BaseException:
        claimed.undo()
        raise


def ack(request: Request) -> Outcome:
    return request.decoded(_ack_body, partial(_ack, request))


def _ack(request: Request, body: _AckBody) -> Outcome:
    asked = _asked(request, body)
    if not asked.strict and asked.node and 0 < len(asked.seqs) <= MAX_JOBS:
        pending = Pending(partial(_ack_answer, request, "ack", b"acked"))
        try:
            if request.broker.engine.queues.try_ack(
                asked.topic, asked.node, asked.seqs, asked.lease_ids, pending.resolve
            ):
                return pending
        except StorageError:
            pass  # `queues.ack` raises the error to answer with
    return _await_ack(request, "ack", b"acked", queues.ack(request.broker.engine, asked))


def nack(request: Request) -> Outcome:
    return request.decoded(_nack, partial(_give_back, request))


def _give_back(request: Request, body: _Nack) -> Outcome:
    nacked = queues.nack(
        request.broker.engine,
        _asked(request, body),
        delay_ms=body.delay_ms,
        penalty=body.penalty is not False,
        reason=body.reason,
    )
    return _await_ack(request, "nack", b"nacked", nacked)


def extend(request: Request) -> Outcome:
    return request.decoded(_extend, partial(_keep, request))


def _keep(request: Request, body: _Extend) -> Outcome:
    _check_u64(body.lease_ms, "lease_ms")
    extended = queues.extend(request.broker.engine, _asked(request, body), body.lease_ms)
    return _await_ack(request, "extend", b"extended", extended)


async def _await_ack(request: Request, operation: str, word: bytes, work: Awaitable[Settled]) -> Answer:
    return _ack_answer(request, operation, word, await work)


def _ack_answer(request: Request, operation: str, word: bytes, done: Settled) -> Answer:
    if request.broker.tracing is not None:
        request.take_note(notes.ack_note, operation, done)
    return Answer(rendered_ack(done, word, request.started))


def _asked(request: Request, body: _AckBody) -> queues.Settle:
    if body.seqs and max(body.seqs) > MAX_U64:
        _check_u64(max(body.seqs), "seqs")
    return queues.Settle(
        topic=request.values[0],
        node=body.node,
        seqs=body.seqs,
        lease_ids=_tokens(bytes(body.lease_ids)),
        strict=request.query.flag("strict", False) if request.query_string else False,
    )


def _tokens(text: bytes) -> Sequence[int] | None:
    """The tokens of the lease ids in a body. Raises InvalidRequest."""
    if not text:
        return None
    try:
        return tokens_of_json(text)
    except msgspec.ValidationError:
        given = strict_json.decoded(b'{"lease_ids":%b}' % text, _any_lease_ids).lease_ids
    if given:
        raise InvalidRequest("lease_ids: expected an array.", field="lease_ids")
    return None


def _check_u64(value: int, field: str) -> None:
    if value > MAX_U64:
        raise InvalidRequest(f"{field}: expected an integer from 0 to {MAX_U64}.", field=field)


# -- lease ids ---------------------------------------------------------------------------------------------------------


def tokens_of_json(text: bytes) -> Sequence[int] | None:
    """Like `tokens`, for JSON text. Raises InvalidRequest, and msgspec.DecodeError if it is not an array of strings."""
    # Decodes all ids at once, if encoding the result gives the same text: no string per id is needed.
    try:
        digits = unhexlify(text[len(_OPENING) : -len(_CLOSING)].replace(_BETWEEN, b""))
    except ValueError:
        digits = b""
    count, rest = divmod(len(digits), 8)
    if count and not rest and text == _OPENING + digits.hex(",", 8).encode().replace(b",", _BETWEEN) + _CLOSING:
        found = struct.unpack(f">{count}Q", digits)
        if all(found):
            return found
    return tokens(_texts.decode(text))


def tokens(given: Sequence[str] | None) -> list[int] | None:
    """The tokens: 0 for an empty id (""), None for an empty list. Raises InvalidRequest."""
    if not given:
        return None
    # Decodes all ids at once, if encoding the result gives the same text. Both have the same number of commas, so no
    # comma was within an id, and each part is one id.
    text = ",".join(given)
    try:
        digits = bytes.fromhex(text.replace(LEASE_PREFIX, "").replace(",", ""))
    except ValueError:
        digits = b""
    if len(digits) == 8 * len(given) and text == LEASE_PREFIX + digits.hex(",", 8).replace(",", f",{LEASE_PREFIX}"):
        found = struct.unpack(f">{len(given)}Q", digits)
        if all(found):
            return [*found]
    return [_token(each, index) for index, each in enumerate(given)]


def _token(text: str, index: int) -> int:
    if not text:
        return 0
    if _LEASE_ID.fullmatch(text):
        token = int(text[len(LEASE_PREFIX) :], 16)
        if token:  # 0 means no id
            return token
    raise InvalidRequest(
        f"lease_ids[{index}]: not a lease id, which is {LEASE_PREFIX} and 16 hex digits.", field=f"lease_ids[{index}]"
    )


# -- the answers -------------------------------------------------------------------------------------------------------


def rendered_claim(claim: Claimed, started: float) -> bytes:
    """The answer to a claim; `started` is the perf_counter when the request arrived."""
    text = rendered_jobs(claim.jobs)
    return b'{"topic":%b,"claimed":[%b],"count":%d,"ready":%d,"performance":{"server_total_ms":%.3f}}' % (
        quoted(claim.topic),
        text,
        len(claim.jobs),
        claim.ready,
        (perf_counter() - started) * 1000,
    )


def rendered_jobs(found: Sequence[ClaimedJob]) -> bytes:
    """The jobs as JSON objects, separated by commas."""
    if isinstance(found, ClaimedBatch):
        records = found.records
        if isinstance(records, FrameRecords):
            return kernel.render_job_rows(records.buffer, records.columns, found.lease_ids, found.deadline, 1)
        return b",".join([*_parts_of_batch(found)])
    if not found:
        return b""
    records, lease_ids, deadlines, deliveries = zip(*found, strict=True)
    return kernel.render_jobs(records, lease_ids, deadlines, deliveries)


def _parts_of_batch(found: ClaimedBatch) -> Iterator[bytes]:
    at = 0
    for part in parts_of(found.records):
        lease_ids = found.lease_ids[at : at + len(part)]
        if isinstance(part, FrameRecords):
            yield kernel.render_job_rows(part.buffer, part.columns, lease_ids, found.deadline, 1)
        else:
            yield kernel.render_jobs(part, lease_ids, found.deadline, 1)
        at += len(part)


def rendered_ack(done: Settled, counted: bytes, started: float) -> bytes:
    """The answer to an ack, nack or extend; `counted` is the name of its count."""
    deadlines = b',"deadlines":%b' % msgspec.json.encode(done.deadlines) if counted == b"extended" else b""
    return (b'{"topic":%b,"%b":%d,"skipped":%b%b,"ready":%d,"in_flight":%d,"performance":{"server_total_ms":%.3f}}') % (
        quoted(done.topic),
        counted,
        len(done.done),
        msgspec.json.encode(done.skipped),
        deadlines,
        done.ready,
        done.in_flight,
        (perf_counter() - started) * 1000,
    )


_WRITES: Final = ("payload_too_large", "unsupported_media_type", "wal_saturated", "storage_failed", "storage_full")
_STRICT: Final = in_query(
    "strict",
    {"type": "boolean", "default": False},
    "If a lease is lost, refuse the whole call.",
)


def _ack_operation(
    name: str, call: str, handler: Handler, summary: str, description: str, request: type[Any], answer: type[Any]
) -> Operation:
    return Operation(
        method="POST",
        path=f"/v0/topics/{{topic}}/{call}",
        name=name,
        handler=handler,
        rule=Rule(WRITE, settles=True),
        is_direct=True,
        tag="queues",
        summary=summary,
        description=f"{description} Only jobs that are leased to the node count, with the given lease_id if there is "
        "one. The others are listed in skipped.",
        answer=answer,
        request=request,
        parameters=(
            TOPIC,
            _STRICT,
        ),
        successes={OK: "The jobs that were processed, and those that were skipped."},
        refusals=("invalid_request", "batch_too_large", "topic_not_found", "not_a_queue", "lease_lost", *_WRITES),
    )


OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v0/topics/{topic}/claim",
        name="claim_jobs",
        handler=claim,
        rule=Rule(READ_WRITE),
        is_direct=True,
        tag="queues",
        summary="Claim jobs",
        description="First jobs that were nacked, whose lease expired or whose delay is over, in order of seq; "
        "then new jobs. With wait_ms the claim waits for a job. If the client disconnects before the "
        "answer is sent, the jobs are released at once, unless the claim has an attempt_key: then the"
        " client can repeat it.",
        answer=ClaimAnswer,
        request=ClaimRequest,
        parameters=(TOPIC,),
        successes={OK: "The jobs; maybe none."},
        refusals=("invalid_request", "topic_not_found", "not_a_queue", "throttled", "segment_corrupt", *_WRITES),
    ),
    _ack_operation("ack_jobs", "ack", ack, "Ack jobs", "Deletes jobs that are done.", AckRequest, AckAnswer),
    _ack_operation(
        "nack_jobs",
        "nack",
        nack,
        "Nack jobs",
        "Gives jobs back: they can be claimed again after delay_ms, or the queue's backoff.",
        NackRequest,
        NackAnswer,
    ),
    _ack_operation(
        "extend_leases",
        "extend",
        extend,
        "Extend leases",
        "The leases end lease_ms from now.",
        ExtendRequest,
        ExtendAnswer,
    ),
]
