"""Connections of plain HTTP that threads share, beside servers that close them when it suits them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from topics_client import one_connection
from topics_client.plain_pool import PlainPool
from topics_client.wire import NoReply, Reply, Request

ASK = Request(method="GET", target="/v0/health")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

#: What a server does with a connection, and with the number of those before it.
Serve = Callable[[socket.socket, int], None]


@contextmanager
def serving(serve: Serve) -> Generator[str]:
    """A server's address. Each connection has a thread, and is closed after `serve`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def one(connection: socket.socket, number: int) -> None:
            with connection:
                serve(connection, number)

        def accept() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection, number), daemon=True).start()
                number += 1

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def pool() -> Generator[PlainPool]:
    pool = PlainPool(30.0)
    yield pool
    pool.close()


def asked(connection: socket.socket) -> bytes:
    """The next request, without a body; empty at the end of the connection."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        if not piece:
            return b""
        head += piece
    return head


def test_requests_one_after_the_other_share_a_connection(pool: PlainPool) -> None:
    seen: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        while asked(connection):
            seen.append(number)
            connection.sendall(ANSWER)

    with serving(serve) as url:
        for _ in range(3):
            assert isinstance(pool.send(url, None, ASK), Reply)
        assert seen == [0, 0, 0]
        pool.close()
        assert isinstance(pool.send(url, None, ASK), Reply)
        assert seen == [0, 0, 0, 1]


def test_requests_at_the_same_time_have_connections_of_their_own(pool: PlainPool) -> None:
    together = threading.Barrier(4, timeout=30)

    def serve(connection: socket.socket, number: int) -> None:
        while asked(connection):
            together.wait()
            connection.sendall(ANSWER)

    outcomes: list[Reply | NoReply] = []
    with serving(serve) as url:
        threads = [threading.Thread(target=lambda: outcomes.append(pool.send(url, None, ASK))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [isinstance(each, Reply) for each in outcomes] == [True] * 4


def test_a_key_is_said_only_where_it_is_given(pool: PlainPool) -> None:
    heads: list[bytes] = []

    def serve(connection: socket.socket, number: int) -> None:
        while head := asked(connection):
            heads.append(head)
            connection.sendall(ANSWER)

    with serving(serve) as url:
        for token in ("secret", None, "secret"):
            pool.send(url, token, ASK)
    assert [b"Bearer secret" in head for head in heads] == [True, False, True]


def test_a_connection_that_the_server_has_closed_is_not_used_again(
    pool: PlainPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker does that is started again. A request that went there would have an unknown outcome."""
    monkeypatch.setattr(one_connection, "TRUSTED_S", 0.0)
    closed = threading.Event()

    def serve(connection: socket.socket, number: int) -> None:
        asked(connection)
        connection.sendall(ANSWER)
        connection.shutdown(socket.SHUT_RDWR)
        closed.set()

    with serving(serve) as url:
        for _ in range(3):
            assert isinstance(pool.send(url, None, ASK), Reply)
            assert closed.wait(30)
            closed.clear()


def test_an_answer_before_the_end_of_the_body_is_read(pool: PlainPool) -> None:
    """As a broker answers a body that is too large. The connection is not used again."""
    numbers: list[int] = []

    def serve(connection: socket.socket, number: int) -> None:
        numbers.append(number)
        asked(connection)
        if number == 0:
            connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
            # The rest of the body is never read, and more than buffers hold.
        else:
            connection.sendall(ANSWER)

    with serving(serve) as url:
        found = pool.send(url, None, Request(method="POST", target="/v0/topics/t", body=b"x" * (64 << 20)))
        assert isinstance(found, Reply)
        assert found.status == 413
        assert isinstance(pool.send(url, None, ASK), Reply)
    assert numbers == [0, 1]


def test_a_server_that_is_not_there_has_seen_nothing(pool: PlainPool) -> None:
    with serving(lambda connection, number: None) as url:
        pass
    found = pool.send(url, None, ASK)
    assert isinstance(found, NoReply)
    assert not found.sent
    assert url in found.reason
