"""Slow clients that hold connections, over real sockets, are cut off. Clients at a fair pace are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from time import monotonic
from typing import Any

import h2.connection
import h2.events
import pytest

from broker.api.operation import Operation
from broker.api.request import Request
from broker.auth.rules import Rule
from broker.auth.scopes import NOTHING
from broker.content.answers import Streamed
from broker.net.slow import Progress, Quota
from tests.http.hot_server import ASGI, HotServer, Wire, post, records
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import soon
from tests.support.certificate import certificate

SHORT_S = 0.4
#: A client has to last longer than that: a moment in which this process does nothing is not a slow client.
PACE_S = 3 * SHORT_S
#: Longer than any test, for limits that must not be the reason.
NEVER_S = 1000
SERVERS = ["zttp", "httptools"]
GET = b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\n\r\n"


def server(**given: Any) -> HotServer:
    patience = {"header_timeout_s": NEVER_S, "body_timeout_s": NEVER_S, "send_timeout_s": NEVER_S, "keep_alive_s": 1000}
    return HotServer(**{**patience, **given})


def cut_off(server: HotServer) -> dict[str, float]:
    return {phase: count for (phase,), count in server.counted("topics_slow_clients").items() if count}


async def ends(wire: Wire) -> bytes:
    """Everything that arrives until the connection ends."""
    got = b""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while part := await wire.read():
                got += part
        except ConnectionResetError:
            pass
    return got


async def drip(wire: Wire, text: bytes, every_s: float) -> None:
    """Send one byte at a time, until all are sent or the connection is closed."""
    for number in range(len(text)):
        if wire.transport.is_closing():
            return
        wire.send(text[number : number + 1])
        await asyncio.sleep(every_s)


# -- heads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("begun", [b"", b"G", b"GET / HTTP/1.1\r\nhost: localhost\r\nx-a: b\r\n"])
async def test_a_missing_head_times_out(http: str, begun: bytes) -> None:
    async with server(http=http, header_timeout_s=SHORT_S) as broker:
        wire = await broker.connect()
        wire.send(begun)
        before = monotonic()
        assert await ends(wire) == b""
        assert monotonic() - before >= SHORT_S / 2
        assert cut_off(broker) == {"head": 1}


@pytest.mark.parametrize("http", SERVERS)
async def test_a_dripping_head_times_out(http: str) -> None:
    async with server(http=http, header_timeout_s=SHORT_S) as broker:
        wire = await broker.connect()
        wire.send(GET)
        assert (await wire.answer()).status == 200  # nor the second one of a connection
        dripping = asyncio.create_task(drip(wire, b"GET / HTTP/1.1\r\nx: " + b"y" * 200, SHORT_S / 8))
        assert await ends(wire) == b""
        assert cut_off(broker) == {"head": 1}
        assert not dripping.done()
        dripping.cancel()


@pytest.mark.parametrize("http", SERVERS)
async def test_a_client_that_waits_between_requests_or_for_an_answer_is_not_closed(http: str) -> None:
    async with server(http=http, header_timeout_s=SHORT_S, body_timeout_s=SHORT_S, send_timeout_s=SHORT_S) as broker:
        await broker.topic("t")
        wire = await broker.connect()
        for kind in ({}, ASGI):
            wire.send(post("t/diff", {"from_seq": 100, "wait_ms": int(3 * SHORT_S * 1000)}, kind))
            assert (await wire.answer()).status == 200
            await asyncio.sleep(2 * SHORT_S)
            wire.send(post("t", records(1), kind))
            assert (await wire.answer()).status == 200
            await asyncio.sleep(2 * SHORT_S)
        assert cut_off(broker) == {}


async def test_a_missing_tls_handshake_times_out(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with server(header_timeout_s=SHORT_S, tls_cert=cert, tls_key=key) as broker:
        wire = await broker.connect()
        assert await ends(wire) == b""


@pytest.mark.parametrize("http", SERVERS)
async def test_a_request_head_over_the_limit_is_refused(http: str) -> None:
    async with server(http=http, max_header_bytes=1000) as broker:
        fits = b"GET /v0/topics?x=" + b"y" * 900 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
        for request, status in (
            (fits, 200),
            (fits.replace(b"host: localhost", b"host: localhost\r\nx: " + b"z" * 100), 431),
            (GET.replace(b"host: localhost", b"host: localhost" + b"\r\na: b" * 150), 431),
            (GET.replace(b"host: localhost", b"host: localhost\r\nx: " + b"z" * 100_000), 431),
        ):
            wire = await broker.connect()
            wire.send(request)
            answer = await wire.answer()
            assert answer.status == status
            if status == 431:
                assert answer.code == "header_too_large"
                assert answer.header("x-content-type-options") == ["nosniff"]
                await wire.ended()
        # The head counts, not what came with it or before.
        wire = await broker.connect()
        for kind in ({}, ASGI):
            wire.send(post("t", records("x" * 5000), kind) + GET)
            assert [(await wire.answer()).status for _ in range(2)] in ([201, 200], [200, 200])
            request = post("t", records("x" * 5000), kind)
            wire.send(request[:20])
            await asyncio.sleep(0.01)
            wire.send(request[20:] + GET[:10])
            await asyncio.sleep(0.01)
            wire.send(GET[10:])
            assert [(await wire.answer()).status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize("http", SERVERS)
async def test_invalid_http_is_refused_with_an_error_body(http: str) -> None:
    async with server(http=http) as broker:
        answer = await broker.ask(b"NONSENSE\r\n\r\n")
        assert (answer.status, answer.code) == (400, "invalid_request")


# -- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("http", "kind"), [("zttp", {}), ("zttp", ASGI), ("httptools", {})])
@pytest.mark.parametrize("dripping", [False, True])
async def test_a_missing_or_dripping_body_times_out(http: str, kind: dict[str, str], dripping: bool) -> None:
    async with server(http=http, body_timeout_s=SHORT_S, api_keys="one", max_inflight_per_key=1) as broker:
        [caller] = broker.broker.gate.callers() if broker.broker.gate else []
        wire = await broker.connect()
        whole = post("t", records("x" * 1000), {"authorization": "Bearer one", **kind})
        wire.send(whole[:-900])
        dripper = asyncio.create_task(drip(wire, whole[-900:-1] if dripping else b"", SHORT_S / 8))
        answer = await wire.answer()
        assert (answer.status, answer.code) == (408, "request_timeout")
        await ends(wire)
        dripper.cancel()
        assert caller.inflight == 0
        assert broker.counted("topics_refused")["request_timeout",] == 1
        assert not broker.engine.topics()


async def test_a_body_at_the_minimum_rate_may_exceed_the_body_timeout() -> None:
    async with server(body_timeout_s=PACE_S, min_bytes_per_s=300) as broker:
        for kind in ({}, ASGI):
            wire = await broker.connect()
            whole = post("t", records("x" * 5000), kind)
            before = monotonic()
            for at in range(0, len(whole), 200):  # 2000 bytes a second
                wire.send(whole[at : at + 200])
                await asyncio.sleep(SHORT_S / 4)
            assert (await wire.answer()).status in (200, 201)
            assert monotonic() - before > 2 * PACE_S
        assert cut_off(broker) == {}


async def test_the_body_of_a_refused_request_is_read_only_for_a_limited_time() -> None:
    async with server(body_timeout_s=SHORT_S, keep_alive_s=1000) as broker:
        wire = await broker.connect()
        wire.send(post("t", b"{", {"content-type": "text/plain"}, length=10_000))
        assert (await wire.answer()).status == 415
        dripping = asyncio.create_task(drip(wire, b" " * 5000, SHORT_S / 8))
        await ends(wire)
        assert cut_off(broker) == {"body": 1}
        dripping.cancel()


# -- answers ---------------------------------------------------------------------------------------------------------


async def big(broker: HotServer) -> None:
    for _ in range(8):
        answer = await broker.ask(post("big", records("x" * 1_000_000)))
        assert answer.status in (200, 201)


ASK = b"GET /v0/topics/big/records?max_batch_bytes=8388608 HTTP/1.1\r\nhost: localhost\r\n%b\r\n"


@pytest.mark.parametrize("http", SERVERS)
@pytest.mark.parametrize("more", [b"", b"connection: close\r\n"])
async def test_an_unread_answer_is_dropped(http: str, more: bytes) -> None:
    async with server(http=http, send_timeout_s=SHORT_S) as broker:
        await big(broker)
        wire = await broker.connect()
        wire.transport.pause_reading()
        wire.send(ASK % more)
        await soon(lambda: cut_off(broker) == {"answer": 1})
        await soon(lambda: not [each for each in broker.server.server_state.connections if each.transport is None])
        wire.transport.resume_reading()
        assert len(await ends(wire)) < 8_000_000


async def test_a_slowly_read_answer_is_delivered() -> None:
    async with server(send_timeout_s=PACE_S, min_bytes_per_s=1000) as broker:
        await big(broker)
        wire = await broker.connect()
        wire.transport.pause_reading()
        wire.send(ASK % b"")
        got = 0
        before = monotonic()
        while got < 8_000_000:
            wire.transport.resume_reading()
            async with asyncio.timeout(PATIENCE_S):
                got += len(await wire.read())
            wire.transport.pause_reading()
            await asyncio.sleep(SHORT_S / 20)
        assert monotonic() - before > 2 * PACE_S
        assert cut_off(broker) == {}


# -- HTTP/2 ----------------------------------------------------------------------------------------------------------


class Http2Client:
    """An HTTP/2 client that sends only the frames that a test requests."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.http = h2.connection.H2Connection()
        self.http.initiate_connection()
        self.flush()
        self.events: list[Any] = []

    def flush(self) -> None:
        self.wire.send(self.http.data_to_send())

    def ask(self, stream: int, method: str, path: str, *more: tuple[str, str], end: bool = True) -> None:
        headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "localhost"), *more]
        self.http.send_headers(stream, headers, end_stream=end)
        self.flush()

    async def until(self, kind: type[Any], stream: int | None = None) -> Any:
        """The next such event."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for event in self.events:
                    if isinstance(event, kind) and stream in (None, getattr(event, "stream_id", None)):
                        self.events.remove(event)
                        return event
                data = await self.wire.read()
                if not data:
                    raise ConnectionResetError
                self.events += self.http.receive_data(data)
                self.flush()


async def test_an_http2_connection_without_a_request_is_closed_after_the_header_timeout() -> None:
    async with server(header_timeout_s=SHORT_S) as broker:
        two = Http2Client(await broker.connect())
        pings = asyncio.create_task(_ping(two))
        await ends(two.wire)
        pings.cancel()
        assert cut_off(broker) == {"head": 1}


async def test_an_http2_connection_with_pings_only_is_closed_as_idle() -> None:
    async with server(keep_alive_s=1) as broker:
        two = Http2Client(await broker.connect())
        two.ask(1, "GET", "/v0/topics")
        await two.until(h2.events.StreamEnded)
        pings = asyncio.create_task(_ping(two))
        await two.until(h2.events.ConnectionTerminated)
        pings.cancel()
        assert cut_off(broker) == {"idle": 1}


async def _ping(two: Http2Client) -> None:
    while True:
        two.http.ping(b"12345678")
        two.flush()
        await asyncio.sleep(SHORT_S / 8)


async def test_an_http2_body_timeout_is_answered_with_408_and_the_connection_stays_open() -> None:
    async with server(body_timeout_s=SHORT_S) as broker:
        two = Http2Client(await broker.connect())
        two.ask(1, "POST", "/v0/topics/t", ("content-type", "application/json"), end=False)
        two.http.send_data(1, b"{")
        two.flush()
        answer = await two.until(h2.events.ResponseReceived)
        assert (b":status", b"408") in answer.headers
        two.ask(3, "GET", "/v0/topics")
        assert (b":status", b"200") in (await two.until(h2.events.ResponseReceived, 3)).headers
        assert broker.counted("topics_refused")["request_timeout",] == 1


async def test_an_http2_stream_with_a_closed_window_is_reset_and_the_connection_stays_open() -> None:
    async with server(send_timeout_s=SHORT_S) as broker:
        await big(broker)
        two = Http2Client(await broker.connect())
        two.http.increment_flow_control_window(1 << 28)  # for the connection, not for the stream
        two.ask(1, "GET", "/v0/topics/big/records?max_batch_bytes=8388608")
        await two.until(h2.events.ResponseReceived, 1)
        await two.until(h2.events.StreamReset, 1)
        assert cut_off(broker) == {"answer": 1}
        two.ask(3, "GET", "/v0/topics")
        await two.until(h2.events.StreamEnded, 3)


async def test_a_stream_to_a_client_that_stops_reading_is_reset() -> None:
    async def endless(request: Request) -> Streamed:
        async def pieces() -> AsyncGenerator[bytes]:
            while True:
                yield b"x" * 100_000
                await asyncio.sleep(0)

        return Streamed(b"", pieces(), length=None, content_type=b"text/plain")

    async with server(send_timeout_s=PACE_S, min_bytes_per_s=50_000) as broker:
        broker.routes.add(Operation(method="GET", path="/v0/endless", handler=endless, rule=Rule(NOTHING)))
        slow, steady = [Http2Client(await broker.connect()) for _ in range(2)]
        for two in (slow, steady):
            two.http.increment_flow_control_window(1 << 30)
            two.ask(1, "GET", "/v0/endless")
            await two.until(h2.events.DataReceived, 1)
        for _ in range(30):
            steady.http.increment_flow_control_window(60_000, 1)
            steady.flush()
            await steady.until(h2.events.DataReceived, 1)
            await asyncio.sleep(SHORT_S / 5)
        await slow.until(h2.events.StreamReset, 1)
        assert cut_off(broker) == {"answer": 1}


async def test_an_http2_head_over_the_limit_is_reset() -> None:
    async with server(max_header_bytes=1000) as broker:
        two = Http2Client(await broker.connect())
        two.ask(1, "GET", "/v0/topics", ("x", "y" * 2000))
        await two.until(h2.events.StreamReset, 1)
        two.ask(3, "GET", "/v0/topics")
        await two.until(h2.events.StreamEnded, 3)
        assert broker.counted("topics_refused")["header_too_large",] == 1


# -- how many --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("http", SERVERS)
async def test_no_more_connections_are_open_than_may(http: str) -> None:
    async with server(http=http, max_connections=10) as broker:
        wires = [await broker.connect() for _ in range(10)]
        for wire in wires:
            wire.send(GET)
            assert (await wire.answer()).status == 200
        assert broker.counted("topics_connections") == {(): 10}
        for _ in range(5):
            assert await ends(await broker.connect()) == b""
        assert broker.counted("topics_connections_refused") == {(): 5}
        await wires.pop().close()
        await soon(lambda: broker.counted("topics_connections") == {(): 9})
        assert (await broker.ask(GET)).status == 200


# -- the rule --------------------------------------------------------------------------------------------------------


def test_a_quota_deadline_restarts_when_the_quota_is_met() -> None:
    progress = Progress(Quota(10, 100), now=0)
    assert progress.deadline() == 10
    progress.moved(999, 5)
    assert progress.deadline() == 10
    progress.moved(1, 9)
    assert progress.deadline() == 19
    anything = Progress(Quota(10, 0), now=0)
    anything.moved(0, 5)
    assert anything.deadline() == 10
    anything.moved(1, 5)
    assert anything.deadline() == 15
