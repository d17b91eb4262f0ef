"""Malicious requests over real sockets: each is refused or its connection closed, no file is accessed, no state
changes, and the next request is served.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import broker
from storage.errors import TopicNotFound
from tests.http.auth_calls import bearer
from tests.http.hot_server import ASGI, HotServer, Wire, post, records
from tests.http.watch_calls import soon
from tests.support.attacks import AMBIGUOUS, METHODS, RUBBISH, SMUGGLED, TARGETS, THERE, framed

SERVERS = ["zttp", "httptools"]
GET = f"GET /v0/topics/{THERE} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
PATIENCE_S = 20
#: Audit events of calls that access a file by name (see the table in Python's library reference).
FILE_EVENTS = {"open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link"}
#: A server keeps these open to wait for the rest. `test_slow_clients` tests ends that never come.
UNFINISHED = {"TLS"}
OWN_SOURCES = os.path.dirname(broker.__file__)

_watched: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is not None and event in FILE_EVENTS and isinstance(arguments[0], str | bytes):
        path = os.fsdecode(arguments[0])
        # The framework reads the source of an endpoint to say where a refusal comes from.
        if not (path.startswith(OWN_SOURCES) and path.endswith(".py")):
            _watched.append(f"{event} {path!r}")


sys.addaudithook(_hook)


@contextmanager
def no_file_touched() -> Iterator[None]:
    """The broker's own disk is in memory, so every access to the real one was caused by a request."""
    global _watched
    _watched = []
    try:
        yield
        assert _watched == []
    finally:
        _watched = None


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HotServer]:
    async with HotServer(http=request.param) as server:
        await server.topic(THERE)
        await server.ask(GET)  # everything that is imported late is imported now
        yield server


async def still_serves(server: HotServer) -> None:
    """The topics are unchanged, and a write succeeds."""
    with pytest.raises(TopicNotFound):
        server.engine.state(SMUGGLED)
    before = server.engine.state(THERE).head_seq
    assert (await server.ask(post(THERE, records(1)))).status == 200
    assert server.engine.state(THERE).head_seq == before + 1


