"""A damaged record in a watched topic: what is in front of it is given, it itself never, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from storage.wal.position import split
from tests.http.calls import append
from tests.http.hot_server import HotServer
from tests.http.test_websocket import socket
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import session, soon, stream, watching
from tests.unit.storage.machine import DATA, WAL, options

Damage = Callable[[HotServer, int], None]


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer(limits=options(tail_cache_bytes=0)) as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


async def written(server: HotServer, http: httpx.AsyncClient, count: int = 10) -> None:
    for number in range(1, count + 1):
        await append(http, "t", {"data": f"number {number}"})


def damage_log(server: HotServer, seq: int) -> None:
    """Flip a bit in the data of this record, in the log."""
    (span,) = server.engine.topic("t").log.tail.spans(seq, seq + 1)
    file, offset = split(span.place)
    flip(server, f"{WAL}/wal-{file:016d}.log", b"number %d" % seq, offset + span.offset)


def damage_segment(server: HotServer, seq: int) -> None:
    """The same where it lies in a segment."""
    [path] = [path for path in server.disk.content() if path.startswith(f"{DATA}/topics/") and path.endswith(".data")]
    flip(server, path, b"number %d" % seq, 0)


def flip(server: HotServer, path: str, text: bytes, begin: int) -> None:
    server.disk.flip_byte(path, server.disk.content()[path].index(text, begin) + 2, 1)


@pytest.fixture(params=["log", "segment"])
def damage(request: pytest.FixtureRequest) -> Damage:
    return damage_log if request.param == "log" else damage_segment


async def damaged(server: HotServer, http: httpx.AsyncClient, damage: Damage, *seqs: int) -> None:
    """Ten records, of which these are damaged."""
    await written(server, http)
    if damage is damage_segment:
        await server.engine.upkeep.absorb_all()
    for seq in seqs:
        damage(server, seq)


def data_of(records: list[dict[str, Any]]) -> list[str]:
    return [record["data"] for record in records]


def numbers(*seqs: int) -> list[str]:
    return [f"number {seq}" for seq in seqs]


async def test_a_stream_gives_what_is_in_front_and_ends_with_an_error(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 4)
    path = await session(http, "t")
    async with stream(http, path) as watch:
        record, error = await watch.next(), await watch.next()
        assert (record.name, record.data["to_seq"]) == ("record", 3)
        assert data_of(record.data["records"]) == numbers(1, 2, 3)
        assert (error.name, error.id, error.data["code"], error.data["reason"]) == (
            "error",
            None,
            500,
            "segment_corrupt",
        )
        assert (error.data["detail"]["topic"], error.data["detail"]["seq"]) == ("t", 4)
        with pytest.raises(StopAsyncIteration):
            await watch.next()
    async with stream(http, path, record.id) as watch:  # it is not passed over by coming back
        assert (await watch.next()).data["reason"] == "segment_corrupt"
    async with watching(http, topics={"t": {"from_seq": 4}}) as watch:
        assert data_of(await watch.records(6)) == numbers(5, 6, 7, 8, 9, 10)


async def test_a_websocket_does_the_same(server: HotServer, http: httpx.AsyncClient, damage: Damage) -> None:
    await damaged(server, http, damage, 4)
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t", from_seq=0)
        assert data_of((await ws.next())["records"]) == numbers(1, 2, 3)
        error = await ws.next()
        assert (error["type"], error["code"]) == ("error", "segment_corrupt")
        assert (error["detail"]["topic"], error["detail"]["seq"]) == ("t", 4)
        assert await ws.closed() == 1011


async def test_skip_corrupt_goes_on_behind_it_and_says_what_it_has_passed(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 1, 4, 10)
    async with watching(http, "t", skip_corrupt=True) as watch:
        record, caught_up = await watch.next(), await watch.next()
    assert data_of(record.data["records"]) == numbers(2, 3, 5, 6, 7, 8, 9)
    assert (record.data["corrupt_seqs"], record.data["to_seq"]) == ([1, 4, 10], 10)
    assert (caught_up.name, caught_up.cursor["t"]["seq"]) == ("caught-up", 10)
    async with socket(server) as ws:
        await ws.ask("subscribe", topic="t", from_seq=8, skip_corrupt=True)
        record = await ws.next()
        assert (data_of(record["records"]), record["corrupt_seqs"]) == (numbers(9), [10])
        assert (await ws.next())["type"] == "caught_up"


async def test_what_is_passed_is_told_where_nothing_else_is(
    server: HotServer, http: httpx.AsyncClient, damage: Damage
) -> None:
    await damaged(server, http, damage, 9, 10)
    async with watching(http, topics={"t": {"from_seq": 8}}, skip_corrupt=True) as watch:
        record = await watch.next()
        assert (record.data["records"], record.data["corrupt_seqs"]) == ([], [9, 10])
        assert (await watch.next()).name == "caught-up"
        await append(http, "t", {"data": "number 11"})
        event = await watch.next()
        assert (event.seqs, "corrupt_seqs" in event.data) == ([11], False)


async def test_at_the_head_each_of_those_who_watch_is_told(
    server: HotServer, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged between its commit and the read that is made for all of them."""
    await written(server, http, 1)
    path, passing = await session(http, "t"), await session(http, "t", skip_corrupt=True)
    async with stream(http, path) as one, stream(http, path) as other, stream(http, passing) as third:
        for watch in (one, other, third):
            await watch.caught_up()
        turns = server.broker.live.turns
        real, hold = turns.take, asyncio.Event()

        async def take_late(cost: int, priority: Callable[[], int]) -> None:
            await hold.wait()
            await real(cost, priority)

        monkeypatch.setattr(turns, "take", take_late)
        await append(http, "t", {"data": "number 2"}, {"data": "number 3"})
        damage_log(server, 3)
        hold.set()
        for watch in (one, other):
            assert data_of(await watch.records(1)) == numbers(2)
            error = await watch.next()
            assert (error.name, error.data["detail"]["seq"]) == ("error", 3)
        event = await third.next()
        assert (event.seqs, event.data["corrupt_seqs"]) == ([2], [3])
    await soon(lambda: not server.broker.live.watchers)


async def test_where_a_whole_segment_cannot_be_read_the_stream_ends_with_an_error(
    server: HotServer, http: httpx.AsyncClient
) -> None:
    await damaged(server, http, damage_segment)
    [path] = [path for path in server.disk.content() if path.endswith(".idx")]
    server.disk.flip_byte(path, 0)
    async with watching(http, "t") as watch:
        event = await watch.next()
        while event.name == "record":  # what of it was kept in memory
            event = await watch.next()
        assert (event.name, event.data["reason"]) == ("error", "segment_corrupt")
