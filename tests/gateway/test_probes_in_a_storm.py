"""Health is answered by the gateway while many clients send at once: probes come first, and each round of the event
loop begins only some of the other requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from broker.gateway import HotForwards
from broker.net.arrivals import FIRST_COST, NEXT_COST
from broker.scheduling import ROUND
from tests.http.hot_server import Wire, post, records
from tests.support.cells_in_process import CellsInProcess, cells, client_of
from tests.support.unread import get

CLIENTS = 200
LATER_CLIENTS = 600
#: The most begun in one round, and those that the round before allowed in the same pass of the loop.
ROUNDS = 2


class _Rounds:
    """Counts rounds of the loop, and the writes that the gateway began in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._round = 0
        self.begun: dict[int, int] = {}
        take = HotForwards.take

        def counted(hot: HotForwards, request: Any, *given: Any) -> None:
            if request.target.operation.method == "POST":
                self.begun[self._round] = self.begun.get(self._round, 0) + 1
            take(hot, request, *given)

        monkeypatch.setattr(HotForwards, "take", counted)
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self._round += 1
        self._loop.call_soon(self._count)

    @property
    def total(self) -> int:
        return sum(self.begun.values())


@contextlib.asynccontextmanager
async def _wires(made: CellsInProcess, number: int) -> AsyncGenerator[list[Wire]]:
    wires = [Wire(*await asyncio.open_connection("127.0.0.1", made.port)) for _ in range(number)]
    try:
        yield wires
    finally:
        for wire in wires:
            await wire.close()


async def _storm(wires: list[Wire], probe: Wire, write: bytes, rounds: _Rounds) -> int:
    """How many writes had begun before the probe was answered. The probe was sent after all of them."""
    for wire in wires:
        wire.send(write)
    probe.send(get("/v0/health"))
    answer = await probe.answer()
    begun = rounds.total
    assert (answer.status, answer.body["set_id"]) == (200, "set-1")
    for wire in wires:
        assert (await wire.answer()).status == 200
    return begun


async def test_a_probe_passes_the_first_requests_of_many_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cells(tmp_path, 1) as made, client_of(made) as client, _wires(made, CLIENTS + 1) as (probe, *wires):
        await client.put(f"/v0/topics/{made.topic(0)}", json={})
        rounds = _Rounds(monkeypatch)
        before = await _storm(wires, probe, post(made.topic(0), records(1)), rounds)
        assert rounds.total == CLIENTS
    assert before < CLIENTS / 2
    assert max(rounds.begun.values()) <= ROUNDS * ROUND / FIRST_COST


async def test_a_probe_passes_later_requests_of_many_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cells(tmp_path, 1) as made, client_of(made) as client, _wires(made, LATER_CLIENTS + 1) as wires:
        await client.put(f"/v0/topics/{made.topic(0)}", json={})
        write = post(made.topic(0), records(1))
        for wire in wires:
            wire.send(write)
            assert (await wire.answer()).status == 200
        rounds = _Rounds(monkeypatch)
        before = await _storm(wires[1:], wires[0], write, rounds)
        assert rounds.total == LATER_CLIENTS
    assert before < LATER_CLIENTS / 2
    assert max(rounds.begun.values()) <= ROUNDS * ROUND / NEXT_COST


async def test_a_probe_is_answered_while_no_cell_answers(tmp_path: Path) -> None:
    async with cells(tmp_path, 1) as made, _wires(made, CLIENTS + 1) as (probe, *wires):
        held = asyncio.Event()

        async def hold(*given: Any) -> Any:
            await held.wait()
            raise OSError("the cell is away")

        made.gateway.upstreams[0].link = hold
        for wire in wires:
            wire.send(post("t", records(1)))
        for _ in range(3):
            probe.send(get("/v0/health"))
            assert (await probe.answer()).status == 200
        held.set()
