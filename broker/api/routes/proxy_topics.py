"""REST Proxy v2: topics, their partitions and records, brokers.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from broker.api import events
from broker.api.record_count import check_count
from broker.api.request import Request
from broker.content import Answer, Headers, Streamed
from broker.kafka import BROKER_ID
from broker.memory import MIN_READ_BYTES, SMALL
from broker.proxy import (
    Format,
    Limits,
    Partition,
    PartitionMissing,
    ProxyRead,
    TopicMissing,
    Unprocessable,
    count_of,
    media,
    polling,
    producing,
    records,
    topics,
)
from schemas import MAX_U64
from storage import StorageError

#: The header that reports losses before the records of an answer; the records themselves have no field for it.
LOST: Final = b"topics-lost"
CORRUPT: Final = b"topics-corrupt"
#: How long a stream without records waits before it sends a heartbeat.
_STREAM_LIMITS: Final = Limits(timeout_ms=int(events.HEARTBEAT_S * 1000), max_bytes=SMALL)
#: Copies of the records in memory while their answer is made.
COPIES: Final = 3


def answer(request: Request, value: Any) -> Answer:
    """An answer without records."""
    content_type = media.answered_as(request.headers.get(b"accept"))
    return Answer(msgspec.json.encode(value), content_type=content_type)


async def list_topics(request: Request) -> Answer:
    return answer(request, topics.names(request.broker.engine, request.access.prefixes))


async def get_topic(request: Request) -> Answer:
    return answer(request, topics.described(request.broker.engine, request.values[0]))


async def list_partitions(request: Request) -> Answer:
    return answer(request, topics.partitions(request.broker.engine, request.values[0]))


async def get_partition(request: Request) -> Answer:
    topic, number = _partition(request)
    return answer(request, topics.partitions(request.broker.engine, topic)[number])


async def get_offsets(request: Request) -> Answer:
    begin, end = await _bounds(request, _partition(request))
    return answer(request, {"beginning_offset": begin, "end_offset": end})


async def list_brokers(request: Request) -> Answer:
    return answer(request, {"brokers": [BROKER_ID]})


# -- in ----------------------------------------------------------------------------------------------------------------


async def produce_to_topic(request: Request) -> Answer:
    return await _produce(request, None)


async def produce_to_partition(request: Request) -> Answer:
    return await _produce(request, _number(request.values[1]))


async def _produce(request: Request, partition: int | None) -> Answer:
    content_type = media.answered_as(request.headers.get(b"accept"))
    body = await request.read_body(media.is_known)
    await check_count(body, request.broker.engine.options.max_batch_records)
    batch = await records.parse(body, media.written_in(request.headers.get(b"content-type", b"")))
    key = request.headers.get(b"idempotency-key", b"").decode("utf-8", "replace") or None
    results = await producing.produce(
        request.broker, request.values[0], batch, partition=partition, idempotency_key=key
    )
    return Answer(await records.produced(results), content_type=content_type)


# -- out ---------------------------------------------------------------------------------------------------------------


async def read_partition(request: Request) -> Answer:
    """Read records from an offset on, without a consumer."""
    partition = _partition(request)
    begin, end = await _bounds(request, partition)
    offset = _offset(request.query.text("offset"), begin, end)
    if wants_events(request):
        after = request.headers.get(b"last-event-id", b"")
        if after.isdigit() and int(after) < MAX_U64:
            offset = int(after) + 1
        return await _stream(request, partition, offset)
    format, content_type = media.read_as(request.headers.get(b"accept"), None)
    format = asked_format(request, format)
    limits = await within_memory(request, limits_of(request, Limits(timeout_ms=0)))
    work = request.broker.proxy.sources.read({partition: offset}, limits, request.parking)
    return await answer_in_memory(request, await request.unless_gone(work), format, content_type)


def wants_events(request: Request) -> bool:
    """Whether the client asks for a stream of events."""
    return events.EVENT_STREAM in request.headers.get(b"accept", b"")


def asked_format(request: Request, format: Format) -> Format:
    """The format in the query if there is one, else the given one. Raises Unprocessable."""
    asked = request.query.text("format")
    if asked is None:
        return format
    if asked not in list(Format):
        raise Unprocessable("format: binary, json or text.")
    return Format(asked)


def limits_of(request: Request, default: Limits) -> Limits:
    """How much to read, and how long to wait for it. Raises Unprocessable, InvalidRequest."""
    query = request.query
    timeout_ms = _optional(query.text("timeout"), "timeout")
    max_bytes = _optional(query.text("max_bytes"), "max_bytes")
    count = _optional(query.text("count"), "count")
    return Limits(
        timeout_ms=default.timeout_ms if timeout_ms is None else min(timeout_ms, polling.MAX_TIMEOUT_MS),
        max_bytes=default.max_bytes if not max_bytes else min(max_bytes, polling.MAX_BYTES),
        min_bytes=default.min_bytes,
        max_records=default.max_records if not count else min(count, polling.MAX_RECORDS),
        skip_corrupt=query.flag("skip_corrupt", False),
    )


async def within_memory(request: Request, limits: Limits) -> Limits:
    """How much may be read: less if there is no memory for all of it. Returns when it is this read's turn."""
    memory = request.broker.memory
    if limits.max_bytes <= SMALL:
        if memory.is_busy:
            await memory.acquire(MIN_READ_BYTES)
        return limits
    room = await request.room(limits.max_bytes * COPIES)
    if room < limits.max_bytes * COPIES:
        limits = limits._replace(max_bytes=SMALL)
    # A read is converted to Kafka's records at once, on the loop: for many large reads that would take seconds.
    await memory.acquire(limits.max_bytes)
    return limits


