"""Lists merged from all cells: pages of topics and routers in the order of their names, and the lists of the REST
Proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from broker.api import Request
from broker.content import Answer
from broker.gateway.asking import Asking, Part, refused
from broker.service import topics

_object: Final[msgspec.json.Decoder[dict[str, msgspec.Raw]]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array: Final[msgspec.json.Decoder[list[msgspec.Raw]]] = msgspec.json.Decoder(list[msgspec.Raw])
_strings: Final[msgspec.json.Decoder[list[str]]] = msgspec.json.Decoder(list[str])
_v3: Final[msgspec.json.Decoder[dict[str, Any]]] = msgspec.json.Decoder(dict[str, Any])


class _Topic(msgspec.Struct):
    topic: str


class _Router(msgspec.Struct):
    router: str


_topic = msgspec.json.Decoder(_Topic)
_router = msgspec.json.Decoder(_Router)


class Lists:
    """The merged lists of one gateway."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def topics(self, request: Request) -> Answer:
        return await self._page(request, "topics", lambda raw: _topic.decode(raw).topic)

    async def routers(self, request: Request) -> Answer:
        return await self._page(request, "routers", lambda raw: _router.decode(raw).router)

    async def _page(self, request: Request, field: str, name_of: Callable[[msgspec.Raw], str]) -> Answer:
        """Ask each cell for its first names after the cursor, and make a page from the first of all of them."""
        parts = await request.unless_gone(self._asking.ask_all(request))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
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
        parts = await request.unless_gone(self._asking.ask_all(request))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        names = sorted({name for part in parts for name in _strings.decode(part.body)}, key=str.encode)
        return _like(parts[0], msgspec.json.encode(names))

    async def proxy_list(self, request: Request) -> Answer:
        """A list of v3: the `data` of all cells."""
        parts = await request.unless_gone(self._asking.ask_all(request))
        if (refusal := refused(parts)) is not None:
            return refusal.to_client(request)
        decoded = [_v3.decode(part.body) for part in parts]
        found = {_key(entry): entry for each in decoded for entry in each["data"]}
        data = [found[key] for key in sorted(found)]
        return _like(parts[0], msgspec.json.encode({**decoded[0], "data": data}))


def _key(entry: Mapping[str, Any]) -> tuple[str, int, str]:
    """The sort key of an entry: topics by name, replicas by topic and partition, groups by name."""
    return entry.get("topic_name", ""), entry.get("partition_id", 0), entry.get("consumer_group_id", "")


def _like(part: Part, body: bytes) -> Answer:
    return Answer(body, headers=part.head.shared(), content_type=part.head.header(b"content-type", b"application/json"))
