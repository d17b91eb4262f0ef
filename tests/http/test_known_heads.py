"""Requests whose head came before on their connection: answered as those that are parsed, whatever stands around them.

No test here means anything unless `agains` grows: it counts the requests that no parser has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from broker.cycles import AgainCycle
from tests.http.hot_server import ASGI, HotServer, Wire, post, records
from tests.unit.storage.machine import data

ONE = records(1)
GET = b"GET /v0/topics/t HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture
def agains(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What no parser has seen, at first at least."""
    seen: list[bytes] = []
    make = AgainCycle.__init__

    def counted(self: AgainCycle, protocol: Any, target: Any, headers: Any, flight: Any, data: bytes) -> None:
        seen.append(data)
        make(self, protocol, target, headers, flight, data)

    monkeypatch.setattr(AgainCycle, "__init__", counted)
    yield seen


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        await server.topic("t")
        yield server


async def warm(server: HotServer, request: bytes | None = None) -> Wire:
    """A connection whose next request of this kind need not be parsed; one record is in the topic."""
    wire = await server.connect()
    wire.send(post("t", ONE) if request is None else request)
    assert (await wire.answer()).status == 200
    return wire


UNUSUAL = [
    b"content-length: 000000%d",
    b"content-length: %d ",
    b"content-length: %d\t",
    b"Content-Length:\t%d \t ",
]


@pytest.mark.parametrize("length", UNUSUAL)
async def test_a_body_is_never_taken_for_a_request(server: HotServer, agains: list[bytes], length: bytes) -> None:
    wire = await warm(server)
    wire.send(post("t", ONE))
    assert (await wire.answer()).status == 200
    assert len(agains) == 1
    inside = post("t", records("smuggled"))
    wire.send(b"POST /v0/nowhere HTTP/1.1\r\nhost: x\r\n" + length % len(inside) + b"\r\n\r\n")
    assert (await wire.answer()).status == 404, "before its body has come"
    wire.send(inside)
    await asyncio.sleep(0.05)
    wire.send(GET)
    assert (await wire.answer()).body["head_seq"] == 2
    assert await data(server.engine, "t") == [1, 1]
