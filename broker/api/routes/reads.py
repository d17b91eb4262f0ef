"""POST …/diff, GET …/records and GET …/records/{seq}: reads of records."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from broker.api.operation import NUMBER, PARTITION, TOPIC, Natural, Operation, Parameter, in_path, in_query
from broker.api.query import Query, parsed
from broker.api.request import Outcome, Pending, Request
from broker.auth import READ, Rule
from broker.content import OK, Answer, Shape, render
from broker.memory import MIN_READ_BYTES, SMALL
from broker.service import reads, routers, tag_match
from broker.tracing import notes
from schemas import MAX_U64, DiffAnswer, DiffRequest, RecordAnswer, parse_u64
from storage import InvalidRequest, ShuttingDown
from storage.records import ReadQuery, ReadResult

if TYPE_CHECKING:
    pass

_U64_FIELDS = ("from_seq", "limit", "max_batch_bytes", "max_bytes", "wait_ms", "from_ts", "epoch")


class _Body(msgspec.Struct, kw_only=True):
    from_seq: Natural | None = None
    limit: Natural | None = None
    max_batch_bytes: Natural | None = None
    max_bytes: Natural | None = None
    node: str | list[str] | None = None
    include_tags: bool | None = None
    include_meta: bool | None = None
    include_data: bool | None = None
    include_stored: bool | None = None
    wait_ms: Natural | None = None
    from_ts: Natural | None = None
    tag: Any = None
    epoch: Natural | None = None
    skip_corrupt: bool | None = None


class _Asked(msgspec.Struct, kw_only=True):
    """A read. Its first `query` asks for at most SMALL of the `max_bytes` that the answer may have."""

    #: The address of the partition.
    topic: str
    query: ReadQuery
    max_bytes: int
    wait_ms: int
    shape: Shape


_body = msgspec.json.Decoder(_Body)
_any = msgspec.json.Decoder()
_NO_NODES: Final[frozenset[bytes]] = frozenset()
#: Reading takes 1/READ_SHARE of the time of rendering.
READ_SHARE: Final = 4


def diff(request: Request) -> Outcome:
    return request.decoded(_body, partial(_read, request)) if request.body else _read(request, _Body())


def get_records(request: Request) -> Outcome:
    return _read(request, _from_query(request.query))


async def get_record(request: Request) -> Answer:
    topic, seq_text = request.address(), request.values[1]
    seq = parsed(parse_u64, seq_text, "seq")
    shape = _shape_of(request.query)
    waited = await routers.caught_up(request.broker.engine, topic)
    record = await request.broker.engine.read_one(topic, seq)
    if request.broker.tracing is not None:
        request.take_note(notes.read, "read", topic, [record])
    return Answer(render.routed(render.one_record(topic, record, shape, request.started), waited))


def _read(request: Request, body: _Body) -> Outcome:
    broker = request.broker
    engine = broker.engine
    name = request.values[0]
    topic = engine.catalog.topics.get(name)
    if request.query_string or topic is None or topic.provisional:
        name, topic = request.address(), None
    for field in _U64_FIELDS:
        value = getattr(body, field)
        if value is not None and value > MAX_U64:
            raise InvalidRequest(f"{field}: expected an integer from 0 to {MAX_U64}.", field=field)
    tag = None if body.tag is None else tag_match(body.tag, "tag")
    if topic is None:
        topic = engine.topic(name)
    wait_ms = body.wait_ms or 0
    max_bytes = min(body.max_batch_bytes or body.max_bytes or reads.DEFAULT_BATCH_BYTES, reads.MAX_BATCH_BYTES)
    query = ReadQuery(
        from_seq=body.from_seq or 0,
        limit=min(body.limit or reads.DEFAULT_LIMIT, reads.MAX_LIMIT),
        max_bytes=min(max_bytes, SMALL),
        exclude_nodes=reads.excluded_nodes(engine, name, reads.several(body.node)) if body.node else _NO_NODES,
        tag=tag,
        from_ts=body.from_ts,
        epoch=body.epoch,
        skip_corrupt=body.skip_corrupt is True,
    )
    asked = _Asked(
        topic=name,
        query=query,
        max_bytes=max_bytes,
        wait_ms=wait_ms,
        shape=Shape(
            tags=body.include_tags is True,
            meta=body.include_meta is not False,
            data=body.include_data is not False,
            stored=body.include_stored is True,
        ),
    )
    memory = broker.memory
    if (
        memory.rendering.locked()
        or memory.answers.waiters  # like `memory.is_busy`: then reads and large answers go one after another
        or topic.topic_id in engine.catalog.routes.into  # the read waits for records that routers have not copied yet
        or (wait_ms and query.from_seq >= topic.log.head)
    ):
        return _read_on(request, asked)

    def finish(result: ReadResult) -> Answer | Coroutine[Any, Any, Answer]:
        if wait_ms and reads.has_nothing(result):
            return _read_on(request, asked)  # no record was for this reader
        if _is_partial(asked, result):
            engine.catalog.usage.traffic.unanswered(result)  # `_read_on` reads again
            return _read_on(request, asked)
        request.is_read = True
        if broker.tracing is not None:
            request.take_note(notes.read, "read", name, result.records)
        return Answer(render.diff(result, asked.shape, request.started))

    return Pending(finish).run(engine.reader.read(topic, query), ShuttingDown)


async def _read_on(request: Request, asked: _Asked) -> Answer:
    """A read that may have to wait, for records or for its turn."""
    broker = request.broker
    engine, memory, topic = broker.engine, broker.memory, asked.topic
    waited = await routers.caught_up(engine, topic)
    if memory.is_busy:
        await memory.acquire(MIN_READ_BYTES)
    result = await engine.read(topic, asked.query)
    if asked.wait_ms and reads.has_nothing(result):
        result = await request.unless_gone(_wait(request, asked, result))
    request.is_read = True
    if _is_partial(asked, result):
        result = await _whole(request, asked, result)
        if broker.tracing is not None:
            request.take_note(notes.read, "read", topic, result.records)
        async with memory.rendering:
            text = await render.large_diff(result, asked.shape, request.started, memory.acquire)
    else:
        text = render.diff(result, asked.shape, request.started)
        if broker.tracing is not None:
            request.take_note(notes.read, "read", topic, result.records)
    return Answer(render.routed(text, waited))


async def _wait(request: Request, asked: _Asked, result: ReadResult) -> ReadResult:
    """Repeat a read that found nothing until it finds something or its wait_ms have passed.

    A write between two reads is not missed: the wait ends as soon as the head is beyond the last record examined, even
    if it already is. At shutdown the current result is returned at once. Many requests may wait for the same write, so
    their reads go one after another. Raises LimitReached (too many wait), TopicNotFound (deleted meanwhile).
    """
    engine, topic = request.broker.engine, asked.topic
    deadline = monotonic() + min(asked.wait_ms, reads.MAX_WAIT_MS) / 1000
    with request.parking.hold():
        while reads.has_nothing(result):
            left_ms = int((deadline - monotonic()) * 1000)
            if left_ms <= 0:
                break
            position = result.next_from_seq
            try:
                moved = await engine.wait_beyond(topic, position, left_ms)
            except ShuttingDown:
                break
            if not moved:
                break
            await request.broker.memory.begin()
            asked.query = msgspec.structs.replace(asked.query, from_seq=position)
            result = await engine.read(topic, asked.query)
    return result


def _is_partial(asked: _Asked, result: ReadResult) -> bool:
    """Whether the small first read left out records that the answer may have, or one record is larger than SMALL."""
    if result.bytes > SMALL:
        return True
    return (
        asked.max_bytes > asked.query.max_bytes
        and result.next_from_seq < result.head_seq
        and 0 < len(result.records) < asked.query.limit
    )


async def _whole(request: Request, asked: _Asked, result: ReadResult) -> ReadResult:
    """Read as much as was asked for, with its memory held. If there is too little memory, return less, but at least
    one record. Raises Overloaded.
    """
    engine, memory = request.broker.engine, request.broker.memory
    least = result.bytes
    engine.catalog.usage.traffic.unanswered(result)  # it is read again
    result.records = ()  # not a second copy while this waits for memory
    if least > SMALL:
        await request.room_for(least)
    room = await request.room(max(least, asked.max_bytes))
    await memory.acquire(room // READ_SHARE)
    whole = await engine.read(asked.topic, msgspec.structs.replace(asked.query, max_bytes=room))
    await request.room_for(whole.bytes)
    return whole


def _from_query(query: Query) -> _Body:
    """The fields of a read from the query; several `node=` make a list."""
    shape = _shape_of(query)
    return _Body(
        from_seq=query.number("from_seq"),
        limit=query.number("limit"),
        max_batch_bytes=query.number("max_batch_bytes"),
        max_bytes=query.number("max_bytes"),
        node=query.texts("node") or None,
        include_tags=shape.tags,
        include_meta=shape.meta,
        include_data=shape.data,
        include_stored=shape.stored,
        wait_ms=query.number("wait_ms"),
        from_ts=query.number("from_ts"),
        tag=_predicate(query.text("tag")),
        epoch=query.number("epoch"),
        skip_corrupt=query.flag("skip_corrupt", False),
    )


def _shape_of(query: Query) -> Shape:
    return Shape(
        tags=query.flag("include_tags", False),
        meta=query.flag("include_meta", True),
        data=query.flag("include_data", True),
        stored=query.flag("include_stored", False),
    )


def _predicate(text: str | None) -> Any:
    """A predicate in JSON if the text begins like one, else a literal tag."""
    if text is None or text[:1] not in ("[", '"'):
        return text
    try:
        return _any.decode(text)
    except msgspec.DecodeError:
        raise InvalidRequest("tag: begins like JSON, but is not valid JSON.", field="tag") from None


_SEQ: Final = in_path("seq", NUMBER | {"minimum": 1, "examples": [1]})
_IN_QUOTES: Final = r'[^*"\\\x00-\x1f]*'
#: Empty, a literal tag (which does not begin like JSON and has no *), or one of the predicates.
_TAG_IN_QUERY: Final = (
    rf'^([^*\["][^*]*|"{_IN_QUOTES}"|\["tag", ?"Eq", ?"{_IN_QUOTES}"\]|\["tag", ?"Glob", ?"{_IN_QUOTES}\*"\])?$'
)
_SHAPE: Final = ("include_tags", "include_meta", "include_data", "include_stored")


def _read_parameters(*only: str) -> list[Parameter]:
    """The fields of a read as query parameters."""
    properties: dict[str, Any] = DiffRequest.model_json_schema()["properties"]
    parameters: list[Parameter] = []
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
        parameters.append(in_query(name, schema))
    return parameters


OPERATIONS: Final = [
    Operation(
        method="POST",
        path="/v0/topics/{topic}/diff",
        name="read_records",
        handler=diff,
        rule=Rule(READ),
        is_direct=True,
        summary="Read the records after a seq",
        description="With wait_ms the read waits for a record.",
        answer=DiffAnswer,
        request=DiffRequest,
        parameters=(TOPIC, PARTITION),
        successes={OK: "The records; maybe none."},
        refusals=(
            "invalid_request", "topic_not_found", "payload_too_large", "unsupported_media_type", "throttled",
            "segment_corrupt",
        ),
    ),
    Operation(
        method="GET",
        path="/v0/topics/{topic}/records",
        name="list_records",
        handler=get_records,
        rule=Rule(READ),
        summary="Read the records after a seq, with query parameters",
        description="The same as POST …/diff.",
        answer=DiffAnswer,
        parameters=(TOPIC, PARTITION, *_read_parameters()),
        successes={OK: "The records; maybe none."},
        refusals=("invalid_request", "topic_not_found", "throttled", "segment_corrupt"),
    ),
    Operation(
        method="GET",
        path="/v0/topics/{topic}/records/{seq}",
        name="get_record",
        handler=get_record,
        rule=Rule(READ),
        summary="Read one record",
        description="If it does not exist, detail.reason says why: future, expired, evicted, lost or deleted.",
        answer=RecordAnswer,
        parameters=(TOPIC, _SEQ, PARTITION, *_read_parameters(*_SHAPE)),
        successes={OK: "The record."},
        refusals=("invalid_request", "topic_not_found", "not_found", "segment_corrupt"),
    ),
]  # fmt: skip
