"""The limits of a connection, which connections are closed, and how a connection ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.kafka.apis import ApiKey
from broker.kafka.call import Answer, Call, Handler, Later
from broker.kafka.calls import versions
from broker.net.slow import Phase
from tests.kafka.server import KafkaServer, Wire

BIG = 1 << 20


class Stub:
    """Replaces Produce (`Later`), Fetch (waits within the call) and Metadata (a large answer at once)."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.futures: list[asyncio.Future[bytes | None]] = []
        self.waiting = self.cancelled = 0
        self.wait = asyncio.Event()
        self.handlers: dict[int, Handler] = {
            ApiKey.PRODUCE: self.produce,
            ApiKey.FETCH: self.fetch,
            ApiKey.METADATA: self.metadata,
        }
        self.handlers[ApiKey.API_VERSIONS] = versions.handler(self.handlers.keys())

    async def produce(self, _: Call, body: memoryview) -> Answer:
        self.started.append(len(body))
        self.futures.append(asyncio.get_running_loop().create_future())
        return Later(self.futures[-1])

    async def fetch(self, _: Call, __: memoryview) -> Answer:
        self.waiting += 1
        try:
            await self.wait.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [b"fet", b"ched"]

    async def metadata(self, _: Call, body: memoryview) -> Answer:
        self.started.append(len(body))
        return bytes(BIG)


@asynccontextmanager
async def stubbed(directory: Path, **settings: object) -> AsyncIterator[tuple[KafkaServer, Stub]]:
    stub = Stub()
    async with KafkaServer(directory, stub.handlers, **settings) as server:
        yield server, stub


async def until(what: object, *, patience_s: float = 10) -> None:
    assert callable(what)
    async with asyncio.timeout(patience_s):
        while not what():
            await asyncio.sleep(0.005)


async def settled(stub: Stub) -> int:
    """How many are started when no more are."""
    count = -1
    while count != len(stub.started):
        count = len(stub.started)
        await asyncio.sleep(0.1)
    return count


async def test_pending_write_delays_no_request_and_answers_keep_their_order(tmp_path: Path) -> None:
    async with stubbed(tmp_path) as (server, stub):
        wire = await server.connect()
        first, second, silent = [wire.send(ApiKey.PRODUCE, 9, bytes(number)) for number in range(3)]
        asked = wire.send(ApiKey.API_VERSIONS, 0, b"")
        await until(lambda: len(stub.futures) == 3)
        assert stub.started == [0, 1, 2]
        stub.futures[2].set_result(None)
        stub.futures[1].set_result(b"b")
        await asyncio.sleep(0.05)
        stub.futures[0].set_result(b"a")
        assert await wire.answer() == (first, b"\0a")
        assert await wire.answer() == (second, b"\0b")
        assert (await wire.answer())[0] == asked != silent


async def test_waiting_fetch_delays_only_later_requests_of_its_connection(tmp_path: Path) -> None:
    async with stubbed(tmp_path) as (server, stub):
        wire, other = await server.connect(), await server.connect()
        sent = [wire.send(ApiKey.FETCH, 11, b""), wire.send(ApiKey.API_VERSIONS, 0, b"")]
        other.send(ApiKey.API_VERSIONS, 0, b"")
        await other.answer()
        stub.wait.set()
        assert await wire.answer() == (sent[0], b"fetched")
        assert (await wire.answer())[0] == sent[1]


async def test_a_waiting_fetch_is_cancelled_when_the_client_disconnects(tmp_path: Path) -> None:
    async with stubbed(tmp_path) as (server, stub):
        wire = await server.connect()
        wire.send(ApiKey.FETCH, 11, b"")
        await until(lambda: stub.waiting)
        await wire.close()
        await until(lambda: stub.cancelled)


async def test_write_of_a_disconnected_client_is_stored(tmp_path: Path) -> None:
    async with stubbed(tmp_path) as (server, stub):
        wire = await server.connect()
        wire.send(ApiKey.PRODUCE, 9, b"")
        await until(lambda: stub.futures)
        await wire.close()
        await until(lambda: not server.port.metrics.connections)
        assert not stub.futures[0].cancelled()
        stub.futures[0].set_result(b"done")


async def test_client_that_does_not_read_is_paused_and_then_disconnected(tmp_path: Path) -> None:
    async with stubbed(tmp_path, send_timeout_s=1, min_bytes_per_s=1024) as (server, stub):
        wire = await deaf(server)
        for _ in range(200):
            wire.send(ApiKey.METADATA, 0, b"")
        started = await settled(stub)
        assert 1 <= started < 50  # as much as the sockets take, and one more
        async with asyncio.timeout(20):
            while server.port.metrics.connections:
                await asyncio.sleep(0.05)
        slow = next(each for each in server.port.metrics.families() if each.name == "topics_kafka_slow_clients")
        assert {sample.labels: sample.value for sample in slow.samples}[("phase", Phase.ANSWER.value),] == 1


