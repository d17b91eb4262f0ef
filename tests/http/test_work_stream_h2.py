"""The stream of jobs over HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import h2.connection
import h2.events
import httpx
import pytest

from broker.api import events
from broker.api.routes import work
from tests.http.calls import append
from tests.http.hot_server import HotServer
from tests.http.queue_calls import call, queue
from tests.http.test_long_poll import until
from tests.http.test_work_stream import working

COUNT = 200
BYTES = 10_000


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, http1=False, http2=True, timeout=20) as client:
        yield client


class Peer:
    """A client that keeps its stream at HTTP/2's initial window until a test enlarges it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._connection = h2.connection.H2Connection()
        self._connection.initiate_connection()
        self._connection.increment_flow_control_window(1 << 28)
        self.got = b""
        self.ended = False

    def ask(self, server: HotServer, path: str) -> None:
        host = f"127.0.0.1:{server.server.port}"
        headers = [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", host)]
        self._connection.send_headers(1, headers, end_stream=True)
        self.flush()

    def make_room(self) -> None:
        self._connection.increment_flow_control_window(1 << 28, 1)
        self.flush()

    def leave(self) -> None:
        self._connection.reset_stream(1)
        self.flush()

    def flush(self) -> None:
        self._writer.write(self._connection.data_to_send())

    async def listen(self) -> None:
        while data := await self._reader.read(1 << 16):
            for event in self._connection.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    self.got += event.data or b""
                self.ended |= isinstance(event, h2.events.StreamReset | h2.events.StreamEnded)
            self.flush()


@pytest.fixture
async def peer(server: HotServer, http: httpx.AsyncClient) -> AsyncIterator[Peer]:
    """It asks for all of a queue of 2 MB."""
    await queue(http)
    await append(http, "q", *({"data": "x" * BYTES} for _ in range(COUNT)))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    peer = Peer(reader, writer)
    peer.ask(server, "/v0/topics/q/work?node=w&max=1000")
    listening = asyncio.create_task(peer.listen())
    await until(lambda: len(peer.got) == 65_535)
    yield peer
    listening.cancel()
    writer.close()


async def test_jobs_are_pushed(http: httpx.AsyncClient) -> None:
    await queue(http, 1, 2)
    async with working(http) as stream:
        for seq in (1, 2):
            assert (await stream.job())["$seq"] == seq
            await call(http, "ack", node="w", seqs=[seq])


async def test_closing_an_http2_work_stream_makes_its_jobs_ready(server: HotServer, peer: Peer) -> None:
    """The connection stays."""
    peer.leave()
    await until(lambda: server.engine.queues.figures("q").in_flight == 0)
    assert server.broker.streams.parked == 0


async def test_a_stream_without_room_continues_when_there_is_room(peer: Peer) -> None:
    assert b'"$seq":%d,' % COUNT not in peer.got
    peer.make_room()
    await until(lambda: b'"$seq":%d,' % COUNT in peer.got)


@pytest.mark.parametrize("patience_s", [0.3])
async def test_a_stream_without_room_for_too_long_is_closed(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    monkeypatch.setattr(events, "PATIENCE_S", patience_s)
    monkeypatch.setattr(work, "MAX_BUFFERED_BYTES", 1 << 16)
    await queue(http)
    await append(http, "q", *({"data": "x" * BYTES} for _ in range(COUNT)))
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    peer = Peer(reader, writer)
    peer.ask(server, "/v0/topics/q/work?node=w&max=1000")
    listening = asyncio.create_task(peer.listen())
    await until(lambda: peer.ended)
    await until(lambda: server.engine.queues.figures("q").in_flight == 0)
    assert server.broker.streams.parked == 0
    assert len(peer.got) == 65_535
    listening.cancel()
    writer.close()
