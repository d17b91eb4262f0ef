"""Connections of the asyncio client, beside servers that close them when it suits them."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.client.test_plain_pool import ANSWER, ASK, Serve, asked, serving
from topics_client import AsyncClient, async_connection
from topics_client.async_connection import AsyncSender
from topics_client.wire import NoReply, Reply, Request


@asynccontextmanager
async def sending(serve: Serve, limit_s: float = 30.0) -> AsyncGenerator[AsyncSender]:
    """Sends requests to a server of its own."""
    with serving(serve) as url:
        sender = AsyncSender(url, None, limit_s, None)
        try:
            yield sender
        finally:
            await sender.close()


async def test_requests_one_after_the_other_share_a_connection() -> None:
    seen: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        while asked(connection):
            seen.append(number)
            connection.sendall(ANSWER)

    async with sending(serve) as requests:
        for _ in range(3):
            assert isinstance(await requests.send(ASK), Reply)
        assert seen == [0, 0, 0]
        await requests.close()
        assert isinstance(await requests.send(ASK), Reply)
        assert seen == [0, 0, 0, 1]


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    together = threading.Barrier(4, timeout=30)

    def serve(connection: socket.socket, number: int) -> None:
        while asked(connection):
            together.wait()
            connection.sendall(ANSWER)

    async with sending(serve) as requests:
        outcomes = await asyncio.gather(*(requests.send(ASK) for _ in range(4)))
    assert [isinstance(each, Reply) for each in outcomes] == [True] * 4


@pytest.mark.parametrize("trusted_s", [0.0, 3600.0])
async def test_a_connection_that_the_server_has_closed_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, trusted_s: float
) -> None:
    """Whether the event loop has seen that it was closed or not: in the first case it is looked at."""
    monkeypatch.setattr(async_connection, "TRUSTED_S", trusted_s)
    closed = threading.Event()

    def serve(connection: socket.socket, number: int) -> None:
        asked(connection)
        connection.sendall(ANSWER)
        connection.close()
        closed.set()

    async with sending(serve) as requests:
        for _ in range(3):
            assert isinstance(await requests.send(ASK), Reply)
            # The event loop does not run meanwhile.
            assert closed.wait(30)
            closed.clear()
            if trusted_s:
                [connection] = requests._idle  # pyright: ignore[reportPrivateUsage]
                while connection.is_usable:
                    await asyncio.sleep(0.001)


async def test_an_answer_before_the_end_of_the_body_is_read() -> None:
    """As a broker answers a body that is too large. The connection is not used again."""
    numbers: list[int] = []
    ended = threading.Event()

    def serve(connection: socket.socket, number: int) -> None:
        numbers.append(number)
        asked(connection)
        if number == 0:
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
            # The rest of the body is never read, and more than buffers hold.
            ended.wait(30)
        else:
            connection.sendall(ANSWER)

    async with sending(serve) as requests:
        found = await requests.send(Request(method="POST", target="/v0/topics/t", body=b"x" * (64 << 20)))
        ended.set()
        assert isinstance(found, Reply)
        assert found.status == 413
        assert isinstance(await requests.send(ASK), Reply)
    assert numbers == [0, 1]


async def test_a_large_body_and_a_large_answer_arrive() -> None:
    body = b"x" * (9 << 20)

    def serve(connection: socket.socket, number: int) -> None:
        asked(connection)
        left = len(body)
        while left:
            left -= len(connection.recv(left))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    async with sending(serve) as requests:
        found = await requests.send(Request(method="POST", target="/v0/topics/t", body=body))
    assert isinstance(found, Reply)
    assert found.body == body


async def test_a_server_that_says_nothing_is_not_waited_for_longer_than_allowed() -> None:
    ended = threading.Event()

    def serve(connection: socket.socket, number: int) -> None:
        ended.wait(30)

    async with sending(serve, limit_s=2.0) as requests:
        found = await requests.send(ASK)
        ended.set()
    assert isinstance(found, NoReply)
    assert found.sent
    assert "did not answer within 2 s" in found.reason


async def test_an_answer_in_two_pieces_is_read() -> None:
    go = threading.Event()

    def serve(connection: socket.socket, number: int) -> None:
        asked(connection)
        connection.sendall(ANSWER[:10])
        assert go.wait(30)
        connection.sendall(ANSWER[10:])

    async with sending(serve) as requests:
        answering = asyncio.create_task(requests.send(ASK))
        await asyncio.sleep(0.01)
        go.set()
        assert isinstance(await answering, Reply)


async def test_a_request_that_is_cancelled_gives_its_connection_up() -> None:
    """Its answer would be taken for the next one's."""
    arrived, go = threading.Event(), threading.Event()
    numbers: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        numbers.append(number)
        while asked(connection):
            arrived.set()
            if number == 0:
                assert go.wait(30)
            connection.sendall(ANSWER)

    async with sending(serve) as requests:
        first = asyncio.create_task(requests.send(ASK))
        while not arrived.is_set():
            await asyncio.sleep(0.001)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert isinstance(await requests.send(ASK), Reply)
        go.set()
    assert numbers == [0, 1]


async def test_a_connection_that_breaks_has_an_unknown_outcome() -> None:
    def serve(connection: socket.socket, number: int) -> None:
        asked(connection)

    async with sending(serve) as requests:
        found = await requests.send(ASK)
    assert isinstance(found, NoReply)
    assert found.sent
    assert "without an answer" in found.reason


async def test_a_server_that_is_not_there_has_seen_nothing() -> None:
    with serving(lambda connection, number: None) as url:
        pass  # it is gone
    found = await AsyncSender(url, None, 30.0, None).send(ASK)
    assert isinstance(found, NoReply)
    assert not found.sent
    assert f"{url} (Connection refused)" in found.reason
    # With several addresses asyncio says it in another way.
    url = url.replace("127.0.0.1", "localhost")
    found = await AsyncSender(url, None, 30.0, None).send(ASK)
    assert isinstance(found, NoReply)
    assert f"{url} (Connection refused)" in found.reason


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_may_serve_one_event_loop_after_the_other(fake_url: str) -> None:
    client = AsyncClient(fake_url)
    assert asyncio.run(client.health()).status == "ok"
    assert asyncio.run(client.health()).status == "ok"
    asyncio.run(client.close())
    # Here, and not in another test: Python says that the connections of ended loops were not closed.
    gc.collect()


async def test_a_closed_client_sends_nothing() -> None:
    client = AsyncClient("http://127.0.0.1:1")
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.health()
