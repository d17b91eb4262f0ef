"""What `hot` can do: which bodies it takes as they are, how they are begun, how the outcome is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import Meta, Raw

from broker.api import append_body, lease_ids, render, render_queues
from broker.api.answers import Answer
from broker.api.render import Shape
from broker.auth.rules import Rule
from broker.auth.scopes import READ, READ_WRITE, WRITE
from broker.service import reads
from storage.engine import Engine
from storage.errors import ShuttingDown
from storage.queues.checks import MAX_JOBS
from storage.queues.claims import Claimed
from storage.records.values import Appended, NewRecord, PlainRecords, ReadResult
from storage.state.queues.values import Settled

#: Is told the outcome, or an exception.
Told: TypeAlias = Callable[[Any], None]

#: The memory of larger claims is held the other way, before they are given their jobs.
MAX_CLAIM_BYTES: Final = 256 << 10
#: Larger numbers are refused the other way, or clamped there.
Number = Annotated[int, Meta(ge=0, le=1 << 53)]


class Action(NamedTuple):
    """`take` begins it and returns True, or does nothing and returns False; it may raise what the other way will say.

    `take` is given a way to let the request go the other way later on, instead of telling an outcome.
    `queries`: query strings that are understood. `undo` takes back what nobody could be told of.
    """

    operation: str
    template: str
    queries: frozenset[bytes]
    #: What it takes to call it.
    rule: Rule
    #: Whether it adds to the pressure: then it is left to the other way when writes are refused.
    adds: bool
    take: Callable[[Engine, str, Mapping[bytes, bytes], bytes, Told, Callable[[], None]], bool]
    render: Callable[[Any, bytes, float], Answer]
    undo: Callable[[Any], None] | None = None
    #: Whether it changes nothing, and may find much.
    reads: bool = False


# -- append ----------------------------------------------------------------------------------------------------------


#: Whether a query string asks for the seqs.
_SEQS: Final = {b"": True, b"return_seqs=true": True, b"return_seqs=false": False}


def _append(
    engine: Engine, topic: str, headers: Mapping[bytes, bytes], body: bytes, told: Told, hand_over: Callable[[], None]
) -> bool:
    if topic in engine.catalog.spread:
        return False  # which partition it goes to is decided the other way
    write, records = append_body.decode(body)
    if not isinstance(records, PlainRecords) or write.config or write.expected_seq is not None:
        return False
    if write.idempotency_strict or write.disable_backpressure:
        return False
    node, key = write.node or None, write.idempotency_key or None
    if key is None and b"idempotency-key" in headers:
        key = headers[b"idempotency-key"].decode() or None
    if key is None and len(records) == 1:
        return engine.append_soon(topic, records[0], told, hand_over, node=node)
    return engine.append_now(topic, records, told, node=node, idempotency_key=key)


def _with_metas(records: list[_FullRecord], body: bytes) -> list[NewRecord]:
    """They as the engine takes them. Raises InvalidRequest."""
    largest = max([len(record.data) for record in records], default=0)
    for record in records:
        meta = record.meta
        if not meta or meta == _NULL:
            record.meta = None  # pyright: ignore[reportAttributeAccessIssue]
        elif len(meta) > largest:
            largest = len(meta)
    if largest > _SURELY_FLAT_BYTES:
        strict_json.check_flat(body)
    return cast("list[NewRecord]", records)


def _appended(outcome: Appended, query: bytes, started: float) -> Answer:
    return Answer(render.appended(outcome, seqs=_SEQS[query], started=started))


# -- claim -----------------------------------------------------------------------------------------------------------


class _Claim(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    node: str
    max: Number = 1
    lease_ms: Number | None = None
    wait_ms: Number = 0


_claim_decoder = msgspec.json.Decoder(_Claim)


def _claim(
    engine: Engine, topic: str, _: Mapping[bytes, bytes], body: bytes, told: Told, hand_over: Callable[[], None]
) -> bool:
    asked = _claim_decoder.decode(body)

    def claimed(outcome: Claimed | Exception) -> None:
        if asked.wait_ms and isinstance(outcome, Claimed) and not outcome.jobs:
            hand_over()  # they went while they were being read: now it has to wait
        else:
            told(outcome)

    return bool(asked.node) and engine.queues.claim_now(
        topic, asked.node, asked.max, asked.lease_ms, claimed, MAX_CLAIM_BYTES
    )


def _claimed(outcome: Claimed, _: bytes, started: float) -> Answer:
    return Answer(render_queues.claimed(outcome, started), withdraw=outcome.undo)


# -- ack -------------------------------------------------------------------------------------------------------------


class _Ack(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    node: str
    seqs: list[Number]
    lease_ids: Raw = Raw()


_ack_decoder = msgspec.json.Decoder(_Ack)


def _ack(engine: Engine, topic: str, _: Mapping[bytes, bytes], body: bytes, told: Told, __: Callable[[], None]) -> bool:
    asked = _ack_decoder.decode(body)
    # Of several `lease_ids` in one body only the last would be looked at.
    if not asked.node or not 0 < len(asked.seqs) <= MAX_JOBS or body.count(b'"lease_ids"') > 1:
        return False
    given = bytes(asked.lease_ids)
    tokens = lease_ids.tokens_of_json(given) if given else None
    return engine.queues.ack_now(topic, asked.node, asked.seqs, tokens, told)


def _acked(outcome: Settled, _: bytes, started: float) -> Answer:
    return Answer(render_queues.settled(outcome, b"acked", started))


# -- read ------------------------------------------------------------------------------------------------------------


class _Diff(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    from_seq: Number = 0
    limit: Number = 0
    max_batch_bytes: Number = 0
    max_bytes: Number = 0
    node: str | list[str] | None = None
    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True
    wait_ms: Number = 0
    epoch: Number | None = None
    skip_corrupt: bool = False


class Found(NamedTuple):
    """What a read has found, and what of it is to be shown."""

    result: ReadResult
    shape: Shape


_diff_decoder = msgspec.json.Decoder(_Diff)
#: The loop itself would let them be collected.
_reading: set[asyncio.Task[reads.Reading]] = set()


def _diff(
    engine: Engine, name: str, _: Mapping[bytes, bytes], body: bytes, told: Told, hand_over: Callable[[], None]
) -> bool:
    asked = _diff_decoder.decode(body)
    topic = engine.topic(name)
    if topic.topic_id in engine.catalog.routes.into or (asked.wait_ms and asked.from_seq >= topic.log.head):
        return False  # it may have to wait: for what routers have still to bring, or for anything at all
    read = reads.Read(
        topic=name,
        from_seq=asked.from_seq,
        limit=asked.limit,
        max_batch_bytes=asked.max_batch_bytes or asked.max_bytes,
        nodes=reads.several(asked.node),
        epoch=asked.epoch,
        skip_corrupt=asked.skip_corrupt,
    )
    task = asyncio.ensure_future(reads.read(engine, read))
    _reading.add(task)
    task.add_done_callback(partial(_has_read, engine, asked, read, told, hand_over))
    return True


def _has_read(
    engine: Engine,
    asked: _Diff,
    read: reads.Read,
    told: Told,
    hand_over: Callable[[], None],
    task: asyncio.Task[reads.Reading],
) -> None:
    _reading.discard(task)
    # What it waited for was cancelled, or it was with the loop: whoever is left is told all the same.
    error = ShuttingDown() if task.cancelled() else task.exception()
    if error is not None:
        told(error)
    elif asked.wait_ms and task.result().empty:
        hand_over()  # what there was is not for this reader: now it has to wait
    elif reads.is_cut(read, task.result()):
        reads.dropped(engine, task.result())
        hand_over()  # a large answer: its memory is counted the other way
    else:
        told(Found(task.result().result, _SHAPES[asked.include_tags, asked.include_meta, asked.include_data]))


def _found(outcome: Found, _: bytes, started: float) -> Answer:
    return Answer(render.diff(outcome.result, outcome.shape, started))


#: By which parts of a record were asked for: tags, meta, data.
_SHAPES: Final = {
    parts: Shape(tags=parts[0], meta=parts[1], data=parts[2]) for parts in product((False, True), repeat=3)
}

_TOPIC: Final = "/v0/topics/{topic}"
_PLAIN: Final = frozenset({b""})
#: By what follows the topic's name in the path.
BY_NAME: Final = {
    b"": Action("append", _TOPIC, frozenset(_SEQS), Rule(WRITE), True, _append, _appended),
    b"claim": Action("claim", f"{_TOPIC}/claim", _PLAIN, Rule(READ_WRITE), False, _claim, _claimed, Claimed.undo),
    b"ack": Action("ack", f"{_TOPIC}/ack", _PLAIN, Rule(WRITE, settles=True), False, _ack, _acked),
    b"diff": Action("read", f"{_TOPIC}/diff", _PLAIN, Rule(READ), False, _diff, _found, reads=True),
}
