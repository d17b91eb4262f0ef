"""An owner of a cell in a bucket sends nothing past its time, by no way out: the connection is aborted instead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from broker.cells import Peers, PeerServer, PeerUnavailable
from tests.http.hot_server import ASGI, HotServer, post
from tests.kafka.server import KafkaServer

JSON = {"content-type": "application/json"}
WATCH = post("t", b'{"topics":{"t":{}}}').replace(b"/v0/topics/t", b"/v0/watch")
RECORD = b'{"records":[{"data":1}]}'


class Gate:
    """Stands in for `CellOwner.may_answer`."""

    def __init__(self) -> None:
        self.is_open = True

    def __call__(self) -> bool:
        return self.is_open


def gate(server: HotServer) -> Gate:
    """A gate for the connections that come from now on."""
    found = Gate()
    protocol: Any = server.server.config.http_protocol_class
    protocol.server_context.may_answer = found
    return found


def head(server: HotServer) -> int:
    return server.engine.state("t").head_seq


@pytest.mark.parametrize("http", ["zttp", "httptools"])
@pytest.mark.parametrize("headers", [{}, ASGI], ids=["hot", "task"])
async def test_an_answer_over_http1_is_not_sent_past_the_time(http: str, headers: dict[str, str]) -> None:
    async with HotServer(http=http) as server:
        await server.topic("t")
        looked = gate(server)
        wire = await server.connect()
        wire.send(post("t", RECORD, headers))
        assert (await wire.answer()).status == 200
        looked.is_open = False
        wire.send(post("t", RECORD, headers))
        await wire.ended()
        assert head(server) == 2, "it was written, and the client does not know"


async def test_an_answer_over_http2_is_not_sent_past_the_time() -> None:
    async with HotServer() as server:
        await server.topic("t")
        looked = gate(server)
        async with httpx.AsyncClient(http1=False, http2=True, base_url=server.server.url, headers=JSON) as client:
            assert (await client.post("/v0/topics/t", content=RECORD)).status_code == 200
            looked.is_open = False
            with pytest.raises(httpx.TransportError):
                await client.post("/v0/topics/t", content=RECORD)
        assert head(server) == 2


async def test_a_stream_ends_with_the_time() -> None:
    async with HotServer() as server:
        await server.topic("t")
        looked = gate(server)
        writer = await server.connect()
        writer.send(WATCH)
        path = (await writer.answer()).body["stream_url"]
        wire = await server.connect()
        wire.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        received = b""
        writer.send(post("t", b'{"records":[{"data":"first"}]}'))
        await writer.answer()
        while b"first" not in received:
            received += await wire.read()
        looked.is_open = False
        writer.send(post("t", b'{"records":[{"data":"second"}]}'))
        await writer.ended()
        async with asyncio.timeout(20):
            while piece := await wire.read():
                received += piece
        assert b"second" not in received


async def test_a_websocket_is_not_answered_past_the_time() -> None:
    async with HotServer() as server:
        looked = gate(server)
        async with connect(f"ws://127.0.0.1:{server.server.port}/v0/ws") as socket:
            await socket.send('{"op":"nothing"}')
            assert "error" in str(await socket.recv())
            looked.is_open = False
            await socket.send('{"op":"nothing"}')
            with pytest.raises(ConnectionClosed):
                await socket.recv()


async def test_a_kafka_client_is_not_answered_past_the_time(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path) as server:
        looked = server.broker.may_answer = Gate()
        wire = await server.connect()
        wire.send(18, 0, b"")
        await wire.answer()
        looked.is_open = False
        wire.send(18, 0, b"")
        await wire.ended()


async def test_other_cells_are_neither_answered_nor_called_past_the_time(tmp_path: Path) -> None:
    called: list[object] = []

    async def method(argument: object) -> bool:
        called.append(argument)
        return True

    path, looked, caller = tmp_path / "cell-01.peer", Gate(), Gate()
    server = PeerServer(path, {"method": method}, looked)
    await server.start()
    peers = Peers({1: path}, may_call=caller)
    try:
        assert await peers.call(1, "method", 1) is True
        looked.is_open = False
        with pytest.raises(PeerUnavailable) as late:
            await peers.call(1, "method", 2)
        assert (late.value.outcome, called) == ("unknown", [1, 2])
        looked.is_open, caller.is_open = True, False
        with pytest.raises(PeerUnavailable) as refused:
            await peers.call(1, "method", 3)
        assert (refused.value.outcome, called) == ("none", [1, 2])
    finally:
        await peers.close()
        await server.stop()
