"""Watchers that stop reading, on real sockets: others are not affected, memory is bounded, and no loss is silent.

Two watchers sleep, one on an event stream and one on a WebSocket, while more than 50 MB are written to topics that
others watch too. One topic keeps everything. The other keeps so little that the sleepers miss most of it, and they must
be told of the loss.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets import ConnectionClosed
from websockets.asyncio.client import ClientConnection, connect

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess
from tests.support.watch_coverage import Chunked, Coverage, Event, events_of

SOAK = is_soak(os.environ)
SLEEP_S = 60.0 if SOAK else 8.0
#: Runs without sleepers, before and after.
AWAKE_S = 10.0 if SOAK else 4.0
WRITE_EVERY_S = 0.025
RECORD_BYTES = 30_000 if SOAK else 110_000
FLOWN_BYTES = 50 << 20
#: Much less than is written. A queue for a sleeper would hold several times as much.
GROWTH_BYTES = 25 << 20
TOPICS = ("kept", "capped")
CAP_BYTES = 4 << 20
#: How much slower the slowest percent may be. A reader that waits for a sleeper is slower by a factor of hundreds.
HARM = 5
PATIENCE_S = 60

_SENT = re.compile(rb'"at":(\d+),')


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, tail_cache_bytes=4 << 20, wal_file_bytes=4 << 20) as broker:
        broker.start()
        yield broker


@pytest.fixture
async def http(broker: BrokerProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{broker.port}", timeout=PATIENCE_S) as http:
        yield http


class Delays:
    """Time from the sending of a write to its delivery, in ms, of all readers. `seen` by watcher."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.seen: dict[str, int] = {}

    def note(self, watcher: str, received: bytes) -> None:
        now = time.monotonic_ns()
        for sent in _SENT.findall(received):
            self.ms.append((now - int(sent)) / 1e6)
            self.seen[watcher] = self.seen.get(watcher, 0) + 1

    def p99(self) -> float:
        found = statistics.quantiles(self.ms, n=100)[98]
        self.ms = []
        return found


