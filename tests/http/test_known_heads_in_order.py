"""Requests before and after one whose head is known, and ends of connections: answered in order, each once, each with
its own answer.

Each test here needs `agains` to grow: it counts the requests that skipped the parser.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.server.http1 import AgainCycle, Http1Protocol
from tests.http.hot_server import ASGI, HotServer, Wire, post, records
from tests.http.known_heads import GET, ONE, connection, under_way, warm
from tests.http.test_hot_claims import Counted, claim, until
from tests.http.test_hot_outcomes import FSYNC
from tests.unit.storage.machine import data


async def nothing_comes(wire: Wire, for_s: float = 0.05) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(for_s):
            assert await wire.read() == b""


# -- what stands around them -----------------------------------------------------------------------------------------


async def test_requests_behind_a_pending_request_wait_and_are_answered_in_order(
    server: HotServer, agains: list[bytes]
) -> None:
    wire = await warm(server)
    async with under_way(server, wire, post("t", records("a"))):
        for piece in (post("t", records("b"))[:30], post("t", records("b"))[30:] + GET, post("t", records("c"))):
            wire.send(piece)
            await asyncio.sleep(0.01)
        assert (len(agains), connection(server).transport.is_reading()) == (1, False)
        await nothing_comes(wire)
    answers = [await wire.answer() for _ in range(4)]
    assert [each.body.get("first_seq", "get") for each in answers] == [2, 3, "get", 4]
    assert await data(server.engine, "t") == [1, "a", "b", "c"]


async def test_a_complete_waiting_request_with_a_known_head_is_not_parsed(
    server: HotServer, agains: list[bytes]
) -> None:
    wire = await warm(server)
    async with under_way(server, wire, post("t", records("a"))):
        wire.send(post("t", records("b")))
        await asyncio.sleep(0.02)
    assert [(await wire.answer()).body["first_seq"] for _ in range(2)] == [2, 3]
    assert len(agains) == 2


async def test_buffered_bytes_behind_a_pending_request_are_bounded(server: HotServer, agains: list[bytes]) -> None:
    wire = await warm(server)
    async with under_way(server, wire, post("t", records("a"))):
        wire.send(post("t", ONE) * 100_000)
        await asyncio.sleep(0.1)
        assert sum(map(len, connection(server)._held)) <= 256 << 10  # pyright: ignore[reportPrivateUsage]
        assert len(agains) == 1
        await wire.close()


@pytest.mark.parametrize(
    "behind",
    [
        b"rubbish\r\n\r\n",
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"\r\n" + post("t", ONE),
        b"\n" + post("t", ONE),
    ],
)
async def test_invalid_bytes_behind_a_request_are_refused_after_its_answer(
    server: HotServer, agains: list[bytes], behind: bytes
) -> None:
    wire = await warm(server)
    wire.send(post("t", ONE) + behind)
    assert [(await wire.answer()).status for _ in range(2)] == [200, 400]
    await wire.ended()
    assert not agains, "it was not all of the piece"
    wire = await warm(server)
    async with under_way(server, wire, post("t", ONE)):
        wire.send(behind)
        await asyncio.sleep(0.02)
    assert [(await wire.answer()).status for _ in range(2)] == [200, 400]
    await wire.ended()
    assert (len(agains), server.engine.state("t").head_seq) == (1, 4)


BETWEEN: dict[str, list[bytes]] = {
    "a GET": [GET],
    "a GET with a body": [b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc"],
    "the body is a request": [post("t", post("t", ONE), ASGI)],
    "the body is a request, by itself": [post("t", b"", ASGI, length=len(post("t", ONE))), post("t", ONE)],
    "hot, the body is a request by itself": [post("t", b"", length=len(post("t", ONE))), post("t", ONE)],
    "chunked": [
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        b"%x\r\n" % len(post("t", ONE)),
        post("t", ONE),
        b"\r\n0\r\n\r\n",
    ],
    "in two pieces": [post("t", b"{}")[:40], post("t", b"{}")[40:]],
    "head and body": [post("t", b"{")[:-1], b"{"],
    "not whole, then whole": [post("t", b"{}", length=2)[:-1], b"}"],
    "100-continue": [post("t", b"{}", {"expect": "100-continue"})],
    "upgrade elsewhere": [
        b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    ],
}


@pytest.mark.parametrize("pieces", BETWEEN.values(), ids=BETWEEN)
async def test_an_incomplete_or_changed_head_between_known_heads_is_a_single_request(
    server: HotServer, agains: list[bytes], pieces: list[bytes]
) -> None:
    """The request gets one answer and writes nothing, and the next request gets its own answer."""
    wire = await warm(server, post("t", ONE), post("t", ONE))
    for piece in pieces:
        wire.send(piece)
        await asyncio.sleep(0.02)
    answer = await wire.answer()
    if answer.status == 100:
        answer = await wire.answer()
    assert answer.status in ((200,) if pieces[0].startswith(b"GET") else (400, 415))
    for number in (3, 4):
        wire.send(post("t", records(number)))
        assert (await wire.answer()).body["first_seq"] == number
    assert await data(server.engine, "t") == [1, 1, 3, 4]


async def test_a_connection_with_known_heads_can_become_a_websocket(server: HotServer, agains: list[bytes]) -> None:
    wire = await warm(server, post("t", ONE), post("t", ONE))
    key = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: " + b"A" * 22
    wire.send(b"GET /v0/ws HTTP/1.1\r\nhost: localhost\r\n" + key + b"==\r\n\r\n")
    assert (await wire.answer()).status == 101
    assert len(agains) == 1
    wire.send(post("t", ONE))
    await asyncio.sleep(0.05)
    assert (len(agains), server.engine.state("t").head_seq) == (1, 2)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_a_head_with_close_is_not_remembered(server: HotServer, version: str) -> None:
    wire = await warm(server)
    wire.send(post("t", ONE, {"connection": "close"}, version=version))
    assert (await wire.answer()).status == 200
    await wire.ended()


# -- how they end ----------------------------------------------------------------------------------------------------


async def test_a_pending_write_of_a_disconnected_client_is_stored(server: HotServer, agains: list[bytes]) -> None:
    wire = await warm(server)
    async with under_way(server, wire, post("t", records("a"))):
        await wire.close()  # the client may have closed this side only: its connection ends after the answer
        await asyncio.sleep(0.02)
    while server.server.server_state.connections or server.server.server_state.tasks:
        await asyncio.sleep(0.001)
    assert (await data(server.engine, "t"), len(agains)) == ([1, "a"], 1)


async def test_a_shutdown_answers_the_pending_request_and_begins_no_waiting_request(agains: list[bytes]) -> None:
    async with HotServer(grace_s=20) as server:
        await server.topic("t", FSYNC)
        wire = await warm(server)
        async with under_way(server, wire, post("t", records("a"))):
            wire.send(post("t", records("b")))
            await asyncio.sleep(0.02)
            stopped = server.stop()
            while server.server.servers[0].is_serving():
                await asyncio.sleep(0.001)
        assert (await wire.answer()).body["seqs"] == [2]
        await wire.ended()
        await stopped
        assert (len(agains), server.engine.state("t").head_seq) == (1, 2)


async def test_a_hanging_request_ends_with_shutting_down_after_the_grace(agains: list[bytes]) -> None:
    async with HotServer(grace_s=0.2) as server:
        await server.topic("t", FSYNC)
        wire = await warm(server)
        async with under_way(server, wire, post("t", records("a"))):
            stopped = server.stop()
            answer = await wire.answer()
            assert (answer.code, answer.body["error"]["detail"]) == ("shutting_down", {"outcome": "unknown"})
            await wire.ended()
            await stopped
        assert len(agains) == 1


async def test_a_claim_that_has_to_wait_is_continued_by_asgi_and_ends_with_the_server(agains: list[bytes]) -> None:
    async with Counted(grace_s=20) as server:
        await server.queue(0)
        wire = await warm(server, claim(1))
        await server.absorbed(3)
        with server.disk.hold("pread", "*.data", times=1) as gate:
            wire.send(claim(2, wait_ms=15_000))
            await asyncio.to_thread(gate.wait_held)
            wire.send(claim(1))
            await asyncio.sleep(0.02)
            await server.engine.delete_records("q", before_seq=4)
        await until(lambda: server.engine.queues.figures("q").waiting_claims == 1)
        assert len(agains) == 1
        await server.ask(post("q", records("later")))
        assert [job["data"] for job in (await wire.answer()).body["claimed"]] == ["later"]
        assert (await wire.answer()).body["count"] == 0
        wire.send(claim(1))
        assert (await wire.answer()).body["count"] == 0


async def test_a_request_deferred_by_the_engine_is_answered_and_a_defect_ends_only_its_connection(
    server: HotServer, agains: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine lets one go after the other, and none may delay the next."""
    requests = [post("t", ONE, {"x-request-id": each}) for each in ("one", "two", "three")]
    wires = [await warm(server, each) for each in requests]
    left: list[Callable[[], None]] = []
    go_on = Http1Protocol.carry_out_again

    def later(*given: Any, node: str | None = None) -> bool:
        left.append(given[3])
        return True

    def broken(self: Http1Protocol, again: AgainCycle, application: Any) -> bool:
        if again.request.request_id == b"two":
            raise RuntimeError("a defect")
        return go_on(self, again, application)

    with monkeypatch.context() as patch:
        patch.setattr(server.engine, "try_append_coalesced", later)
        patch.setattr(Http1Protocol, "carry_out_again", broken)
        for wire, request in zip(wires, requests, strict=True):
            wire.send(request)
        await until(lambda: len(left) == 3)
        for leave in left:
            leave()
    await wires[1].ended()
    for wire, request in ((wires[0], requests[0]), (wires[2], requests[2])):
        assert (await wire.answer()).status == 200
        wire.send(request)
        assert (await wire.answer()).status == 200
    assert len(agains) == 5, "what comes behind one that was left is known as before"
    assert server.engine.state("t").head_seq == 7
    assert not server.server.server_state.tasks


# -- bodies and boundaries -------------------------------------------------------------------------------------------


UNUSUAL = [
    b"content-length: 000000%d",
    b"content-length: %d ",
    b"content-length: %d\t",
    b"Content-Length:\t%d \t ",
]


@pytest.mark.parametrize("length", UNUSUAL)
async def test_a_body_is_never_taken_for_a_request(server: HotServer, agains: list[bytes], length: bytes) -> None:
    wire = await warm(server)
    wire.send(post("t", ONE))
    assert (await wire.answer()).status == 200
    assert len(agains) == 1
    inside = post("t", records("smuggled"))
    wire.send(b"POST /v0/nowhere HTTP/1.1\r\nhost: localhost\r\n" + length % len(inside) + b"\r\n\r\n")
    assert (await wire.answer()).status == 404, "before its body has come"
    wire.send(inside)
    await asyncio.sleep(0.05)
    wire.send(GET)
    assert (await wire.answer()).body["head_seq"] == 2
    assert await data(server.engine, "t") == [1, 1]
