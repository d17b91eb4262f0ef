"""Large work was done in slices, but each request had its own. With fifty requests the event loop worked on a slice of
each before other work. Now all requests share one pace. Scrapes and the receipts of REST v3 had no slices."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from broker.api.routes import metrics as scraping
from broker.content.slices import EACH_BYTES, ROUNDS, SLICE_BYTES, Slices, yield_to_loop
from broker.proxy import v3_records
from broker.telemetry import http_metrics as metrics
from tests.http.hot_server import HotServer
from tests.support.unread import get

CLIENTS = 10
RECORDS = 3000
#: The items of one slice.
ITEMS = SLICE_BYTES // EACH_BYTES


class RoundCounter:
    """Counts rounds of the loop, and how much work is done in each."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.now = 0
        self.done: dict[int, int] = {}
        self._loop.call_soon(self._count)

    def _count(self) -> None:
        self.now += 1
        self._loop.call_soon(self._count)

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with each call counted."""

        def counting(*arguments: Any, **more: Any) -> Any:
            self.done[self.now] = self.done.get(self.now, 0) + 1
            return function(*arguments, **more)

        return counting


async def test_concurrent_waiters_get_a_slice_in_a_fixed_number_of_rounds() -> None:
    rounds = RoundCounter()
    work = rounds.counted(lambda: None)

    async def client() -> None:
        for _ in range(5):
            await yield_to_loop()
            work()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert sum(rounds.done.values()) == 5 * CLIENTS
    worked = sorted(rounds.done)
    assert all(later - before >= ROUNDS - 1 for before, later in itertools.pairwise(worked))


async def test_only_the_first_of_concurrent_clients_begins_without_a_wait() -> None:
    rounds = RoundCounter()
    work = rounds.counted(lambda: None)

    async def client() -> None:
        slices = Slices()
        for _ in range(ITEMS + 1):
            await slices.done(0)
            work()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    assert sum(rounds.done.values()) == CLIENTS * (ITEMS + 1)
    assert max(rounds.done.values()) <= 2 * ITEMS


async def test_a_cancelled_waiter_for_a_slice_does_not_delay_other_waiters() -> None:
    tasks = [asyncio.ensure_future(yield_to_loop()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    async with asyncio.timeout(20):
        await tasks[2]


@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_small_records_of_v3_are_taken_and_answered_in_slices(
    monkeypatch: pytest.MonkeyPatch, coding: str
) -> None:
    rounds = RoundCounter()
    monkeypatch.setattr(v3_records, "entry_of", rounds.counted(v3_records.entry_of))
    monkeypatch.setattr(v3_records, "receipt", rounds.counted(v3_records.receipt))
    body = b'{"value":{"type":"BINARY","data":"QQ=="}}' * RECORDS
    body = gzip.compress(body) if coding else body
    async with HotServer() as server:
        await server.topic("t")
        clusters: Any = (await server.ask(get("/v3/clusters"))).body
        path = f"/v3/clusters/{clusters['data'][0]['cluster_id']}/topics/t/records"
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nconnection: close\r\n"
        head += f"content-encoding: {coding}\r\n\r\n" if coding else "\r\n"
        wires = [await server.connect() for _ in range(3)]
        for wire in wires:
            wire.send(head.encode(), body)
        receipts = 0
        for wire in wires:
            async with asyncio.timeout(60):
                while got := await wire.read():
                    receipts += got.count(b'"error_code":200')
        assert server.engine.topic("t").log.head == 3 * RECORDS
    assert receipts > 0
    assert sum(rounds.done.values()) == 2 * 3 * RECORDS
    assert max(rounds.done.values()) <= 2 * ITEMS


@pytest.mark.parametrize("accept", ["text/plain", "application/json"])
async def test_scrapes_are_made_one_at_a_time_and_in_slices(monkeypatch: pytest.MonkeyPatch, accept: str) -> None:
    rounds = RoundCounter()
    begun = most = 0
    families = scraping.families
    rendered = {"as_text": scraping.as_text, "as_json": scraping.as_json}

    def begins(broker: Any) -> Any:
        nonlocal begun, most
        begun += 1
        most = max(most, begun)
        return families(broker)

    def ended(name: str) -> Callable[..., Any]:
        async def render(found: Any) -> bytes:
            nonlocal begun
            text = await rendered[name](found)
            begun -= 1
            return text

        return render

    monkeypatch.setattr(scraping, "families", begins)
    for name in rendered:
        monkeypatch.setattr(scraping, name, ended(name))
    monkeypatch.setattr(metrics, "_numbers", rounds.counted(metrics._numbers))  # pyright: ignore[reportPrivateUsage]
    async with HotServer() as server:
        for number in range(100):
            await server.topic(f"t-{number}")
        wires = [await server.connect() for _ in range(CLIENTS)]
        for wire in wires:
            wire.send(f"GET /v0/metrics HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n".encode())
        for wire in wires:
            assert (await wire.answer()).status == 200
    assert most == 1
    assert begun == 0
    assert sum(rounds.done.values()) > CLIENTS * 400
    assert max(rounds.done.values()) <= 2 * ITEMS
