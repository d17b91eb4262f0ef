"""Malicious HTTP/2: floods close their connection, invalid requests are reset, and other clients are not affected."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable

import h2.events
import h2.exceptions
import hpack
import pytest

from broker.server.control_frames import BURST_S, ControlFrameLimiter
from storage.errors import TopicNotFound
from tests.http.hot_server import HotServer
from tests.http.test_slow_clients import Http2Client, ends
from tests.http.watch_calls import soon
from tests.support.attacks import SMUGGLED, TARGETS, THERE

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
ENHANCE_YOUR_CALM = 0xB
PER_S = 20
#: As many as zttp serves on one connection at a time.
MAX_STREAMS = 128


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def head(*fields: tuple[str | bytes, str | bytes]) -> bytes:
    return hpack.Encoder().encode(fields)


def request(stream: int, *fields: tuple[str | bytes, str | bytes], flags: int = END_HEADERS | END_STREAM) -> bytes:
    return frame(HEADERS, flags, stream, head(*fields))


def get(path: str | bytes) -> list[tuple[str | bytes, str | bytes]]:
    return [(":method", "GET"), (":path", path), (":scheme", "http"), (":authority", "localhost")]


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer(max_control_frames_per_s=PER_S) as server:
        await server.topic(THERE)
        yield server


async def still_serves(server: HotServer, two: Http2Client | None = None) -> None:
    with pytest.raises(TopicNotFound):
        server.engine.state(SMUGGLED)
    other = two or Http2Client(await server.connect())
    stream = other.http.get_next_available_stream_id()
    other.ask(stream, "GET", f"/v0/topics/{THERE}")
    headers = await other.until(h2.events.ResponseReceived, stream)
    assert (b":status", b"200") in headers.headers


def floods(server: HotServer) -> dict[str, float]:
    return {of: count for (of,), count in server.counted("topics_http2_floods").items() if count}


def last_words(got: bytes) -> tuple[int, int]:
    """Kind and error code of the last frame."""
    last = (0, 0)
    while len(got) >= 9:
        size, kind = int.from_bytes(got[:3], "big"), got[3]
        payload = got[9 : 9 + size]
        last = (kind, int.from_bytes(payload[4:8], "big") if kind == GOAWAY else 0)
        got = got[9 + size :]
    return last


def many(one: bytes, count: int = 50_000) -> bytes:
    return one * count


FLOODS: dict[str, Callable[[], bytes]] = {
    "ping": lambda: many(frame(PING, payload=bytes(8))),
    "settings": lambda: many(frame(SETTINGS)),
    "resets": lambda: b"".join(
        request(stream, *get("/v0/topics"), flags=END_HEADERS) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
        for stream in range(1, 20_001, 2)
    ),
    "resets provoked": lambda: b"".join(
        request(stream, *get("/v0/topics"), flags=END_HEADERS) + frame(WINDOW_UPDATE, 0, stream, bytes(4))
        for stream in range(1, 20_001, 2)
    ),
    "continuation": lambda: frame(HEADERS, END_STREAM, 1, b"\x82") + many(frame(CONTINUATION, 0, 1)),
}


@pytest.mark.parametrize("what", FLOODS)
async def test_a_flood_ends_its_connection_and_is_counted(server: HotServer, what: str) -> None:
    bystander = Http2Client(await server.connect())
    wire = await server.connect()
    wire.send(PREFACE, frame(SETTINGS), FLOODS[what]())
    assert last_words(await ends(wire)) == (GOAWAY, ENHANCE_YOUR_CALM)
    assert sum(floods(server).values()) == 1
    await still_serves(server, bystander)
    await idle(server, 1)


@pytest.mark.parametrize("what", ["ping", "settings"])
async def test_unread_answers_to_a_flood_are_bounded(server: HotServer, what: str) -> None:
    wire = await server.connect()
    wire.transport.pause_reading()
    wire.send(PREFACE, frame(SETTINGS))
    while not (connections := [each for each in server.server.server_state.connections if hasattr(each, "conn")]):
        await asyncio.sleep(0.001)
    [connection] = connections
    wire.send(FLOODS[what]())
    while connection in server.server.server_state.connections and not connection.transport.is_closing():
        await asyncio.sleep(0.001)
    assert floods(server) == {"control_frames": 1}
    await still_serves(server)


async def test_pings_within_the_limit_are_answered(server: HotServer) -> None:
    two = Http2Client(await server.connect())
    for number in range(PER_S * BURST_S // 2):
        two.http.ping(number.to_bytes(8, "big"))
    two.flush()
    for _ in range(PER_S * BURST_S // 2):
        await two.until(h2.events.PingAckReceived)
    assert floods(server) == {}
    await still_serves(server, two)


async def test_a_limit_of_zero_is_no_limit() -> None:
    async with HotServer(max_control_frames_per_s=0) as server:
        await server.topic(THERE)
        two = Http2Client(await server.connect())
        for _ in range(3000):
            two.http.ping(bytes(8))
            two.flush()
            await two.until(h2.events.PingAckReceived)
        await still_serves(server, two)


async def test_many_ignored_frames_do_not_end_the_connection(server: HotServer) -> None:
    two = Http2Client(await server.connect())
    two.wire.send(many(frame(PRIORITY, 0, 3, bytes(5)), 20_000), many(frame(0x7F, 0xFF, 0, b"x" * 20), 20_000))
    two.wire.send(many(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)), 20_000))
    await still_serves(server, two)


MALFORMED: dict[str, list[tuple[str | bytes, str | bytes]]] = {
    "path that is not ASCII": get("/v0/topics/\xe9".encode("latin-1")),
    "path with UTF-8": get("/v0/topics/é".encode()),
    "path with a NUL": get("/v0/topics/a\0b"),
    "path with a line break": get(f"/v0/topics HTTP/1.1\r\nx: y\r\n\r\nPUT /v0/topics/{SMUGGLED} HTTP/1.1"),
    "no path": [each for each in get("/") if each[0] != ":path"],
    "empty path": get(""),
    "two paths": [*get("/v0/topics"), (":path", f"/v0/topics/{SMUGGLED}")],
    "no method": [each for each in get("/") if each[0] != ":method"],
    "method with a space": [(":method", f"PUT /v0/topics/{SMUGGLED} HTTP/1.1"), *get("/v0/topics")[1:]],
    "unknown pseudo field": [*get("/v0/topics"), (":x", "y")],
    "pseudo field behind others": [("a", "b"), *get("/v0/topics")],
    "upper-case name": [*get("/v0/topics"), ("X-A", "b")],
    "name with a colon": [*get("/v0/topics"), ("a:b", "c")],
    "line break in a value": [*get("/v0/topics"), ("x-a", "b\r\ncontent-length: 5")],
    "NUL in a value": [*get("/v0/topics"), ("x-a", "b\0")],
    "transfer-encoding": [*get("/v0/topics"), ("transfer-encoding", "chunked")],
    "connection": [*get("/v0/topics"), ("connection", "close")],
    "two lengths": [*get("/v0/topics"), ("content-length", "0"), ("content-length", "1")],
    "length that is no number": [*get("/v0/topics"), ("content-length", "+1")],
    "length of a body that does not come": [*get("/v0/topics"), ("content-length", "5")],
    "CONNECT": [(":method", "CONNECT"), (":authority", "other:443")],
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_request_is_reset_and_its_connection_stays_open(server: HotServer, what: str) -> None:
    wire = await server.connect()
    wire.send(PREFACE, frame(SETTINGS), request(1, *MALFORMED[what]), request(3, *get(f"/v0/topics/{THERE}")))
    got = b""
    async with asyncio.timeout(20):
        while not (reset(got, 1) and answered(got, 3)):
            part = await wire.read()
            assert part, "the connection was closed"
            got += part
    await still_serves(server)


def kinds(got: bytes, stream: int) -> list[int]:
    found: list[int] = []
    while len(got) >= 9:
        size = int.from_bytes(got[:3], "big")
        if int.from_bytes(got[5:9], "big") == stream:
            found.append(got[3])
        got = got[9 + size :]
    return found


def reset(got: bytes, stream: int) -> bool:
    assert HEADERS not in kinds(got, stream)
    return RST_STREAM in kinds(got, stream)


def answered(got: bytes, stream: int) -> bool:
    return HEADERS in kinds(got, stream)


BROKEN: dict[str, bytes] = {
    "no settings first": frame(PING, payload=bytes(8)),
    "frame too large": frame(DATA, 0, 1, bytes(100_000)),
    "ping of a wrong size": frame(SETTINGS) + frame(PING, payload=bytes(7)),
    "settings of a wrong size": frame(SETTINGS) + frame(SETTINGS, payload=bytes(5)),
    "settings on a stream": frame(SETTINGS) + frame(SETTINGS, 0, 1),
    "data on stream 0": frame(SETTINGS) + frame(DATA, 0, 0, b"x"),
    "headers on stream 0": frame(SETTINGS) + frame(HEADERS, END_HEADERS, 0, b"\x82"),
    "an even stream": frame(SETTINGS) + request(2, *get("/v0/topics")),
    "a stream that went by": frame(SETTINGS) + request(5, *get("/v0/topics")) + request(3, *get("/v0/topics")),
    "data before headers": frame(SETTINGS) + frame(DATA, 0, 1, b"x"),
    "push": frame(SETTINGS) + frame(PUSH, END_HEADERS, 1, struct.pack(">I", 2) + head(*get("/"))),
    "window beyond its limit": frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    "no window": frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    "initial window beyond its limit": frame(SETTINGS, payload=b"\x00\x04\xff\xff\xff\xff"),
    "HPACK index that is none": frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\x0f"),
    "HPACK that ends early": frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\x40\x0aabc"),
    "HPACK table beyond its limit": frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\x3f\xe1\xff\xff\x07\x82"),
    "padding longer than the frame": frame(SETTINGS) + frame(HEADERS, END_HEADERS | 8, 1, b"\xff\x82"),
    "headers amid headers": frame(SETTINGS) + frame(HEADERS, 0, 1, b"\x82") + request(3, *get("/v0/topics")),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_connection_against_the_protocol_is_closed(server: HotServer, what: str) -> None:
    wire = await server.connect()
    wire.send(PREFACE, BROKEN[what])
    await ends(wire)
    await still_serves(server)
    await idle(server, 1)


async def test_a_small_head_of_many_fields_is_reset(server: HotServer) -> None:
    """HPACK turns a kilobyte into megabytes."""
    field = ("x-a", "b" * 4000)
    two = hpack.Encoder()
    wire = await server.connect()
    wire.send(PREFACE, frame(SETTINGS))
    for stream in (1, 3, 5):
        wire.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, two.encode([*get("/v0/topics"), *[field] * 2000])))
    got = b""
    async with asyncio.timeout(20):
        while part := await wire.read():
            got += part
            if all(reset(got, stream) for stream in (1, 3, 5)):
                break
    await still_serves(server)


async def test_unknown_targets_are_refused(server: HotServer) -> None:
    two = Http2Client(await server.connect())
    stream = 1
    for target in TARGETS:
        two.ask(stream, "GET", target)
        headers = await two.until(h2.events.ResponseReceived, stream)
        [status] = [int(value) for name, value in headers.headers if name == b":status"]
        assert 400 <= status < 500, target
        stream += 2
    await still_serves(server, two)


async def test_streams_over_the_limit_are_refused_and_leave_no_task(server: HotServer) -> None:
    wire = await server.connect()
    wire.send(PREFACE, frame(SETTINGS))
    post = [(":method", "POST"), *get(f"/v0/topics/{THERE}")[1:], ("content-type", "application/json")]
    wire.send(*(request(stream, *post, flags=END_HEADERS) for stream in range(1, 401, 2)))
    while not server.server.server_state.tasks:
        await asyncio.sleep(0.001)
    assert len(server.server.server_state.tasks) <= MAX_STREAMS
    await wire.close()
    await idle(server, 0)
    await still_serves(server)


async def idle(server: HotServer, connections: int) -> None:
    """No request is in progress, and no more connections than that are open."""
    state = server.server.server_state
    await soon(lambda: not state.tasks and len(state.connections) <= connections)


def test_the_flood_limit_applies_to_the_average_rate() -> None:
    calm = ControlFrameLimiter(10, now=0)
    assert all(calm.keeps(0) for _ in range(10 * BURST_S))
    assert not calm.keeps(0)
    assert all(calm.keeps(2) for _ in range(19))
    assert not calm.keeps(2)
    assert all(calm.keeps(1000) for _ in range(10 * BURST_S))
    assert not calm.keeps(1000)
    assert all(ControlFrameLimiter(0, now=0).keeps(0) for _ in range(10_000))
