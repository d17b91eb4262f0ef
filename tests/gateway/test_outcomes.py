"""The answer to a client when a cell is down, goes away, or does not have the topic."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.cells import home_cell
from broker.gateway import Gateway, GatewayApp, HotForwards
from broker.gateway.links import Link
from broker.net import listen
from broker.server import BrokerServer
from broker.settings import Settings
from tests.support.scripted_cell import ScriptedCell, answer

NAMES = [f"t{number}" for number in range(100)]
#: A topic of cell 0, and one of cell 1.
AT_0, AT_1 = (next(name for name in NAMES if home_cell(name, 2) == cell) for cell in (0, 1))
#: Small JSON bypasses ASGI; another content type does not.
PATHS = ["hot", "general"]


@contextlib.asynccontextmanager
async def gateway(tmp_path: Path) -> AsyncGenerator[tuple[Gateway, httpx.AsyncClient, int]]:
    settings = Settings.model_validate({"data_dir": tmp_path})
    made = Gateway(settings, [tmp_path / "0", tmp_path / "1"], "set-1")
    app = GatewayApp(made)
    hot = HotForwards(app.dispatcher, made)
    server = BrokerServer(app.dispatcher, settings, listen("127.0.0.1", 0), hot=hot, grace_s=1)
    serving = asyncio.create_task(server.serve_until_stopped())
    await server.listening()
    try:
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
            yield made, client, server.port
    finally:
        server.request_stop()
        await serving
        made.close()


async def append(client: httpx.AsyncClient, topic: str, path: str) -> httpx.Response:
    content_type = "application/json" if path == "hot" else "application/json; charset=utf-8"
    return await client.post(f"/v0/topics/{topic}", content=b"{}", headers={"content-type": content_type})


def outcome(response: httpx.Response) -> tuple[int, Any, Any]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["detail"].get("outcome")


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_was_done_if_the_cell_cannot_be_reached(tmp_path: Path, path: str) -> None:
    async with gateway(tmp_path) as (_, client, _port):
        assert outcome(await append(client, AT_0, path)) == (503, "not_ready", "none")


@pytest.mark.parametrize("path", PATHS)
async def test_the_outcome_is_unknown_if_the_cell_goes_away_and_nothing_is_sent_twice(
    tmp_path: Path, path: str
) -> None:
    async def goes_away(head: bytes, body: bytes) -> None:
        return None

    async with gateway(tmp_path) as (_, client, _port), ScriptedCell(tmp_path / "0", goes_away) as cell:
        response = await append(client, AT_0, path)
        assert outcome(response) == (503, "not_ready", "unknown")
        assert response.headers["retry-after"]
        assert len(cell.requests) == 1
        read = await client.get(f"/v0/topics/{AT_0}")
        assert outcome(read) == (503, "not_ready", "none")  # a read changes nothing


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "DELETE", "GET"])
async def test_the_outcome_is_unknown_if_the_cell_goes_away_within_its_answer(
    tmp_path: Path, path: str, method: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(200, b"{}")[:-2])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()

    async with gateway(tmp_path) as (_, client, _port):
        server = await asyncio.start_unix_server(serve, str(tmp_path / "0"))
        response = (
            await append(client, AT_0, path) if method == "POST" else await client.request(method, f"/v0/topics/{AT_0}")
        )
        server.close()
    assert outcome(response) == (503, "not_ready", "none" if method == "GET" else "unknown")


@pytest.mark.parametrize("path", PATHS)
async def test_a_cell_that_goes_away_as_soon_as_it_accepts_is_not_waited_for(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Link.connection_made

    def goes_away(link: Link, transport: asyncio.BaseTransport) -> None:
        made(link, transport)
        link.transport.abort()

    async def never(head: bytes, body: bytes) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Link, "connection_made", goes_away)
    async with gateway(tmp_path) as (_, client, _port), ScriptedCell(tmp_path / "0", never):
        assert outcome(await append(client, AT_0, path)) == (503, "not_ready", "none")


@pytest.mark.parametrize("path", PATHS)
async def test_the_cell_named_by_not_mine_is_asked_and_remembered(tmp_path: Path, path: str) -> None:
    async def not_mine(head: bytes, body: bytes) -> bytes:
        return answer(421, b'{"error":{"code":"not_mine","message":"","detail":{"cell":1}}}')

    async def has_it(head: bytes, body: bytes) -> bytes:
        return answer(200, b'{"body":"%b"}' % body.strip(b"{}"), b"x-request-id: abc\r\n")

    async with (
        gateway(tmp_path) as (_, client, _port),
        ScriptedCell(tmp_path / "0", not_mine) as home,
        ScriptedCell(tmp_path / "1", has_it) as other,
    ):
        for _ in range(3):
            response = await append(client, AT_0, path)
            assert (response.status_code, response.headers["x-request-id"]) == (200, "abc")
        assert (len(home.requests), len(other.requests)) == (1, 3)


@pytest.mark.parametrize("path", PATHS)
async def test_cells_that_send_a_request_round_in_a_circle_are_not_followed_for_ever(tmp_path: Path, path: str) -> None:
    async def is_at(head: bytes, body: bytes, cell: int) -> bytes:
        return answer(421, b'{"error":{"code":"not_mine","message":"","detail":{"cell":%d}}}' % cell)

    async with (
        gateway(tmp_path) as (_, client, _port),
        ScriptedCell(tmp_path / "0", lambda head, body: is_at(head, body, 1)) as home,
        ScriptedCell(tmp_path / "1", lambda head, body: is_at(head, body, 0)) as other,
    ):
        assert outcome(await append(client, AT_0, path)) == (503, "not_ready", "none")
        assert len(home.requests) + len(other.requests) == 3


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_goes_away_ends_its_request_at_the_cell(tmp_path: Path, path: str) -> None:
    arrived = asyncio.Event()

    async def never(head: bytes, body: bytes) -> None:
        arrived.set()
        await asyncio.Event().wait()

    async with gateway(tmp_path) as (_, _client, port), ScriptedCell(tmp_path / "0", never) as cell:
        wire = socket.create_connection(("127.0.0.1", port))
        kind = b"application/json" + (b"" if path == "hot" else b"; charset=utf-8")
        head = b"POST /v0/topics/%b HTTP/1.1\r\nhost: localhost\r\ncontent-type: %b\r\n" % (AT_0.encode(), kind)
        wire.sendall(head + b"content-length: 2\r\n\r\n{}")
        async with asyncio.timeout(10):
            await arrived.wait()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        wire.close()
        async with asyncio.timeout(10):
            await cell.gone.acquire()


async def test_fields_of_the_connection_and_of_pages_are_not_forwarded_and_others_are(tmp_path: Path) -> None:
    async def fine(head: bytes, body: bytes) -> bytes:
        return answer(200, b"{}", b"topics-cell: 0\r\nkeep-alive: timeout=5\r\n")

    async with gateway(tmp_path) as (_, client, _port), ScriptedCell(tmp_path / "0", fine) as cell:
        for content_type in ("application/json", "application/json; charset=utf-8"):
            response = await client.post(
                f"/v0/topics/{AT_0}",
                content=b"{}",
                headers={
                    "content-type": content_type,
                    "authorization": "Bearer abc",
                    "connection": "keep-alive, x-secret",
                    "x-secret": "1",
                    "te": "trailers",
                    "sec-fetch-site": "same-origin" if ";" in content_type else "",
                    "idempotency-key": "k",
                },
            )
            assert response.status_code == 200, response.text
            assert response.headers["topics-cell"] == "0"
            head = cell.requests[-1].lower()
            assert b"authorization: bearer abc" in head
            assert b"idempotency-key: k" in head
            for absent in (b"x-secret", b"\r\nte:", b"sec-fetch-site", b"\r\nconnection:"):
                assert absent not in head, (absent, head)


async def test_a_connection_that_its_cell_has_closed_is_not_used_again(tmp_path: Path) -> None:
    async def fine(head: bytes, body: bytes) -> bytes:
        return answer(200, b"{}")

    async with gateway(tmp_path) as (made, client, _port):
        async with ScriptedCell(tmp_path / "0", fine):
            assert (await append(client, AT_0, "hot")).status_code == 200
        [link] = made.upstreams[0].links
        link.transport.abort()
        while made.upstreams[0].links:
            await asyncio.sleep(0)
        async with ScriptedCell(tmp_path / "0", fine):
            assert (await append(client, AT_0, "hot")).status_code == 200


async def test_an_answer_without_a_reader_is_not_read_from_the_cell(tmp_path: Path) -> None:
    """The gateway holds no more of it in memory than its buffers, however long it is."""
    size = 64 << 20
    written = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
            while written < size:
                writer.write(bytes(1 << 16))
                await writer.drain()
                written += 1 << 16
        writer.close()

    async with gateway(tmp_path) as (_, _client, port):
        server = await asyncio.start_unix_server(serve, str(tmp_path / "0"))
        wire = socket.create_connection(("127.0.0.1", port))
        wire.sendall(b"GET /v0/topics/%b/records HTTP/1.1\r\nhost: localhost\r\n\r\n" % AT_0.encode())
        before = -1
        while before != written or not written:
            before = written
            await asyncio.sleep(0.3)
        assert written < 16 << 20
        wire.close()
        server.close()


@pytest.mark.parametrize("path", ["/v0/ready", "/v0/topics", "/v0/routers"])
async def test_an_operation_of_all_cells_needs_all_cells(tmp_path: Path, path: str) -> None:
    async def fine(head: bytes, body: bytes) -> bytes:
        return answer(200, b'{"topics":[],"routers":[]}')

    async with gateway(tmp_path) as (_, client, _port), ScriptedCell(tmp_path / "0", fine):
        response = await client.get(path)
        assert outcome(response) == (503, "not_ready", "none")
        assert response.json()["error"]["detail"]["cell"] == 1
        assert (await client.get("/v0/health")).status_code == 200
