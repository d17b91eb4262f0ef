"""Lost wake-ups: a wait never misses a concurrent write. Long polls, event streams and WebSockets.

In each round the wait begins at another moment of the write: before it, during it, after it.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from os import environ

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.conftest import is_soak
from tests.http.calls import append
from tests.http.hot_server import HotServer
from tests.http.test_work_stream import PATIENCE_S
from tests.http.watch_calls import Watch, session, stream

ROUNDS = 10_000 if is_soak(environ) else 300
#: Much shorter than any heartbeat or wait: a reader that was not woken would exceed it.
MOST_S = 10.0


@pytest.fixture
async def server() -> AsyncIterator[HotServer]:
    async with HotServer() as server:
        yield server


@pytest.fixture
async def http(server: HotServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def dice() -> random.Random:
    """A random source with the seed of the run, which pytest prints."""
    return random.Random(random.getrandbits(64))


async def steps(dice: random.Random) -> None:
    """Let the loop run a few times."""
    for _ in range(dice.randrange(12)):
        await asyncio.sleep(0)


@pytest.mark.timeout(900)
async def test_no_long_poll_misses_a_write(http: httpx.AsyncClient, dice: random.Random) -> None:
    await append(http, "t", {"data": 0})

    async def write() -> None:
        await steps(dice)
        await append(http, "t", {"data": 1})

    async def wait(seq: int) -> None:
        await steps(dice)
        answer = await http.post("/v0/topics/t/diff", json={"from_seq": seq, "wait_ms": 15_000})
        assert [record["$seq"] for record in answer.json()["records"]] == [seq + 1]

    for seq in range(1, ROUNDS + 1):
        async with asyncio.timeout(MOST_S):
            await asyncio.gather(write(), wait(seq))


@pytest.mark.timeout(900)
async def test_no_stream_misses_a_write(server: HotServer, http: httpx.AsyncClient, dice: random.Random) -> None:
    """Neither an open stream nor one that is being opened misses a write."""
    server.broker.live.sessions.max = 0
    await append(http, "t", {"data": 0})
    path = await session(http, topics={"t": {}}, heartbeat_ms=60_000)

    async def write() -> None:
        await steps(dice)
        await append(http, "t", {"data": 1})

    async def opened(seq: int) -> None:
        await steps(dice)
        fresh = await session(http, topics={"t": {"from_seq": seq}}, heartbeat_ms=60_000)
        async with stream(http, fresh) as watch:
            await record(watch, seq + 1)

    async def record(watch: Watch, seq: int) -> None:
        assert [each["$seq"] for each in await watch.records(1)] == [seq]

    async with stream(http, path) as watch:
        for seq in range(1, ROUNDS + 1):
            async with asyncio.timeout(MOST_S):
                await asyncio.gather(write(), record(watch, seq + 1), opened(seq))


@pytest.mark.timeout(900)
async def test_no_websocket_misses_a_write(server: HotServer, http: httpx.AsyncClient, dice: random.Random) -> None:
    """Written by others and by itself, while it subscribes again and while it does not."""
    await append(http, "t", {"data": 0})
    async with connect(server.server.url.replace("http", "ws", 1) + "/v0/ws") as ws:
        await ws.send(json.dumps({"type": "subscribe", "topic": "t"}))

        async def write() -> None:
            await steps(dice)
            if dice.random() < 0.5:
                await append(http, "t", {"data": 1})
            else:
                await ws.send(json.dumps({"type": "publish", "topic": "t", "records": [{"data": 1}]}))

        async def again(seq: int) -> None:
            await steps(dice)
            if dice.random() < 0.5:
                await ws.send(json.dumps({"type": "subscribe", "topic": "t", "from_seq": seq}))

        async def record(seq: int) -> None:
            while True:
                message = json.loads(await ws.recv())
                assert message["type"] != "error", message
                if any(each["$seq"] == seq for each in message.get("records", ())):
                    return

        for seq in range(1, ROUNDS + 1):
            async with asyncio.timeout(MOST_S):
                await asyncio.gather(write(), again(seq), record(seq + 1))
