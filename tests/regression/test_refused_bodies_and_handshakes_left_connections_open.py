"""A WebSocket handshake with a body was never answered. After a 413 to `Expect: 100-continue` the connection stayed
open for a minute, waiting for a body that the client would not send.
"""

from __future__ import annotations

import pytest

from tests.http.hot_server import HotServer, post

SERVERS = ["zttp", "httptools"]
HANDSHAKE = (
    b"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize(
    "body",
    [
        b"content-length: 5\r\n\r\nhello",
        b"content-length: 5\r\n\r\n",
        b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ],
)
async def test_a_handshake_with_a_body_is_refused(http: str, body: bytes) -> None:
    async with HotServer(http=http) as server:
        wire = await server.connect()
        wire.send(HANDSHAKE + body)
        answer = await wire.answer()
        assert (answer.status, answer.code) == (400, "invalid_request")
        await wire.ended()
        assert (await server.ask(HANDSHAKE + b"content-length: 0\r\n\r\n")).status == 101


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize(
    ("given", "status"),
    [({"content-length": "999999999"}, 413), ({"content-type": "text/plain"}, 415), ({"host": "x"}, 403)],
)
async def test_a_refused_expect_100_continue_closes_the_connection(
    http: str, given: dict[str, str], status: int
) -> None:
    async with HotServer(http=http) as server:
        await server.topic("t")
        wire = await server.connect()
        wire.send(post("t", b"", {"expect": "100-continue", "content-length": "9"} | given))
        answer = await wire.answer()
        assert (answer.status, answer.header("connection")) == (status, ["close"])
        await wire.ended()


@pytest.mark.parametrize("http", SERVERS)
async def test_an_accepted_expect_100_continue_keeps_the_connection(http: str) -> None:
    async with HotServer(http=http) as server:
        await server.topic("t")
        wire = await server.connect()
        body = b'{"records":[{"data":1}]}'
        wire.send(post("t", b"", {"expect": "100-continue", "content-length": str(len(body))}))
        assert (await wire.answer()).status == 100
        wire.send(body)
        assert (await wire.answer()).status == 200
        wire.send(post("t", body))
        assert (await wire.answer()).status == 200