async def answer_in_memory(request: Request, found: ProxyRead, format: Format, content_type: bytes) -> Answer:
    """Like `found_answer`, for a read `within_memory`; a large one is rendered on a thread. Raises Overloaded."""
    size = sum(len(each.key or b"") + len(each.value or b"") for each in found.records)
    if size <= SMALL:
        request.release_room()
        return found_answer(found, format, content_type)
    await request.room_for(size * COPIES, waits=False)
    async with request.broker.memory.rendering:
        return await asyncio.to_thread(found_answer, found, format, content_type)


def found_answer(found: ProxyRead, format: Format, content_type: bytes) -> Answer:
    """The answer with the records of a read. Losses, for which records have no field, are in headers."""
    headers: list[tuple[bytes, bytes]] = [(LOST, str(each).encode()) for each in found.lost]
    headers += [(CORRUPT, f"{topic}/{number} {at}".encode()) for (topic, number), at in found.corrupt[:100]]
    return Answer(records.all_as_json(found.records, format), content_type=content_type, headers=headers)


async def _stream(request: Request, partition: Partition, offset: int) -> Streamed:
    format = asked_format(request, Format.JSON)
    rest = None
    if request.scope["method"] != "HEAD":
        rest = _events(request, partition, offset, format)
    return streamed(rest)


def streamed(rest: AsyncGenerator[bytes] | None) -> Streamed:
    """A stream of events."""
    headers: Headers = events.HEADERS
    return Streamed(
        events.RETRY,
        rest,
        length=None,
        patience_s=events.PATIENCE_S,
        content_type=events.EVENT_STREAM,
        headers=headers,
    )


async def _events(request: Request, partition: Partition, offset: int, format: Format) -> AsyncGenerator[bytes]:
    engine, sources = request.broker.engine, request.broker.proxy.sources
    with request.hold_stream():
        while True:
            try:
                found = await sources.read({partition: offset}, _STREAM_LIMITS, polling.Streaming())
            except StorageError as error:
                yield events.error_event(error, partition[0])
                return
            offset = found.positions[partition]
            yield pieces(found, format, engine.now_ms(), with_ids=True)
            if request.broker.proxy.stopping:
                return


def pieces(found: ProxyRead, format: Format, now_ms: int, *, with_ids: bool) -> bytes:
    """The events of a read; a comment if it found nothing. The id of an event is the offset of its record."""
    out = [events.event("lost", each.as_event()) for each in found.lost]
    for record in found.records:
        id = b"id: %d\n" % record.offset if with_ids else b""
        out.append(b"%bdata: %b\n\n" % (id, _one_line(records.as_json(record, format))))
    return b"".join(out) or events.heartbeat(now_ms)


def _one_line(text: bytes) -> bytes:
    """Replace line ends by spaces. Verbatim JSON has them only between tokens, where a space means the same."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


# -- fields ------------------------------------------------------------------------------------------------------------


def _partition(request: Request) -> Partition:
    """The partition of the path. Raises TopicMissing, PartitionMissing."""
    topic, number = request.values[0], _number(request.values[1])
    count = count_of(request.broker.engine, topic)
    if not count:
        raise TopicMissing
    if number >= count:
        raise PartitionMissing
    return topic, number


async def _bounds(request: Request, partition: Partition) -> tuple[int, int]:
    """The first existing offset of a partition of this topic, which another cell may have, and the next one."""
    sources = request.broker.proxy.sources
    await sources.look("", [partition[0]])
    return sources.bounds(partition)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise PartitionMissing
    return int(text)


def _offset(text: str | None, begin: int, end: int) -> int:
    match text:
        case None | "earliest" | "beginning":
            return begin
        case "latest" | "end":
            return end
        case _:
            if not (text.isascii() and text.isdigit() and int(text[:20]) < MAX_U64):
                raise Unprocessable("offset: a number, earliest or latest.")
            return int(text)


def _optional(text: str | None, field: str) -> int | None:
    """A number; None for the default, which -1 also means."""
    if text is None or text == "-1":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Unprocessable(f"{field}: expected a number.")
    return int(text)
