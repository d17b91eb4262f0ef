"""A thousand simultaneous requests were all begun in one round of the event loop. Now each round begins some, probes
first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.api.hot import HotRequests
from broker.api.request import Request
from broker.net.arrivals import FIRST_COST, NEXT_COST
from broker.scheduling import ROUND
from tests.http.hot_server import HotServer, Wire, post, records
from tests.support.unread import get

CLIENTS = 200
#: More requests than one round begins; a probe takes several rounds.
LATER_CLIENTS = 600
WRITE = post("t", records(1))
#: The most begun in one round, and those that the round before allowed in the same pass of the loop.
ROUNDS = 2


class RoundCounter:
    """Counts rounds of the loop, and how many requests of this method were begun in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str = "POST") -> None:
        self._loop = asyncio.get_running_loop()
        self._round = 0
        self.begun: dict[int, int] = {}
        #: How many had begun before the first request of another method.
        self.before_another: int | None = None
        take = HotRequests.take

        def counted(hot: HotRequests, request: Request, *arguments: Any) -> None:
            assert request.operation is not None
            if request.operation.method == method:
                self.begun[self._round] = self.begun.get(self._round, 0) + 1
            elif self.before_another is None:
                self.before_another = self.total
            take(hot, request, *arguments)

        monkeypatch.setattr(HotRequests, "take", counted)
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self._round += 1
        self._loop.call_soon(self._count)

    @property
    def total(self) -> int:
        return sum(self.begun.values())


async def _burst(wires: list[Wire], probe: Wire, rounds: RoundCounter) -> int:
    """How many writes had begun before the probe was answered. The probe was sent after all of them."""
    for wire in wires:
        wire.send(WRITE)
    probe.send(get("/v0/health"))
    assert (await probe.answer()).status == 200
    begun = rounds.total
    for wire in wires:
        assert (await wire.answer()).status == 200
    return begun


async def test_first_requests_of_many_connections_begin_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with HotServer() as server:
        await server.topic("t")
        probe = await server.connect()
        wires = [await server.connect() for _ in range(CLIENTS)]
        rounds = RoundCounter(monkeypatch)
        before = await _burst(wires, probe, rounds)
        assert server.engine.topic("t").log.head == rounds.total == CLIENTS
    assert before < CLIENTS / 2
    assert max(rounds.begun.values()) <= ROUNDS * ROUND / FIRST_COST


async def test_later_requests_of_many_connections_begin_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async with HotServer() as server:
        await server.topic("t")
        probe, *wires = [await server.connect() for _ in range(LATER_CLIENTS + 1)]
        for wire in (probe, *wires):
            wire.send(WRITE)
            assert (await wire.answer()).status == 200
        rounds = RoundCounter(monkeypatch)
        before = await _burst(wires, probe, rounds)
        assert rounds.total == LATER_CLIENTS
    assert before < LATER_CLIENTS / 2
    assert max(rounds.begun.values()) <= ROUNDS * ROUND / NEXT_COST


async def test_concurrent_probes_begin_over_several_rounds_and_delay_no_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with HotServer() as server:
        await server.topic("t")
        writer = await server.connect()
        wires = [await server.connect() for _ in range(CLIENTS)]
        rounds = RoundCounter(monkeypatch, "GET")
        for wire in wires:
            wire.send(get("/v0/health"))
        writer.send(WRITE)
        assert (await writer.answer()).status == 200
        for wire in wires:
            assert (await wire.answer()).body["status"] == "ok"
        assert rounds.total == CLIENTS
    assert rounds.before_another is not None
    assert rounds.before_another < CLIENTS / 2
    assert max(rounds.begun.values()) <= ROUNDS * ROUND / FIRST_COST


@pytest.mark.parametrize("http", ["zttp", "httptools"])
async def test_a_waiting_request_is_answered_to_a_half_closed_client(http: str) -> None:
    async with HotServer(http=http) as server:
        await server.topic("t")
        wires = [await server.connect() for _ in range(CLIENTS)]
        for wire in wires:
            wire.send(WRITE)
            wire.writer.write_eof()
        for wire in wires:
            assert (await wire.answer()).status == 200
        assert server.engine.topic("t").log.head == CLIENTS


@pytest.mark.parametrize("http", ["zttp", "httptools"])
async def test_requests_after_a_waiting_request_keep_their_order(http: str) -> None:
    async with HotServer(http=http) as server:
        await server.topic("t")
        wires = [await server.connect() for _ in range(CLIENTS)]
        for wire in wires:
            wire.send(WRITE, get("/v0/health"))
            wire.send(get("/v0/nothing"), WRITE[:20])
        for wire in wires:
            wire.send(WRITE[20:])
        for wire in wires:
            assert [(await wire.answer()).status for _ in range(4)] == [200, 200, 404, 200]
        assert server.engine.topic("t").log.head == 2 * CLIENTS


@pytest.mark.parametrize("http", ["zttp", "httptools"])
async def test_waiting_requests_are_answered_at_shutdown(http: str) -> None:
    async with HotServer(http=http) as server:
        await server.topic("t")
        wires = [await server.connect() for _ in range(CLIENTS)]
        for wire in wires:
            wire.send(WRITE)
        protocol: Any = server.server.config.http_protocol_class
        async with asyncio.timeout(20):
            while not protocol.arrivals.requests.waiting:
                await asyncio.sleep(0)
        for connection in list(server.server.server_state.connections):
            connection.shutdown()
        for wire in wires:
            assert (await wire.answer()).status == 200
            await wire.ended()
