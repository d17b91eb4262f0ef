"""Connections that bypass ASGI: pipelined, cut, refused or closed requests have the same answers as through ASGI."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.api.hot import HotRequests
from broker.api.request import Request
from broker.content.answers import PROTECTION, Answer
from storage.log.append import Write
from tests.http.hot_server import ASGI, HotServer, Wire, post, records
from tests.unit.storage.machine import data

ONE = records(1)
#: How many bytes zttp keeps of what follows an unanswered request.
KEPT_AHEAD_BYTES = 8 << 20
ROUTE = "/v0/topics/{topic}"


async def test_a_plain_write_goes_past_asgi(server: HotServer) -> None:
    answer = await server.ask(post("t", ONE))
    assert (answer.status, answer.body["seqs"], server.taken) == (200, [1], 1)
    protection = [name.decode() for name, _ in PROTECTION]
    names = ["date", "x-request-id", *protection, "content-type", "content-length"]
    assert [name for name, _ in answer.headers] == names


async def test_pipelined_writes_are_answered_in_order(server: HotServer) -> None:
    wire = await server.connect()
    wire.send(*(post("t", records(number)) for number in range(20)))
    assert [(await wire.answer()).body["first_seq"] for _ in range(20)] == list(range(1, 21))
    assert await data(server.engine, "t") == list(range(20))
    assert server.taken == 20


async def test_hot_and_other_requests_take_turns_on_a_connection(server: HotServer) -> None:
    wire = await server.connect()
    get = b"GET /v0/topics/t HTTP/1.1\r\nhost: localhost\r\n\r\n"
    wire.send(post("t", ONE), get, post("t", ONE, ASGI), post("t", ONE), get, post("none", {"create": False}), get)
    wire.send(post("t", b"{"), post("t", ONE))
    statuses = [(await wire.answer()).status for _ in range(9)]
    assert statuses == [200, 200, 200, 200, 200, 400, 200, 400, 200]
    assert (server.taken, server.engine.state("t").head_seq) == (3, 4)


async def test_requests_sent_byte_by_byte_are_answered(server: HotServer) -> None:
    wire = await server.connect()
    for byte in post("t", records("ä")) + post("t", records(2)):
        wire.send(bytes([byte]))
        await asyncio.sleep(0)
    assert [(await wire.answer()).status for _ in range(2)] == [200, 200]
    assert await data(server.engine, "t") == ["ä", 2]
    assert server.taken == 2


async def test_a_request_left_to_asgi_keeps_its_body_and_the_next_request(server: HotServer) -> None:
    wire = await server.connect()
    wire.send(post("new", records("x" * 200_000)), post("t", ONE))
    first, second = await wire.answer(), await wire.answer()
    assert (first.status, first.body["created"], second.status) == (201, True, 200)
    assert await data(server.engine, "new") == ["x" * 200_000]
    assert (server.left, server.taken) == (1, 1)


@pytest.mark.parametrize(
    ("version", "headers"),
    [("1.1", {"connection": "close"}), ("1.1", {"connection": "Close"}), ("1.0", {}), ("1.0", {"connection": "x"})],
)
async def test_a_connection_with_close_ends_after_the_answer(
    server: HotServer, version: str, headers: dict[str, str]
) -> None:
    for kind in ({}, ASGI):
        wire = await server.connect()
        wire.send(post("t", ONE, {**headers, **kind}, version=version), post("t", ONE, kind))
        assert (await wire.answer()).status == 200
        await wire.ended()
    assert (server.taken, server.engine.state("t").head_seq) == (1, 2)


async def test_http_1_0_with_keep_alive_is_served_as_by_asgi(server: HotServer) -> None:
    outcomes: list[tuple[int, bool]] = []
    for kind in ({}, ASGI):
        wire = await server.connect()
        for _ in range(2):
            wire.send(post("t", ONE, {"connection": "keep-alive", **kind}, version="1.0"))
        outcomes.append(((await wire.answer()).status, await closes(wire)))
    assert outcomes[0] == outcomes[1]


async def closes(wire: Wire) -> bool:
    try:
        await wire.answer()
    except asyncio.IncompleteReadError:
        return True
    return False


async def test_expect_100_continue_is_answered_before_the_body(server: HotServer) -> None:
    wire = await server.connect()
    head, body = post("t", ONE, {"expect": "100-continue"}).split(b"\r\n\r\n")
    wire.send(head, b"\r\n\r\n")
    assert (await wire.answer()).status == 100
    wire.send(body)
    assert (await wire.answer()).status == 200
    assert server.taken == 0


async def test_a_body_in_chunks_is_taken_the_long_way(server: HotServer) -> None:
    wire = await server.connect()
    head = b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    wire.send(head, b'transfer-encoding: chunked\r\n\r\n6\r\n{"reco\r\n12\r\nrds":[{"data":1}]}\r\n0\r\n\r\n')
    wire.send(post("t", ONE))
    assert [(await wire.answer()).status for _ in range(2)] == [200, 200]
    assert (server.taken, server.engine.state("t").head_seq) == (1, 2)


async def test_invalid_bytes_after_a_body_are_refused_after_the_answer(server: HotServer) -> None:
    for kind in ({}, ASGI):
        wire = await server.connect()
        wire.send(post("t", ONE, kind), b"rubbish\r\n\r\n")
        assert (await wire.answer()).status == 200
        assert (await wire.answer()).status == 400
        await wire.ended()
    assert server.engine.state("t").head_seq == 2


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"1" * 5000 + b"\r\n\r\n",
        b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v0/topics/\xc3\xa9 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /v0/topics/\xc3\xa9 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_a_malformed_head_is_refused(server: HotServer, head: bytes) -> None:
    wire = await server.connect()
    wire.send(head)
    assert (await wire.answer()).status == 400
    await wire.ended()
    wire = await server.connect()
    wire.send(post("t", ONE), head)
    assert [(await wire.answer()).status for _ in range(2)] == [200, 400]
    await wire.ended()


async def test_the_last_of_several_headers_of_a_name_counts(server: HotServer) -> None:
    head, body = post("t", ONE, {"idempotency-key": "a"}).split(b"\r\n\r\n")
    request = head + b"\r\nIdempotency-Key: b\r\n\r\n" + body
    assert (await server.ask(request)).body["deduped"] is False
    assert (await server.ask(post("t", ONE, {"idempotency-key": "b"}))).body["deduped"] is True
    assert (await server.ask(post("t", ONE, {"idempotency-key": "a"}))).body["deduped"] is False
    twice = head + b"\r\ncontent-type: text/plain\r\n\r\n" + body
    assert (await server.ask(twice)).code == "unsupported_media_type"


async def test_a_disconnect_during_a_body_is_counted_and_writes_no_record(server: HotServer) -> None:
    for kind in ({}, ASGI):
        wire = await server.connect()
        wire.send(post("t", ONE, kind, length=1000))
        await until_collecting(server)
        await wire.close()
        await until_idle(server)
    assert server.counted("topics_http_clients_gone") == {(ROUTE,): 2}
    assert server.counted("topics_http_requests") == {}
    assert server.engine.state("t").head_seq == 0


async def test_a_write_of_a_client_that_disconnects_before_its_answer_is_stored(server: HotServer) -> None:
    with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
        wire = await server.connect()
        wire.send(post("t", ONE))
        await asyncio.to_thread(gate.wait_held)
        await wire.close()  # which the server cannot distinguish from a client that closes its side and reads on
    while server.server.server_state.connections:
        await asyncio.sleep(0.001)
    await until_idle(server)
    assert await data(server.engine, "t") == [1]
    assert server.counted("topics_http_requests") == {(ROUTE, "POST", "2xx"): 1}
    assert server.counted("topics_http_clients_gone") == {}
    assert (await server.ask(post("t", ONE))).body["first_seq"] == 2


async def test_each_request_is_counted_once_on_the_short_way_and_by_asgi(server: HotServer) -> None:
    for request in (post("t", ONE), post("t", ONE, ASGI), post("t", b"{"), post("new", ONE)):
        await server.ask(request)
    assert server.counted("topics_http_requests") == {(ROUTE, "POST", "2xx"): 3, (ROUTE, "POST", "4xx"): 1}
    assert server.server.server_state.total_requests == 4


async def test_a_client_that_reads_no_answers_is_paused(server: HotServer) -> None:
    body = b'{"records":[' + b",".join([b'{"data":0}'] * 10_000) + b"]}"
    wire = await server.connect()
    wire.transport.pause_reading()
    sent = 0
    flow, transport = None, None
    while flow is None or not flow.write_paused:
        wire.send(*[post("t", body)] * 30)  # fewer than are kept while a request is in progress
        sent += 30
        while server.engine.state("t").head_seq < sent * 10_000 and not (flow and flow.write_paused):
            await asyncio.sleep(0.001)
            [connection] = server.server.server_state.connections
            flow, transport = getattr(connection, "flow", None), connection.transport
    assert transport is not None
    wire.send(*[post("t", body)] * 30)
    sent += 30
    for _ in range(3000):
        await asyncio.sleep(0)
    assert transport.get_write_buffer_size() < 400_000, "a few answers at most wait here"  # pyright: ignore[reportAttributeAccessIssue]
    assert server.engine.state("t").head_seq <= (sent - 20) * 10_000
    wire.transport.resume_reading()
    for number in range(sent):
        assert (await wire.answer()).body["first_seq"] == number * 10_000 + 1


@pytest.mark.parametrize("kind", [{}, ASGI])
async def test_excess_bytes_behind_a_pending_write_close_the_connection_without_a_refusal(
    server: HotServer, kind: dict[str, str]
) -> None:
    wire = await server.connect()
    with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
        wire.send(post("t", ONE, kind))
        await asyncio.to_thread(gate.wait_held)
        # Everything is read before it is too much, so no reset hides an answer.
        wire.send(b"x" * KEPT_AHEAD_BYTES, b"x" * 1000)
        await wire.ended()
    await until_idle(server)
    assert await data(server.engine, "t") == [1]


async def test_an_internal_error_is_answered_once_and_the_connection_continues(
    server: HotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise RuntimeError("a defect")

    wire = await server.connect()
    with monkeypatch.context() as patch:
        patch.setattr(Write, "attempt", broken)
        wire.send(post("t", ONE, {"x-request-id": "mine"}))
        answer = await wire.answer()
    assert (answer.status, answer.code, answer.header("x-request-id")) == (500, "internal", ["mine"])
    wire.send(post("t", ONE))
    assert (await wire.answer()).body["first_seq"] == 1
    assert server.counted("topics_http_requests")[ROUTE, "POST", "5xx"] == 1


async def test_an_answer_that_cannot_be_rendered_is_an_internal_error(
    server: HotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("a defect")

    monkeypatch.setattr("broker.api.routes.append.rendered", broken)
    answer = await server.ask(post("t", ONE))
    assert (answer.status, answer.code) == (500, "internal")


async def test_a_connection_that_fails_during_an_answer_is_closed_and_others_are_served(
    server: HotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    give = HotRequests._answer  # pyright: ignore[reportPrivateUsage]

    def odd(self: HotRequests, request: Request, caller: Any, result: Any) -> None:
        if b"x-odd" not in request.headers:
            give(self, request, caller, result)
        else:
            caller.respond(Answer(b"body"), b"id", [(b"content-length", b"not a number")])

    monkeypatch.setattr(HotRequests, "_answer", odd)
    with server.disk.hold("pwritev", "*/wal-*", times=1) as gate:
        one, other = await server.connect(), await server.connect()
        one.send(post("t", ONE, {"x-odd": "1"}))
        await asyncio.to_thread(gate.wait_held)
        other.send(post("t", ONE))
    assert (await other.answer()).status == 200
    await one.ended()


async def until_collecting(server: HotServer) -> None:
    """A request is in progress."""
    while not server.server.server_state.tasks:
        await asyncio.sleep(0.001)


async def until_idle(server: HotServer) -> None:
    while server.server.server_state.connections or server.server.server_state.tasks:
        await asyncio.sleep(0.001)
