"""A thousand simultaneous TLS handshakes were all processed in one round of the event loop, so a new TLS connection
waited for all of them. Now each round processes some, and other clients are served in between. The Kafka port also
began all simultaneous requests in one round."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Call
from broker.kafka.table import HANDLERS
from broker.net import handshakes, listening
from broker.net.arrivals import FIRST_COST
from broker.scheduling import ROUND
from tests.http.hot_server import HotServer
from tests.kafka.server import KafkaServer
from tests.support.certificate import certificate
from tests.support.unread import get

CLIENTS = 100
HANDSHAKES = 300
#: The most begun in one round, and those that the round before allowed in the same pass of the loop.
ROUNDS = 2
PATIENCE_S = 20


class RoundCounter:
    """Counts rounds of the loop, and how many handshakes or requests were begun in each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._round = 0
        self.begun: dict[int, int] = {}
        self._loop.call_soon(self._count)

    def note(self, *_: object) -> None:
        self.begun[self._round] = self.begun.get(self._round, 0) + 1

    def _count(self) -> None:
        self._round += 1
        self._loop.call_soon(self._count)

    @property
    def total(self) -> int:
        return sum(self.begun.values())


def hello() -> bytes:
    """The first bytes of a client's handshake."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    return out.read()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port))


async def until(happens: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not happens():
            await asyncio.sleep(0)


async def test_concurrent_handshakes_begin_over_several_rounds(
    tmp_path: Path,
) -> None:
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))
    async with HotServer(tls_cert=str(cert), tls_key=str(key)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=trusting)
        rounds = RoundCounter()
        tls: Any = server.server.config.ssl
        tls.sni_callback = rounds.note
        with contextlib.ExitStack() as stack:
            stack.callback(writer.close)
            greeting = hello()
            for _ in range(HANDSHAKES):
                stack.enter_context(connected(server.server.port)).sendall(greeting)
            writer.write(get("/v0/health"))
            async with asyncio.timeout(PATIENCE_S):
                assert b" 200 " in await reader.readuntil(b"\r\n")
            before = rounds.total
            await until(lambda: rounds.total == HANDSHAKES)
        assert before < HANDSHAKES / 2
        assert max(rounds.begun.values()) <= ROUNDS * handshakes.EACH_ROUND


async def test_a_new_connection_is_served_before_all_earlier_handshakes_end(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))
    async with HotServer(tls_cert=str(cert), tls_key=str(key)) as server:
        rounds, scheduler = RoundCounter(), server.broker.arrivals.handshakes
        tls: Any = server.server.config.ssl
        tls.sni_callback = rounds.note
        with contextlib.ExitStack() as stack:
            greeting = hello()
            for _ in range(HANDSHAKES):
                stack.enter_context(connected(server.server.port)).sendall(greeting)
            reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port, ssl=trusting)
            stack.callback(writer.close)
            writer.write(get("/v0/health"))
            async with asyncio.timeout(PATIENCE_S):
                assert b" 200 " in await reader.readuntil(b"\r\n")
            assert rounds.total < HANDSHAKES / 2
            await until(lambda: rounds.total == HANDSHAKES + 1)
        assert scheduler.waiting == 0


async def test_a_handshake_over_the_waiting_limit_closes_the_oldest_waiting_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MAX_WAITING", 40)
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=str(cert), tls_key=str(key)) as server:
        rounds, most, scheduler = RoundCounter(), 0, server.broker.arrivals.handshakes
        tls: Any = server.server.config.ssl

        def begins(*_: object) -> None:
            nonlocal most
            most = max(most, scheduler.waiting)
            rounds.note()

        tls.sni_callback = begins
        with contextlib.ExitStack() as stack:
            greeting = hello()
            clients = [stack.enter_context(connected(server.server.port)) for _ in range(HANDSHAKES)]
            for each in clients:
                each.sendall(greeting)
            kept, closed = 0, 0
            for each in clients:
                each.setblocking(False)
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        kept += bool(await asyncio.get_running_loop().sock_recv(each, 1))
                except ConnectionResetError:  # its data was never read
                    closed += 1
        assert kept == rounds.total
        assert closed == HANDSHAKES - kept > 0
        assert 0 < most <= 40


async def test_a_handshake_that_waits_beyond_the_header_timeout_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "EACH_ROUND", 0)
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=str(cert), tls_key=str(key), header_timeout_s=1) as server:
        server.broker.arrivals.handshakes._left = 0  # pyright: ignore[reportPrivateUsage]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
        writer.write(hello())
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        assert server.broker.arrivals.handshakes.waiting == 0


async def test_a_silent_connection_over_the_limit_is_closed_in_favor_of_a_new_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MAX_SILENT", 2)
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=str(cert), tls_key=str(key)) as server:
        port = server.server.port
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        async with asyncio.timeout(PATIENCE_S):
            assert await pairs[0][0].read() == b""
        trusting = ssl.create_default_context(cafile=str(cert))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.write(get("/v0/health"))
        async with asyncio.timeout(PATIENCE_S):
            assert b" 200 " in await reader.readuntil(b"\r\n")
        for _, each in (*pairs, (reader, writer)):
            each.close()


async def test_a_silent_connection_is_closed_after_the_header_timeout(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=str(cert), tls_key=str(key), header_timeout_s=1) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()


async def test_a_stopping_server_closes_connections_without_a_handshake(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with HotServer(tls_cert=str(cert), tls_key=str(key)) as server:
        pairs = [await asyncio.open_connection("127.0.0.1", server.server.port) for _ in range(2)]
        pairs[0][1].write(hello())
        assert await pairs[0][0].read(1) == b"\x16"
    for reader, writer in pairs:
        async with asyncio.timeout(PATIENCE_S):
            await reader.read()
        writer.close()


async def test_requests_to_the_kafka_port_begin_over_several_rounds(tmp_path: Path) -> None:
    rounds: RoundCounter | None = None
    real = HANDLERS[ApiKey.API_VERSIONS]

    async def counted(call: Call, body: memoryview) -> Answer:
        if rounds is not None:
            rounds.note()
        return await real(call, body)

    async with KafkaServer(tmp_path, {**HANDLERS, ApiKey.API_VERSIONS: counted}) as server:
        wires = [await server.connect() for _ in range(CLIENTS)]
        rounds = RoundCounter()
        for wire in wires:
            wire.send(ApiKey.API_VERSIONS, 0, b"")
        for wire in wires:
            _, body = await wire.answer()
            assert body[:2] == struct.pack(">h", 0)
        assert rounds.total == CLIENTS
        assert max(rounds.begun.values()) <= ROUNDS * ROUND / FIRST_COST


async def test_kafka_requests_after_a_waiting_request_keep_their_order(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path) as server:
        wires = [await server.connect() for _ in range(CLIENTS)]
        sent = [[wire.send(ApiKey.API_VERSIONS, 0, b"") for _ in range(2)] for wire in wires]
        await asyncio.sleep(0)
        for wire, numbers in zip(wires, sent, strict=True):
            numbers.append(wire.send(ApiKey.API_VERSIONS, 0, b""))
        for wire, numbers in zip(wires, sent, strict=True):
            assert [(await wire.answer())[0] for _ in range(3)] == numbers