async def statuses(wire: Wire) -> list[int]:
    """The statuses of all answers until the server closes the connection. Raises TimeoutError if it does not."""
    got = b""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while part := await wire.read():
                got += part
        except ConnectionResetError:
            pass
    return [int(number) for number in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


# -- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
async def test_an_unknown_target_is_refused_without_file_access(server: HotServer, method: str) -> None:
    with no_file_touched():
        for target in TARGETS:
            answer = await server.ask(framed(target, method).replace(b"HEAD", b"GET"))
            assert 400 <= answer.status < 500, target
            assert answer.code in {"invalid_request", "not_found", "method_not_allowed", "header_too_large"}, target
    assert len(server.engine.topics()) == 1
    await still_serves(server)


async def test_the_file_access_check_notices_a_served_file(server: HotServer) -> None:
    """Tests the check itself."""
    with pytest.raises(AssertionError), no_file_touched():
        assert (await server.ask(b"GET /docs/swagger-ui.css HTTP/1.1\r\nhost: localhost\r\n\r\n")).status == 200


async def test_invented_names_never_reach_a_file(server: HotServer, soak_mode: bool) -> None:
    alphabet = st.sampled_from(["..", "/", "%2f", "%2e", "%00", "%", "\\", "~", "a", ".", "%c0", "%25", ";", "there"])
    made = st.lists(st.one_of(alphabet, st.text(max_size=3).map(quote)), min_size=1, max_size=12).map("".join)
    loop = asyncio.get_running_loop()

    async def attack(name: str) -> None:
        answer = await server.ask(framed(f"/v0/topics/{name}", "GET"))
        assert answer.status in (200, 400, 404), name

    @settings(max_examples=2000 if soak_mode else 100)
    @given(made)
    def each(name: str) -> None:
        asyncio.run_coroutine_threadsafe(attack(name), loop).result(PATIENCE_S)

    await asyncio.to_thread(each)
    await still_serves(server)


# -- framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_an_ambiguous_request_is_refused(server: HotServer, what: str) -> None:
    with no_file_touched():
        wire = await server.connect()
        wire.send(AMBIGUOUS[what])
        found = await statuses(wire)
    assert found == [400]
    await still_serves(server)


@pytest.mark.parametrize("what", RUBBISH)
async def test_garbage_is_refused(server: HotServer, what: str) -> None:
    wire = await server.connect()
    wire.send(RUBBISH[what])
    if what in UNFINISHED:
        wire.send(b"\r\n\r\n")
    found = await statuses(wire)
    assert found in ([400], [431])
    await still_serves(server)


async def test_a_proxy_request_is_refused(server: HotServer) -> None:
    answer = await server.ask(b"CONNECT other:443 HTTP/1.1\r\nhost: other:443\r\n\r\n")
    assert (answer.status, answer.code) in ((400, "invalid_request"), (403, "forbidden"))
    await still_serves(server)


@pytest.mark.parametrize("kind", [{}, ASGI])
@pytest.mark.parametrize("what", ["bytes", "NUL in a value", "two lengths", "long value", "no host"])
async def test_a_write_followed_by_invalid_bytes_is_answered(
    server: HotServer, what: str, kind: dict[str, str]
) -> None:
    """If a refusal took the place of its answer, the client would believe that the write was not done."""
    wire = await server.connect()
    wire.send(post(THERE, records(1), kind) + (AMBIGUOUS | RUBBISH)[what])
    found = await statuses(wire)
    assert found[0] == 200
    assert found[1:] in ([], [400], [431])
    assert server.engine.state(THERE).head_seq == 1
    await still_serves(server)


async def test_bytes_behind_a_waiting_request_are_not_buffered_without_bound(server: HotServer) -> None:
    wire = await server.connect()
    waiting = post(f"{THERE}/diff", {"wait_ms": 300})
    wire.send(waiting + b"GET /v0/topics HTTP/1.1\r\nhost: localhost\r\nx-a: ")
    tracemalloc.start()
    try:
        for _ in range(100):
            wire.send(b"b" * 100_000)
            await asyncio.sleep(0)
        found = await statuses(wire)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
    assert found in ([200], [])
    await still_serves(server)


async def test_an_invalid_chunked_body_is_refused_after_earlier_answers(server: HotServer) -> None:
    bad = AMBIGUOUS["rubbish instead of a chunk"]
    for ahead in (0, 1, 3):
        wire = await server.connect()
        wire.send(post(THERE, records(1), ASGI) * ahead + bad)
        found = await statuses(wire)
        assert found[:ahead] == [200] * len(found[:ahead])
        assert all(status == 400 for status in found[ahead:])
    # If the connection was cut, a write before the garbage may still be in progress.
    tasks, shards = server.server.server_state.tasks, server.engine.shards
    await soon(lambda: not tasks and not any(each.unresolved for each in shards))
    await still_serves(server)


async def test_many_connections_with_garbage_are_all_closed(server: HotServer, soak_mode: bool) -> None:
    state = server.server.server_state
    before = set(state.connections)
    samples = [*AMBIGUOUS.values(), *(data for name, data in RUBBISH.items() if name not in UNFINISHED)]
    for _ in range(20 if soak_mode else 2):
        wires = [await server.connect() for _ in samples]
        for wire, sample in zip(wires, samples, strict=True):
            wire.send(sample[: len(sample) // 2])
        for wire, sample in zip(wires, samples, strict=True):
            wire.send(sample[len(sample) // 2 :])
        for wire in wires:
            assert all(400 <= status < 500 for status in await statuses(wire))
    await soon(lambda: state.connections == before and not state.tasks)
    await still_serves(server)


# -- upgrades --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["websocket", "h2c", "x", "TLS/1.0"])
async def test_other_paths_are_not_upgraded(server: HotServer, wanted: str) -> None:
    more = f"host: localhost\r\nconnection: upgrade\r\nupgrade: {wanted}\r\nsec-websocket-version: 13\r\n"
    key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nhttp2-settings: AAMAAABkAARAAAAA\r\n"
    answer = await server.ask(f"GET /v0/topics/{THERE} HTTP/1.1\r\n{more}{key}\r\n".encode())
    assert (answer.status, answer.body["topic"]) == (200, THERE)
    await still_serves(server)


# -- keys ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=SERVERS)
async def guarded(request: pytest.FixtureRequest) -> AsyncIterator[HotServer]:
    async with HotServer(http=request.param, api_keys="right,other:r") as server:
        await server.topic(THERE)
        yield server


@pytest.mark.parametrize("kind", [{}, ASGI])
@pytest.mark.parametrize("keys", [("wrong", "right"), ("right", "wrong"), ("right", "right"), ("", "right")])
async def test_a_request_with_two_keys_is_unauthorized(
    guarded: HotServer, keys: tuple[str, str], kind: dict[str, str]
) -> None:
    """A proxy in front of the broker may have looked at the other one."""
    head, body = post(THERE, records(1), kind).split(b"\r\n\r\n")
    twice = b"".join(b"\r\nAuthorization: Bearer " + key.encode() for key in keys)
    answer = await guarded.ask(head + twice + b"\r\n\r\n" + body)
    assert (answer.status, answer.code) == (401, "unauthorized")
    assert guarded.engine.state(THERE).head_seq == 0


@pytest.mark.parametrize("kind", [{}, ASGI])
async def test_no_made_up_key_is_let_in(guarded: HotServer, kind: dict[str, str], soak_mode: bool) -> None:
    near = st.sampled_from(
        ["right", "Right", "right ", " right", "rightx", "righ", "right,other", "right:", "ri", "ght"]
    )
    scheme = st.sampled_from(
        ["Bearer ", "bearer ", "Bearer", "Bearer\t", "Basic ", "Token ", "", "Bearer  ", "BEARER "]
    )
    made = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF), max_size=600)
    loop = asyncio.get_running_loop()

    async def attack(value: bytes) -> None:
        head, body = post(THERE, records(1), kind).split(b"\r\n\r\n")
        answer = await guarded.ask(head + b"\r\nauthorization: " + value + b"\r\n\r\n" + body)
        key = re.fullmatch(rb"(?i:bearer) +([^ ]*) *", value.strip(b" \t"))
        if key is not None and key[1] == b"right":
            assert answer.status == 200
        else:
            assert answer.status in (400, 401, 403), value

    @settings(max_examples=2000 if soak_mode else 100)
    @given(scheme, st.one_of(near, made))
    def each(scheme: str, key: str) -> None:
        asyncio.run_coroutine_threadsafe(attack((scheme + key).encode("latin-1")), loop).result(PATIENCE_S)

    await asyncio.to_thread(each)
    assert (await guarded.ask(post(THERE, records(1), bearer("right")))).status == 200
