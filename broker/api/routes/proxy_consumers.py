"""REST Proxy v2: consumer instances.

Source: docs/guides/rest-proxy.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec

from broker.api import events
from broker.api.request import Request
from broker.api.routes.proxy_topics import (
    answer,
    answer_in_memory,
    asked_format,
    limits_of,
    pieces,
    streamed,
    wants_events,
    within_memory,
)
from broker.auth import READ, READ_WRITE, Forbidden
from broker.content import NO_CONTENT, Answer, Streamed, strict_json
from broker.kafka import require_group
from broker.memory import SMALL
from broker.proxy import (
    Format,
    Limits,
    Member,
    Partition,
    ProxyError,
    ProxyRead,
    Unprocessable,
    base_of,
    check_partitions,
    config_of,
    media,
    polling,
)
from storage import StorageError


class _Subscription(msgspec.Struct):
    topics: list[str] | None = None
    topic_pattern: str | None = None


class _Partition(msgspec.Struct):
    topic: str
    partition: int

    @property
    def pair(self) -> Partition:
        return self.topic, self.partition


class _Partitions(msgspec.Struct):
    partitions: list[_Partition]


class _Offset(_Partition):
    offset: int
    metadata: str | None = None


class _Offsets(msgspec.Struct):
    offsets: list[_Offset]


class _Commit(msgspec.Struct):
    offsets: list[_Offset] | None = None
    partitions: list[_Partition] | None = None


_instance: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_subscription = msgspec.json.Decoder(_Subscription)
_partitions = msgspec.json.Decoder(_Partitions)
_offsets = msgspec.json.Decoder(_Offsets)
_commit = msgspec.json.Decoder(_Commit)


async def create(request: Request) -> Answer:
    content_type = media.answered_as(request.headers.get(b"accept"))
    body = await request.read_body(media.is_known)
    given = await strict_json.decode(body, _instance) if body else {}
    if config_of(given).auto_commit:
        request.access.require(READ_WRITE)
    await require_group(request.broker, request.access, request.values[0])
    instance = await request.broker.proxy.create(request.values[0], given, request.access.prefixes)
    scope = request.scope
    base = base_of(request.headers, scope.get("scheme", "http"), request.broker.settings.kafka_rest_prefix or "")
    made = {
        "instance_id": instance.name,
        "base_uri": f"{base}/consumers/{_quoted(instance.group)}/instances/{_quoted(instance.name)}",
    }
    return Answer(msgspec.json.encode(made), content_type=content_type)


async def delete(request: Request) -> Answer:
    async with _using(request) as member:
        _may(request, member)
        await request.broker.proxy.delete(member)
    return _done()


# -- what it reads -----------------------------------------------------------------------------------------------------


async def subscribe(request: Request) -> Answer:
    asked = await strict_json.decode(await request.read_body(media.is_known), _subscription)
    topics = asked.topics or []
    request.access.require(READ, topics)
    async with _using(request) as member:
        _may(request, member)
        await request.broker.proxy.subscribe(member, topics, asked.topic_pattern, request.access.prefixes)
    return _done()


async def get_subscription(request: Request) -> Answer:
    async with _using(request) as member:
        _may(request, member)
        return answer(request, {"topics": sorted(member.topics(request.broker.proxy.sources))})


async def unsubscribe(request: Request) -> Answer:
    async with _using(request) as member:
        _may(request, member)
        await request.broker.proxy.unsubscribe(member)
    return _done()


async def assign(request: Request) -> Answer:
    wanted = (await strict_json.decode(await request.read_body(media.is_known), _partitions)).partitions
    request.access.require(READ, [each.topic for each in wanted])
    async with _using(request) as member:
        _may(request, member)
        await request.broker.proxy.assign(member, [each.pair for each in wanted])
    return _done()


async def get_assignments(request: Request) -> Answer:
    async with _using(request) as member:
        _may(request, member)
        held = request.broker.proxy.assigned(member)
        found = [{"topic": topic, "partition": number} for topic, number in sorted(held)]
        return answer(request, {"partitions": found})


# -- where it stands ---------------------------------------------------------------------------------------------------


async def seek(request: Request) -> Answer:
    wanted = (await strict_json.decode(await request.read_body(media.is_known), _offsets)).offsets
    request.access.require(READ, [each.topic for each in wanted])
    async with _using(request) as member:
        _may(request, member)
        await request.broker.proxy.seek(member, {each.pair: _natural(each.offset) for each in wanted})
    return _done()


async def seek_to_beginning(request: Request) -> Answer:
    return await _seek_to(request, 0)


async def seek_to_end(request: Request) -> Answer:
    return await _seek_to(request, 1)


async def _seek_to(request: Request, end: int) -> Answer:
    """Seek to the first offset (0) or to the one after the last (1). Checks the key before the topics."""
    wanted = (await strict_json.decode(await request.read_body(media.is_known), _partitions)).partitions
    request.access.require(READ, [each.topic for each in wanted])
    sources = request.broker.proxy.sources
    async with _using(request) as member:
        _may(request, member)
        await sources.look(member.instance.group, {each.topic for each in wanted})
        check_partitions(sources, [each.pair for each in wanted])
        await request.broker.proxy.seek(member, {each.pair: sources.bounds(each.pair)[end] for each in wanted})
    return _done()


async def commit(request: Request) -> Answer:
    body = await request.read_body(media.is_known)
    given = await strict_json.decode(body, _commit) if body else _Commit()
    # The client sends the offset of the last record that it has processed; the group stores the next offset.
    wanted = {each.pair: (_natural(each.offset + 1), each.metadata) for each in given.offsets or ()}
    request.access.require(READ_WRITE, [topic for topic, _ in wanted])
    async with _using(request) as member:
        _may(request, member)
        if given.partitions and not wanted:
            held = request.broker.proxy.assigned(member)
            wanted = {each.pair: (held[each.pair], None) for each in given.partitions if each.pair in held}
        await request.broker.proxy.commit(member, wanted or None)
    return _done()


async def get_committed(request: Request) -> Answer:
    sources = request.broker.proxy.sources
    body = await request.read_body(media.is_known)
    async with _using(request) as member:
        _may(request, member)
        if body:
            wanted = [each.pair for each in (await strict_json.decode(body, _partitions)).partitions]
            request.access.require(READ, [topic for topic, _ in wanted])
        else:
            wanted = sorted(request.broker.proxy.assigned(member))
        await sources.look(member.instance.group, {topic for topic, _ in wanted})
        check_partitions(sources, wanted)
        found = [(each, sources.committed(member.instance.group, each)) for each in wanted]
    answered = [
        {"topic": topic, "partition": number, "offset": each[0], "metadata": each[1]}
        for (topic, number), each in found
        if each is not None
    ]
    return answer(request, {"offsets": answered})


# -- records -----------------------------------------------------------------------------------------------------------


async def read(request: Request) -> Answer:
    async with _using(request) as member:
        _may(request, member)
        if wants_events(request):
            return _stream(request, member)
        own = member.instance.config
        format, content_type = media.read_as(request.headers.get(b"accept"), own.format)
        limits = await within_memory(request, limits_of(request, _own_limits(member)))
        proxy = request.broker.proxy
        work = proxy.read(member, limits, request.parking)
        found = await request.unless_gone(work, discard=lambda late: proxy.take_back(member, late))
        try:
            _may(request, member)  # while this waited, a pattern may have matched topics that the key is not for
        except Forbidden:
            proxy.take_back(member, found)
            raise
    try:
        made = await answer_in_memory(request, found, format, content_type)
    except BaseException:
        proxy.take_back(member, found)
        raise
    made.withdraw = lambda: proxy.take_back(member, found)
    return made


def _own_limits(member: Member) -> Limits:
    own = member.instance.config
    timeout_ms = polling.DEFAULT_TIMEOUT_MS if own.timeout_ms is None else own.timeout_ms
    return Limits(timeout_ms=min(timeout_ms, polling.MAX_TIMEOUT_MS), min_bytes=own.min_bytes)


def _stream(request: Request, member: Member) -> Streamed:
    format = asked_format(request, member.instance.config.format)
    rest = None
    if request.scope["method"] != "HEAD":
        rest = _events(request, member, format)
    return streamed(rest)


async def _events(request: Request, member: Member, format: Format) -> AsyncGenerator[bytes]:
    proxy, engine = request.broker.proxy, request.broker.engine
    limits = _own_limits(member)._replace(timeout_ms=int(events.HEARTBEAT_S * 1000), max_bytes=SMALL)
    with request.hold_stream():
        while True:
            await request.broker.memory.wait_for_room()
            try:
                async with _using(request):
                    found: ProxyRead = await proxy.read(member, limits, polling.Streaming())
                    _may(request, member)
            except (StorageError, ProxyError) as error:
                yield events.event("error", {"error": error.message})
                return
            yield pieces(found, format, engine.now_ms(), with_ids=False)
            if proxy.stopping:
                return


# -- the rest ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _using(request: Request) -> AsyncGenerator[Member]:
    """The instance of the path. Raises Forbidden before it reveals whether the instance exists."""
    await require_group(request.broker, request.access, request.values[0])
    with request.broker.proxy.using(request.values[0], request.values[1]) as member:
        yield member


def _may(request: Request, member: Member) -> None:
    """Raises Forbidden when the key is not for the topics that the instance reads."""
    instance = member.instance
    request.access.require(READ, {*instance.topics, *(topic for topic, _ in instance.positions)})


def _natural(offset: int) -> int:
    if not 0 <= offset < 1 << 63:
        raise Unprocessable("offset: must not be negative.")
    return offset


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _done() -> Answer:
    return Answer(b"", status=NO_CONTENT)
