"""A client that closed its side right after its request (`nc -N`, shutdown(SHUT_WR)) got no answer, although its write
was done. A request that waits or grants something still treats the end of the client's side as its leaving, because it
may be just that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import h2.events
import pytest

from storage import Durability, TopicConfig, TopicType
from tests.http.hot_server import ASGI, HotServer, Reply, Wire, post, records
from tests.http.test_slow_clients import Http2Client
from tests.http.watch_calls import soon

SERVERS = ["zttp", "httptools"]


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest) -> AsyncIterator[HotServer]:
    async with HotServer(http=request.param) as server:
        await server.topic("t")
        await server.topic("q", TopicConfig(type=TopicType.QUEUE))
        yield server


async def half_closed(server: HotServer, *requests: bytes) -> Wire:
    wire = await server.connect()
    wire.send(*requests)
    wire.writer.write_eof()
    return wire


async def only_answer(wire: Wire) -> Reply:
    answer = await wire.answer()
    await wire.ended()
    return answer


@pytest.mark.parametrize("kind", [{}, ASGI])
async def test_a_write_is_answered_and_the_connection_ends(server: HotServer, kind: dict[str, str]) -> None:
    assert (await only_answer(await half_closed(server, post("t", records(1), kind)))).body["first_seq"] == 1


async def test_a_write_with_a_known_head_is_answered_to_a_half_closed_client(server: HotServer) -> None:
    wire = await server.connect()
    for _ in range(2):
        wire.send(post("t", records(1)))
        await wire.answer()
    wire.send(post("t", records(1)))
    wire.writer.write_eof()
    assert (await only_answer(wire)).body["first_seq"] == 3


@pytest.mark.parametrize("kinds", [({}, {}, {}), (ASGI, {}, ASGI), ({}, ASGI, {})])
async def test_all_requests_of_a_half_closed_client_are_answered_in_order(
    server: HotServer, kinds: tuple[dict[str, str]]
) -> None:
    wire = await half_closed(server, *[post("t", records(1), kind) for kind in kinds])
    assert [(await wire.answer()).body["first_seq"] for _ in kinds] == [1, 2, 3]
    await wire.ended()


async def test_large_answers_arrive_whole(server: HotServer) -> None:
    await server.ask(post("t", records(*["x" * 100_000] * 20)))
    answer = await only_answer(await half_closed(server, post("t/diff", {"max_batch_bytes": 8 << 20}, ASGI)))
    assert len(answer.body["records"]) == 20


async def test_an_incomplete_request_of_a_half_closed_client_is_not_done(server: HotServer) -> None:
    whole = post("t", records(1))
    for part in (whole[:-1], whole[:20]):
        await (await half_closed(server, part)).ended()
    wire = await half_closed(server, whole, whole[:-1])
    assert (await only_answer(wire)).body["first_seq"] == 1
    assert server.engine.state("t").head_seq == 1


async def test_waiting_reads_claims_and_streams_of_a_half_closed_client_end(server: HotServer) -> None:
    await (await half_closed(server, post("t/diff", {"wait_ms": 25_000}))).ended()
    await (await half_closed(server, post("q/claim", {"node": "n", "wait_ms": 25_000}))).ended()
    wire = await half_closed(server, b"GET /v0/topics/q/work?node=n HTTP/1.1\r\nhost: localhost\r\n\r\n")
    async with asyncio.timeout(20):
        while await wire.read():
            pass
    await soon(lambda: not server.broker.parking.parked and not server.broker.streams.parked)


@pytest.mark.parametrize("kind", [{}, ASGI])
async def test_a_claim_of_a_half_closed_client_leases_no_job(server: HotServer, kind: dict[str, str]) -> None:
    await server.topic("d", TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC, leases_durable=True))
    await server.ask(post("d", records(1)))
    wire = await server.connect()
    with server.disk.hold("datasync", "*/wal-*", times=1) as gate:
        wire.send(post("d/claim", {"node": "n"}, kind))
        await asyncio.to_thread(gate.wait_held)
        wire.writer.write_eof()
        await soon(
            lambda: any(getattr(each, "_client_ended", False) for each in server.server.server_state.connections)
        )
    async with asyncio.timeout(20):
        while await wire.read():
            pass
    await soon(lambda: server.engine.queues.figures("d").ready == 1)
    assert server.counted("topics_http_clients_gone") == {("/v0/topics/{topic}/claim",): 1}


class HalfClosedClient(Http2Client):
    """Sends nothing after it has ended its side."""

    ended = False

    def flush(self) -> None:
        if not self.ended:
            super().flush()


async def test_over_http2_every_stream_is_answered() -> None:
    async with HotServer() as server:
        await server.topic("t")
        two = HalfClosedClient(await server.connect())
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", "localhost")]
        streams: list[int] = []
        for _ in range(3):
            streams.append(two.http.get_next_available_stream_id())
            two.http.send_headers(streams[-1], [*fields, (":path", "/v0/topics/t")], end_stream=True)
        waiting = two.http.get_next_available_stream_id()
        two.http.send_headers(waiting, [*fields, (":path", "/v0/topics/t/records?wait_ms=25000")], end_stream=True)
        two.flush()
        two.ended = True
        two.wire.writer.write_eof()
        for stream in streams:
            answer = await two.until(h2.events.ResponseReceived, stream)
            assert (b":status", b"200") in answer.headers
        async with asyncio.timeout(20):
            while await two.wire.read():
                pass
