"""Connections whose next request has the same head as one before. `agains` in `conftest` counts these requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.http.hot_server import HotServer, Wire, post, records

ONE = records(1)
GET = b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def warm(server: HotServer, *requests: bytes) -> Wire:
    """A connection whose next requests like these need no parsing."""
    wire = await server.connect()
    for request in requests or (post("t", ONE),):
        wire.send(request)
        assert (await wire.answer()).status == 200
    return wire


@asynccontextmanager
async def under_way(server: HotServer, wire: Wire, request: bytes) -> AsyncGenerator[None]:
    """Send the request and return before its answer."""
    with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
        wire.send(request)
        await asyncio.to_thread(gate.wait_held)
        yield


def connection(server: HotServer) -> Any:
    [only] = server.server.server_state.connections
    return only


async def raw(wire: Wire, request: bytes) -> bytes:
    """The bytes of an answer, without the parts that change with time."""
    wire.send(request)
    got = b""
    while b"\r\n\r\n" not in got:
        got += await wire.read()
    head, body = got.split(b"\r\n\r\n")
    return re.sub(rb"date: [^\r]*|content-length: [0-9]+|[0-9a-f]{8}-[0-9a-f]+", b"", head) + re.sub(
        rb"[0-9.]+", b"0", body
    )
