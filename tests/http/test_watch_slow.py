"""Clients that do not read: others are not slowed down, memory is bounded, and every loss is announced."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import httpx
import pytest

from broker.api import events, push
from tests.http.calls import append
from tests.http.hot_server import HotServer, Wire
from tests.http.test_work_stream import PATIENCE_S
from tests.http.test_work_stream_h2 import Peer
from tests.http.watch_calls import session, soon, stream, watching

BYTES = 50_000
BIG = "x" * BYTES


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


async def sleeper(server: HotServer, http: httpx.AsyncClient, path: str) -> Wire:
    """A client that requests the stream and does not read."""
    wire = await server.connect()
    wire.transport.pause_reading()
    wire.send(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    await soon(lambda: len(server.broker.live.watchers) >= 1)
    return wire


async def until_full(server: HotServer, http: httpx.AsyncClient) -> int:
    """Write until the sleeper's connection accepts no more. Returns how many records that took."""
    live = server.broker.live
    written = 0
    pushed = -1
    while live.figures.pushed != pushed or written < 100:
        pushed = live.figures.pushed
        for _ in range(20):
            await append(http, "t", {"data": BIG})
            written += 1
    return written


async def test_a_watcher_that_does_not_read_does_not_delay_other_watchers(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await http.put("/v0/topics/t")
    await sleeper(server, http, await session(http, "t"))
    written = await until_full(server, http)
    async with watching(http, topics={"t": {}}) as watch:
        await watch.caught_up()
        for number in range(30):
            await append(http, "t", {"data": number})
            assert (await watch.next()).seqs == [written + number + 1]


async def test_buffers_of_a_watcher_that_does_not_read_are_bounded(server: HotServer, http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t")
    await sleeper(server, http, await session(http, "t"))
    await until_full(server, http)
    reads = server.broker.live.figures.reads
    for _ in range(100):
        await append(http, "t", {"data": BIG})
    [watcher] = server.broker.live.watchers
    assert watcher.subscriptions["t"].cohort is None  # it reads by itself when it can
    assert server.broker.live.figures.reads - reads <= 2
    held = [protocol.transport.get_write_buffer_size() for protocol in server.server.server_state.connections]  # type: ignore[union-attr]
    assert max(held) < 65_536 + 2 * 262_144 + 2 * BYTES


async def test_a_stalled_watcher_gets_all_missed_records_when_it_continues(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await http.put("/v0/topics/t")
    wire = await sleeper(server, http, await session(http, "t"))
    written = await until_full(server, http)
    wire.transport.resume_reading()
    got = b""
    async with asyncio.timeout(PATIENCE_S):
        while b'"$seq":%d,' % written not in got:
            got = got[-100:] + await wire._reader.read(1 << 20)  # pyright: ignore[reportPrivateUsage]


async def test_a_stalled_watcher_is_closed_as_slow_and_resumes_without_loss(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PATIENCE_S", 0.3)
    await http.put("/v0/topics/t")
    path = await session(http, "t")
    wire = await sleeper(server, http, path)
    written = await until_full(server, http)
    live = server.broker.live
    await soon(lambda: live.figures.slow_closed == 1)
    assert not live.watchers
    wire.transport.resume_reading()
    async with asyncio.timeout(PATIENCE_S):
        got = await wire._reader.read(-1)  # pyright: ignore[reportPrivateUsage]
    # The error is the last event, and the answer is complete.
    last = got.rpartition(b"event: error\ndata: ")[2].partition(b"\n\n")[0]
    assert json.loads(last)["reason"] == "slow_reader"
    assert got.endswith(b"\r\n0\r\n\r\n")
    seqs = [int(seq) for seq in re.findall(rb'"\$seq":(\d+),', got)]
    assert seqs == list(range(1, len(seqs) + 1))
    id = re.findall(rb"\nid: (\S+)\n", got)[-1].decode()
    async with stream(http, path, id) as watch:
        rest = [record["$seq"] for record in await watch.records(written - len(seqs))]
        assert seqs + rest == list(range(1, written + 1))


async def test_a_connection_without_a_reader_is_closed(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PATIENCE_S", 0.3)
    monkeypatch.setattr(push, "LINGER_S", 0.3)
    await http.put("/v0/topics/t")
    await sleeper(server, http, await session(http, "t"))
    await until_full(server, http)
    await http.aclose()
    await soon(lambda: not server.server.server_state.connections)


async def test_a_stalled_http2_watch_is_reset_alone_and_resumes_without_loss(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PATIENCE_S", 0.3)
    await http.put("/v0/topics/t")
    path = await session(http, "t")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    peer = Peer(reader, writer)
    peer.ask(server, path)
    listening = asyncio.create_task(peer.listen())
    await soon(lambda: b"caught-up" in peer.got)
    for _ in range(20):
        await append(http, "t", {"data": BIG})
    await soon(lambda: peer.ended)
    await soon(lambda: not server.broker.live.watchers)
    assert server.broker.live.figures.slow_closed == 1
    assert not listening.done()  # the connection exists
    ids = re.findall(rb"\nid: (\S+)\ndata: [^\n]*\n\n", peer.got)
    async with stream(http, path, ids[-1].decode()) as watch:
        whole = re.findall(rb'"\$seq":(\d+),[^\n]*\n\n', peer.got)
        rest = [record["$seq"] for record in await watch.records(20 - len(whole))]
        assert [int(seq) for seq in whole] + rest == list(range(1, 21))
    listening.cancel()
    writer.close()


async def test_a_closed_http2_window_delays_only_its_stream(server: HotServer, http: httpx.AsyncClient) -> None:
    await http.put("/v0/topics/t")
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    peer = Peer(reader, writer)
    peer.ask(server, await session(http, "t"))
    listening = asyncio.create_task(peer.listen())
    await soon(lambda: b"caught-up" in peer.got)
    for _ in range(20):
        await append(http, "t", {"data": BIG})
    await soon(lambda: len(peer.got) == 65_535)
    async with watching(http, topics={"t": {}}) as watch:
        await watch.caught_up()
        await append(http, "t", {"data": 1})
        assert (await watch.next()).seqs == [21]
    await soon(lambda: len(server.broker.live.watchers) == 1)
    [watcher] = server.broker.live.watchers
    assert watcher.subscriptions["t"].cohort is None
    peer.make_room()
    await soon(lambda: b'"$seq":21,' in peer.got)
    seqs = [int(seq) for seq in re.findall(rb'"\$seq":(\d+),', peer.got)]
    assert seqs == list(range(1, 22))
    listening.cancel()
    writer.close()