async def deaf(server: KafkaServer) -> Wire:
    """A connection with small buffers that reads nothing."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", server.port.number))
    reader, writer = await asyncio.open_connection(sock=made, limit=1 << 10)
    wire = Wire(reader, writer)
    server.keep(wire)
    return wire


async def test_too_many_bytes_in_flight_pause_reading(tmp_path: Path) -> None:
    limit = 64 << 10
    async with stubbed(tmp_path, kafka_max_request_bytes=limit) as (server, stub):
        wire = await server.connect()
        for _ in range(1000):
            wire.send(ApiKey.PRODUCE, 9, bytes(10_000))
        started = await settled(stub)
        # Over the limit because of what arrived in the same piece of the stream.
        assert started * 10_000 < limit + (512 << 10)
        assert started < 1000
        done = 0
        async with asyncio.timeout(20):
            while done < 1000:
                while done < len(stub.futures):
                    stub.futures[done].set_result(b"")
                    done += 1
                await asyncio.sleep(0.001)
        for number in range(1000):
            assert (await wire.answer())[0] == number + 1


async def test_many_small_requests_are_bounded_too(tmp_path: Path) -> None:
    async with stubbed(tmp_path, kafka_max_request_bytes=64 << 10) as (server, stub):
        wire = await server.connect()
        for _ in range(30_000):
            wire.send(ApiKey.PRODUCE, 9, b"")
        assert await settled(stub) < 15_000  # what arrived in one piece of the stream


async def test_a_request_over_the_limit_ends_the_connection(tmp_path: Path) -> None:
    async with stubbed(tmp_path, kafka_max_request_bytes=100_000) as (server, stub):
        wire = await server.connect()
        wire.send(ApiKey.PRODUCE, 9, bytes(100_001))
        await wire.ended()
        assert stub.started == []


async def test_connections_over_the_limit_are_closed(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, kafka_max_connections=2) as server:
        wires = [await server.connect() for _ in range(2)]
        for wire in wires:
            wire.send(ApiKey.API_VERSIONS, 0, b"")
            await wire.answer()
        await (await server.connect()).ended()
        await wires[0].close()
        await until(lambda: len(list(server.port.metrics.connections)) < 2)  # pyright: ignore
        again = await server.connect()
        again.send(ApiKey.API_VERSIONS, 0, b"")
        await again.answer()


async def test_a_silent_connection_is_closed_earlier_than_an_idle_connection(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, header_timeout_s=0.4, kafka_idle_s=2) as server:
        silent, idle = await server.connect(), await server.connect()
        idle.send(ApiKey.API_VERSIONS, 0, b"")
        await idle.answer()
        await silent.ended()
        idle.send(ApiKey.API_VERSIONS, 0, b"")
        await idle.answer()
        await idle.ended()


async def test_incomplete_frame_times_out(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, body_timeout_s=0.5, min_bytes_per_s=1000) as server:
        wire = await server.connect()
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        await wire.answer()
        wire.raw(b"\0\0\1\0\0\3")
        await wire.ended()


async def test_a_call_that_raises_ends_only_its_connection(tmp_path: Path) -> None:
    async def broken(_: Call, __: memoryview) -> Answer:
        raise RuntimeError("a defect")

    async def broken_later(_: Call, __: memoryview) -> Answer:
        async def fail() -> bytes:
            raise RuntimeError("a defect")

        return Later(fail())

    stub = Stub()
    stub.handlers[ApiKey.METADATA] = broken
    stub.handlers[ApiKey.PRODUCE] = broken_later
    async with KafkaServer(tmp_path, stub.handlers) as server:
        for key in (ApiKey.METADATA, ApiKey.PRODUCE):
            wire = await server.connect()
            wire.send(key, 9, b"")
            await wire.ended()
        wire = await server.connect()
        wire.send(ApiKey.API_VERSIONS, 0, b"")
        await wire.answer()


async def test_closing_answers_requests_in_flight_and_accepts_no_more(tmp_path: Path) -> None:
    async with stubbed(tmp_path) as (server, stub):
        writing, waiting, idle = [await server.connect() for _ in range(3)]
        sent = writing.send(ApiKey.PRODUCE, 9, b"")
        waiting.send(ApiKey.FETCH, 11, b"")
        idle.send(ApiKey.API_VERSIONS, 0, b"")
        await idle.answer()
        await until(lambda: stub.futures)
        closing = asyncio.create_task(server.port.close(grace_s=10))
        await idle.ended()
        await waiting.ended()
        writing.send(ApiKey.PRODUCE, 9, b"")
        await asyncio.sleep(0.05)
        assert not closing.done()
        stub.futures[0].set_result(b"well")
        assert await writing.answer() == (sent, b"\0well")
        await writing.ended()
        await closing
        assert len(stub.futures) == 1


async def test_closing_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with stubbed(tmp_path) as (server, stub):
        wire = await server.connect()
        wire.send(ApiKey.PRODUCE, 9, b"")
        await until(lambda: stub.futures)
        await server.port.close(grace_s=0.2)
        await wire.ended()