class Stream(asyncio.Protocol):
    """The events of a stream, read from its socket."""

    def __init__(self, path: str, last_id: str | None = None) -> None:
        self._hello = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n"
        if last_id is not None:
            self._hello += f"last-event-id: {last_id}\r\n"
        self._chunks = Chunked()
        self.received = bytearray()
        self.news = asyncio.Event()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int, path: str, last_id: str | None = None) -> AsyncIterator[Stream]:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
        _, stream = await asyncio.get_running_loop().create_connection(lambda: cls(path, last_id), sock=plain)
        try:
            yield stream
        finally:
            stream.transport.abort()
            await stream.closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(f"{self._hello}\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self.received += self._chunks.take(data)
        self.news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        self.news.set()

    async def events(self) -> AsyncIterator[Event]:
        while True:
            async with asyncio.timeout(PATIENCE_S):
                await self.news.wait()
            self.news.clear()
            for event in events_of(self.received):
                yield event
            if self.closed.done():
                return


async def messages(ws: ClientConnection) -> AsyncIterator[Event]:
    with suppress(ConnectionClosed):
        while True:
            async with asyncio.timeout(PATIENCE_S):
                data = json.loads(await ws.recv())
            yield Event(data["type"], None, data)


def websocket(broker: BrokerProcess, **more: Any) -> Any:
    return connect(f"ws://127.0.0.1:{broker.port}/v0/ws", max_size=None, compression=None, **more)


async def session(http: httpx.AsyncClient) -> str:
    answer = await http.post("/v0/watch", json={"topics": {name: {} for name in TOPICS}})
    return answer.json()["stream_url"]


async def write(http: httpx.AsyncClient, seconds: float, least_bytes: int = 0) -> int:
    """Write to both topics in turn, for some time and up to a number of bytes. Returns the bytes of each topic."""
    pad = "x" * RECORD_BYTES
    begin = time.monotonic()
    count = 0
    while time.monotonic() < begin + seconds or count * RECORD_BYTES * len(TOPICS) <= least_bytes:
        for name in TOPICS:
            body = f'{{"records":[{{"data":{{"at":{time.monotonic_ns()},"pad":"{pad}"}}}}]}}'
            answer = await http.post(f"/v0/topics/{name}", content=body, headers={"content-type": "application/json"})
            assert answer.status_code == 200, answer.text
        count += 1
        await asyncio.sleep(max(0.0, begin + count * WRITE_EVERY_S - time.monotonic()))
    return count * RECORD_BYTES


def resident_bytes(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


class Readers:
    """The watchers that read: two event streams and a WebSocket."""

    def __init__(self, broker: BrokerProcess, http: httpx.AsyncClient) -> None:
        self.delays = Delays()
        self._broker = broker
        self._http = http
        self._reading: list[asyncio.Task[None]] = []
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Readers:
        for number in range(2):
            stream = await self._open.enter_async_context(Stream.open(self._broker.port, await session(self._http)))
            self._reading.append(asyncio.create_task(self._read(f"stream {number}", stream)))
        ready = asyncio.Event()
        self._reading.append(asyncio.create_task(self._read_ws(ready)))
        await ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.wait(self._reading)
        await self._open.aclose()

    async def all_seen(self, writes: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while [*self.delays.seen.values()] != [writes] * 3:
                assert not any(task.done() for task in self._reading)
                await asyncio.sleep(0.05)

    async def _read(self, name: str, stream: Stream) -> None:
        while not stream.closed.done():
            await stream.news.wait()
            stream.news.clear()
            self.delays.note(name, stream.received)
            end = stream.received.rfind(b"\n")
            del stream.received[: end + 1]
            # Incomplete events were noted, and are skipped when their end has arrived.
            rest = _SENT.sub(b'"is":0,', bytes(stream.received))
            stream.received[:] = rest

    async def _read_ws(self, ready: asyncio.Event) -> None:
        async with websocket(self._broker) as ws:
            await ws.send(json.dumps({"type": "subscribe", "topics": list(TOPICS)}))
            await ws.recv()
            ready.set()
            async for message in ws:
                self.delays.note("websocket", message.encode())


async def asleep(stream: Stream, coverage: Coverage) -> None:
    """Read what has arrived, and no more."""
    caught_up = 0
    async for event in stream.events():
        coverage.take(event)
        caught_up += event.name == "caught_up"
        if caught_up == len(TOPICS):
            stream.transport.pause_reading()
            return


async def follow(events: AsyncIterator[Event], coverage: Coverage, heads: dict[str, int]) -> None:
    """Read to the end."""
    async for event in events:
        coverage.take(event)
        if coverage.at == heads:
            return
    raise AssertionError(f"it ends at {coverage.at}, not at {heads}")


async def wake(events: AsyncIterator[Event], coverage: Coverage, middle: int) -> None:
    """Read the events sent before the broker gave up the connection. If it has not, read about half of those missed."""
    async for event in events:
        coverage.take(event)
        if event.name == "error" or (coverage.at["kept"] >= middle and not SOAK):
            return


@pytest.mark.timeout(600)
async def test_stalled_watchers_do_not_delay_other_watchers_and_get_every_record_or_gap(
    broker: BrokerProcess, http: httpx.AsyncClient
) -> None:
    for name in TOPICS:
        cap = {"cap_bytes": CAP_BYTES} if name == "capped" else {}
        broker.ok("PUT", f"/v0/topics/{name}", {"durability": "memory", **cap})
    async with Readers(broker, http) as others:
        written = await write(http, AWAKE_S)
        await others.all_seen(len(TOPICS) * written // RECORD_BYTES)
        before_ms = others.delays.p99()
        path, at = await session(http), dict.fromkeys(TOPICS, written // RECORD_BYTES)
        on_stream, on_socket = Coverage(**at), Coverage(**at)
        async with Stream.open(broker.port, path) as stream, websocket(broker, max_queue=1) as sleeper:
            await asleep(stream, on_stream)
            await sleeper.send(json.dumps({"type": "subscribe", "topics": list(TOPICS)}))
            resident = resident_bytes(broker)
            flown = await write(http, SLEEP_S, FLOWN_BYTES)
            written += flown
            grown = resident_bytes(broker) - resident
            await others.all_seen(len(TOPICS) * written // RECORD_BYTES)
            asleep_ms = others.delays.p99()
            stream.transport.resume_reading()
            middle = at["kept"] + flown // RECORD_BYTES // 2
            await wake(stream.events(), on_stream, middle)
            await wake(messages(sleeper), on_socket, middle)
        written += await write(http, AWAKE_S)
        await others.all_seen(len(TOPICS) * written // RECORD_BYTES)
        behind_ms = others.delays.p99()
    print(
        f"p99 {before_ms:.1f} ms, {asleep_ms:.1f} ms with sleepers, {behind_ms:.1f} ms; "
        f"{len(TOPICS) * flown / 1e6:.0f} MB have flown, and {grown / 1e6:.1f} MB more are resident"
    )
    assert grown < GROWTH_BYTES
    assert asleep_ms < HARM * max(before_ms, behind_ms)
    assert broker.metric("topics_watch_slow_closed_total") == (2 if SOAK else 0)
    heads = dict.fromkeys(TOPICS, written // RECORD_BYTES)
    async with Stream.open(broker.port, path, on_stream.last_id) as again:
        await follow(again.events(), on_stream, heads)
    async with websocket(broker) as ws:
        starts = {name: {"from_seq": seq} for name, seq in on_socket.at.items()}
        await ws.send(json.dumps({"type": "subscribe", "topics": starts}))
        await follow(messages(ws), on_socket, heads)
    for coverage in (on_stream, on_socket):
        assert coverage.gaps["kept"] == []
        assert coverage.records["kept"] == heads["kept"] - at["kept"]
        assert len(coverage.gaps["capped"]) >= 1
    assert broker.complaints() == []
