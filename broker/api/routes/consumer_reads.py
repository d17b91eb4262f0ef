"""POST …/consumers/{consumer}/read and …/commit: the frequent requests of consumers."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from broker.api import render_consumers
from broker.api.operation import PARTITION, TOPIC, Operation, in_path
from broker.api.request import ClientGone, Request
from broker.auth import READ_WRITE, Rule
from broker.content import OK, Answer, Shape, render, strict_json
from broker.memory import MIN_READ_BYTES, SMALL
from broker.service import consumers, reads, routers
from broker.tracing import notes
from schemas import (
    CONSUMER_NAME_PATTERN,
    MAX_U64,
    CommitRequest,
    ConsumerAnswer,
    ConsumerReadAnswer,
    ConsumerReadRequest,
)
from storage import InvalidRequest

if TYPE_CHECKING:
    from storage.state.consumers import ConsumerRead

Natural = Annotated[int, Meta(ge=0)]

_U64_FIELDS = ("limit", "max_batch_bytes", "max_bytes", "wait_ms")


class _Read(msgspec.Struct, kw_only=True):
    limit: Natural | None = None
    max_batch_bytes: Natural | None = None
    max_bytes: Natural | None = None
    checkpoint: bool | None = None
    wait_ms: Natural | None = None
    node: str | list[str] | None = None
    attempt_key: str | None = None
    include_tags: bool | None = None
    include_meta: bool | None = None
    include_data: bool | None = None
    skip_corrupt: bool | None = None


class _Commit(msgspec.Struct, kw_only=True):
    seq: Natural
    epoch: Natural | None = None


_read = msgspec.json.Decoder(_Read)
_commit = msgspec.json.Decoder(_Commit)


async def read(request: Request) -> Answer:
    """Read for a consumer. If the client leaves before its answer, the read is undone, unless it has an attempt key."""
    began = monotonic()
    raw = request.body
    body = await strict_json.decode(raw, _read) if raw else _Read()
    asked = _asked(request.address(), request.values[1], body)
    broker = request.broker
    waited = await routers.caught_up(broker.engine, asked.topic)
    if request.client_is_gone():
        raise ClientGone  # before the read takes records that others could get
    memory = broker.memory
    if memory.is_busy:
        await memory.acquire(MIN_READ_BYTES)
    asked.max_batch_bytes = await request.room(
        reads.clamped(asked.max_batch_bytes, reads.DEFAULT_BATCH_BYTES, reads.MAX_BATCH_BYTES)
    )
    done = await consumers.read(broker.engine, asked)
    if asked.wait_ms and reads.has_nothing(done.result):
        request.release_room()
        asked.max_batch_bytes = min(asked.max_batch_bytes, SMALL)
        waiting = consumers.read_on(
            broker.engine, request.parking, asked, done, began, partial(memory.acquire, MIN_READ_BYTES)
        )
        done = await request.unless_gone(waiting, discard=lambda late: late.undo())
    if broker.tracing is not None:
        request.take_note(notes.read, "consume", asked.topic, done.result.records)
    shape = Shape(
        tags=body.include_tags is True, meta=body.include_meta is not False, data=body.include_data is not False
    )
    try:
        text = await _rendered(request, asked.consumer, done, shape)
    except BaseException:
        done.undo()
        raise
    return Answer(render.routed(text, waited), withdraw=done.undo)


async def _rendered(request: Request, consumer: str, done: ConsumerRead, shape: Shape) -> bytes:
    """The answer. A large one holds its memory and is rendered in slices. Raises Overloaded."""
    result, memory, text = done.result, request.broker.memory, None
    if result.bytes > SMALL:
        await request.room_for(result.bytes, waits=False)
        async with memory.rendering:
            text = await render.records_in_slices(result.records, shape, result.bytes, memory.acquire)
    else:
        request.release_room()
    return render_consumers.read(consumer, done, shape, request.started, text)


async def commit(request: Request) -> Answer:
    topic, consumer = request.address(), request.values[1]
    body = await strict_json.decode(request.body, _commit)
    _check_u64(body.seq, "seq")
    _check_u64(body.epoch or 0, "epoch")
    state = await consumers.commit(request.broker.engine, topic, consumer, body.seq, body.epoch)
    return Answer(render_consumers.state(state, request.started))


def _asked(topic: str, consumer: str, body: _Read) -> consumers.Read:
    for field in _U64_FIELDS:
        _check_u64(getattr(body, field) or 0, field)
    return consumers.Read(
        topic=topic,
        consumer=consumer,
        limit=body.limit or 0,
        max_batch_bytes=body.max_batch_bytes or body.max_bytes or 0,
        nodes=reads.several(body.node),
        checkpoint=body.checkpoint is not False,
        wait_ms=body.wait_ms or 0,
        attempt_key=body.attempt_key,
        skip_corrupt=body.skip_corrupt is True,
    )


def _check_u64(value: int, field: str) -> None:
    if value > MAX_U64:
        raise InvalidRequest(f"{field}: expected an integer from 0 to {MAX_U64}.", field=field)


_CONSUMER: Final = in_path(
    "consumer", {"type": "string", "pattern": CONSUMER_NAME_PATTERN, "examples": ["billing"]}, "The consumer's name."
)
_COMMON: Final = (
    "invalid_request", "topic_not_found", "topic_exists_incompatible", "consumer_not_found", "payload_too_large",
    "unsupported_media_type", "wal_saturated", "storage_failed", "storage_full",
)  # fmt: skip

OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v0/topics/{topic}/consumers/{consumer}/read",
        name="read_consumer",
        handler=read,
        rule=Rule(READ_WRITE),
        tag="consumers",
        summary="Read the next records",
        description="A read moves the cursor after the returned records; with checkpoint=false only a commit "
        "moves it. Readers of one consumer are served one after another, so that they get different "
        "records. With wait_ms the read waits for a record. If the client disconnects before the "
        "answer is sent, the cursor moves back, unless the read has an attempt_key: then the client "
        "can repeat it.",
        answer=ConsumerReadAnswer,
        request=ConsumerReadRequest,
        parameters=(
            TOPIC,
            _CONSUMER,
            PARTITION,
        ),
        successes={OK: "The records; maybe none."},
        refusals=(*_COMMON, "throttled", "segment_corrupt"),
    ),
    Operation(
        method="POST",
        path="/v0/topics/{topic}/consumers/{consumer}/commit",
        name="commit_consumer",
        handler=commit,
        rule=Rule(READ_WRITE),
        tag="consumers",
        summary="Commit a cursor",
        description="Sets the cursor to this seq, durably. Reads continue after it. With an epoch, it is refused if "
        "the topic was created again, restored or salvaged.",
        answer=ConsumerAnswer,
        request=CommitRequest,
        parameters=(
            TOPIC,
            _CONSUMER,
            PARTITION,
        ),
        successes={OK: "The state of the consumer."},
        refusals=(*_COMMON, "epoch_conflict"),
    ),
]
