"""Watching in tests: a session, its stream, and the frames of the stream."""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from tests.http.test_work_stream import PATIENCE_S, Stream


class Event(NamedTuple):
    name: str
    data: Any
    id: str | None

    @property
    def cursor(self) -> dict[str, Any]:
        """The decoded id."""
        assert self.id is not None
        return json.loads(urlsafe_b64decode(self.id + "=" * (-len(self.id) % 4)))

    @property
    def seqs(self) -> list[int]:
        assert self.name == "record", self
        return [record["$seq"] for record in self.data["records"]]


class Watch(Stream):
    """The events of a stream."""

    async def next(self) -> Event:
        return Event(*await self.event())

    async def names(self, count: int) -> list[str]:
        return [(await self.next()).name for _ in range(count)]

    async def caught_up(self) -> list[Event]:
        """All events up to and including the next caught-up event."""
        found = [await self.next()]
        while found[-1].name != "caught-up":
            found.append(await self.next())
        return found

    async def records(self, count: int) -> list[dict[str, Any]]:
        """At least this many records, from any number of events."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            event = await self.next()
            if event.name == "record":
                found += event.data["records"]
        return found


async def session(http: httpx.AsyncClient, *topics: str, **fields: Any) -> str:
    """The path of a new session's stream; topics given by name start at 0."""
    body = {"topics": {name: {"from_seq": 0} for name in topics}, **fields}
    answer = await http.post("/v0/watch", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["stream_url"]


@asynccontextmanager
async def stream(http: httpx.AsyncClient, path: str, last: str | None = None) -> AsyncIterator[Watch]:
    headers = {"last-event-id": last} if last is not None else {}
    async with http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        yield Watch(answer)


@asynccontextmanager
async def watching(http: httpx.AsyncClient, *topics: str, **fields: Any) -> AsyncIterator[Watch]:
    """A new session and its stream."""
    async with stream(http, await session(http, *topics, **fields)) as watch:
        yield watch


async def soon(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.002)
