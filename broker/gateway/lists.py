"""Lists merged from all cells: pages of topics and routers in the order of their names, and the lists of the REST
Proxy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from broker.api import Request
from broker.content import Answer, in_slices, yield_to_loop
from broker.gateway.asking import LIST_S, Asking, Part, refused
from broker.service import consumers, topics

_object: Final[msgspec.json.Decoder[dict[str, msgspec.Raw]]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array: Final[msgspec.json.Decoder[list[msgspec.Raw]]] = msgspec.json.Decoder(list[msgspec.Raw])
_strings: Final[msgspec.json.Decoder[list[str]]] = msgspec.json.Decoder(list[str])


class _Topic(msgspec.Struct):
    topic: str


class _Router(msgspec.Struct):
    router: str


class _Consumer(msgspec.Struct):
    topic: str
    consumer: str
    partition: int = 0


class _Entry(msgspec.Struct):
    """What the entries of lists of the REST Proxy are sorted by: topics by name, replicas by topic and partition,
    groups by name."""

    topic_name: str = ""
    partition_id: int = 0
    consumer_group_id: str = ""


_topic = msgspec.json.Decoder(_Topic)
_consumer = msgspec.json.Decoder(_Consumer)
_router = msgspec.json.Decoder(_Router)
_entry = msgspec.json.Decoder(_Entry)


def _consumer_key(raw: msgspec.Raw) -> str:
    entry = _consumer.decode(raw)
    return consumers.key_of(entry.topic, entry.partition, entry.consumer)


class Lists:
    """The merged lists of one gateway."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def topics(self, request: Request) -> Answer:
        return await self._page(request, "topics", lambda raw: _topic.decode(raw).topic)

    async def routers(self, request: Request) -> Answer:
        return await self._page(request, "routers", lambda raw: _router.decode(raw).router)

    async def consumers(self, request: Request) -> Answer:
        return await self._page(request, "consumers", _consumer_key)

    async def _page(self, request: Request, field: str, name_of: Callable[[msgspec.Raw], str]) -> Answer:
        """Ask each cell for its first names after the cursor, and make a page from the first of all of them."""
        parts = await request.unless_gone(self._asking.ask_all(request))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        await request.broker.memory.begin_alone()
        decoded = [_object.decode(part.body) for part in parts]
        # A router that several cells list is shown once.
        entries = {name_of(raw): raw for each in decoded for raw in _array.decode(each[field])}
        names = sorted(entries, key=str.encode)
        most = min(request.query.number("page_size") or topics.DEFAULT_PAGE_SIZE, topics.MAX_PAGE_SIZE)
        answer: dict[str, Any] = {field: [entries[name] for name in names[:most]]}
        if len(names) > most or any("next_cursor" in each for each in decoded):
            answer["next_cursor"] = topics.encode_cursor(names[:most][-1])
        answer["performance"] = {"server_total_ms": round(request.elapsed_ms(), 3)}
        return Answer(msgspec.json.encode(answer))

    # -- REST Proxy --------------------------------------------------------------------------------------------------

    async def proxy_topics(self, request: Request) -> Answer:
        """The names of all topics (v2)."""
        return await request.unless_gone(self._whole(request, _names))

    async def proxy_list(self, request: Request) -> Answer:
        """A list of v3: the `data` of all cells."""
        return await request.unless_gone(self._whole(request, _entries))

    async def _whole(self, request: Request, merge: Callable[[list[Part]], Awaitable[bytes]]) -> Answer:
        async with self._asking.whole_lists:
            parts = await self._asking.ask_all(request, patience_s=LIST_S)
            if (refusal := refused(parts)) is not None:
                return refusal.to_client(request)
            head = parts[0].head
            body = await merge(parts)
        return Answer(body, headers=head.shared(), content_type=head.header(b"content-type", b"application/json"))


async def _names(parts: list[Part]) -> bytes:
    names: set[str] = set()
    for part in parts:
        await yield_to_loop()
        names.update(_strings.decode(part.body))
    await yield_to_loop()
    return msgspec.json.encode(sorted(names, key=str.encode))


async def _entries(parts: list[Part]) -> bytes:
    """The entries stay as they are. Other requests run between slices of them."""
    found: dict[tuple[str, int, str], msgspec.Raw] = {}
    first: dict[str, msgspec.Raw] = {}
    for part in reversed(parts):
        await yield_to_loop()
        first = _object.decode(part.body)
        async for raw in in_slices(_array.decode(first["data"])):
            entry = _entry.decode(raw)
            found[entry.topic_name, entry.partition_id, entry.consumer_group_id] = raw
    await yield_to_loop()
    data = [found[key] for key in sorted(found)]
    await yield_to_loop()
    return msgspec.json.encode({**first, "data": data})
