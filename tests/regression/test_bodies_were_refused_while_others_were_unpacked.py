"""While a few large bodies used all the memory, small bodies were refused at once, and a repeated request queued behind
newer ones. Now they wait in line.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random

import pytest

from broker.memory import bodies, memory
from broker.memory.memory import SMALL
from tests.http.hot_server import HotServer, post

BUDGET = 8 << 20
DATA = random.Random(1).randbytes(3 * SMALL).hex()
BODY = json.dumps({"records": [{"data": DATA}]}).encode()
PACKED = gzip.compress(BODY)
PATIENCE_S = 20


def _sent(body: bytes, **headers: str) -> tuple[bytes, bytes]:
    """Sent in two pieces: its memory is counted as it arrives."""
    request = post("t", body, headers)
    return request[:-SMALL], request[-SMALL:]


async def _until_waiting(server: HotServer, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while server.broker.memory.bodies.waiting < count:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_a_body_waits_while_other_bodies_hold_all_memory(coding: str) -> None:
    async with HotServer(max_body_memory_bytes=BUDGET) as server:
        await server.topic("t")
        budget = server.broker.memory.bodies
        others = budget.hold(object(), BUDGET)
        wires = [await server.connect() for _ in range(3)]
        for count, wire in enumerate(wires, 1):
            # Parameters in the content type make the request take the other path, which reads bodies as a whole.
            kind = "application/json; charset=utf-8"
            for piece in _sent(
                PACKED if coding == "gzip" else BODY, **{"content-encoding": coding, "content-type": kind}
            ):
                wire.send(piece)
                await asyncio.sleep(0.01)
            await _until_waiting(server, count)
        others.release()
        for wire in wires:
            assert (await wire.answer()).status == 200
        assert server.engine.topic("t").log.head == 3
        assert budget.held == budget.refused_total == 0


async def test_a_body_that_waits_beyond_its_patience_is_refused_as_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BODY_PATIENCE_S", 0.05)
    async with HotServer(max_body_memory_bytes=BUDGET) as server:
        await server.topic("t")
        budget = server.broker.memory.bodies
        others = budget.hold(object(), BUDGET)
        wire = await server.connect()
        wire.send(*_sent(PACKED, **{"content-encoding": "gzip"}))
        reply = await wire.answer()
        assert (reply.status, reply.code, reply.header("retry-after")) == (503, "overloaded", ["1"])
        others.release()
        assert budget.held == 0
        assert budget.refused_total == 1


@pytest.mark.parametrize("limit", ["WAITS_BYTES", "MAX_WAITING_TO_GROW"])
async def test_a_body_over_a_waiting_limit_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(bodies, limit, 0 if limit == "MAX_WAITING_TO_GROW" else -1)
    async with HotServer(max_body_memory_bytes=BUDGET) as server:
        await server.topic("t")
        others = server.broker.memory.bodies.hold(object(), BUDGET)
        wire = await server.connect()
        first, second = _sent(PACKED, **{"content-encoding": "gzip"})
        wire.send(first)
        await asyncio.sleep(0.01)
        wire.send(second)
        assert (await wire.answer()).status == 503
        others.release()
