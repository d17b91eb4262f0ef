"""The order of deliveries when there are more records than time. Every watcher gets all its records.

Time stands still unless a test moves it. Watchers accept everything, so the order depends only on their turns. Each
record is a turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from broker.live.cursor import Position
from broker.live.feed import SLICE
from broker.live.frames import Event, Kind
from broker.live.watch_options import Options
from broker.live.watcher import Watcher
from broker.scheduling.deliveries import AGEING_MS, WEIGHTS
from broker.settings import Settings
from broker.wiring import Broker
from tests.http.calls import append, state
from tests.http.conftest import client_of
from tests.unit.storage.machine import Machine

ONE_BY_ONE = Options(limit=1, max_batch_bytes=1 << 20)
#: Records in each topic: so many that turns are short all the time.
WATCHERS = 24
RECORDS = 40
BANDS = {"lowest": -1, "low": 0, "high": 50, "highest": 500}


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with Machine() as machine:
        yield machine


@pytest.fixture
async def broker(machine: Machine) -> Broker:
    return Broker(await machine.start(), Settings(data_dir=Path("unused")))


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(broker) as http:
        yield http


class Deliveries:
    """The topics of all records that were delivered, in that order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.seqs: dict[object, list[int]] = {}

    def note(self, watcher: Watcher[bytes], event: Event) -> bytes:
        if event.kind is Kind.RECORD:
            [name] = watcher.delivered
            self.order.append(name)
            self.seqs.setdefault(watcher, []).append(event.position.seq)
        return b""

    async def all(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.order) < count:
                await asyncio.sleep(0)


@asynccontextmanager
async def watched(broker: Broker, *topics: str, from_seq: int, watchers: int = WATCHERS) -> AsyncIterator[Deliveries]:
    """Watchers of each of these topics, which begin after this seq."""
    deliveries = Deliveries()
    all: list[Watcher[bytes]] = []
    tasks: list[asyncio.Task[None]] = []
    for _ in range(watchers):
        for name in topics:
            watcher: Watcher[bytes] = Watcher(
                broker.live, encode=deliveries.note, failure=lambda error, _: error.code.encode(), positions={}
            )
            watcher.attach(lambda _: True)
            broker.live.enter(watcher)
            watcher.watch(name, ONE_BY_ONE, Position(broker.engine.topic(name).log.epoch, from_seq))
            all.append(watcher)
            tasks.append(asyncio.create_task(drain(watcher)))
    yield deliveries
    for watcher in all:
        broker.live.exit(watcher)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def drain(watcher: Watcher[bytes]) -> None:
    async for _ in watcher.pieces():
        pass


async def fill(http: httpx.AsyncClient, *topics: str, records: int = RECORDS) -> None:
    for name in topics:
        await append(http, name, *({"data": n} for n in range(records)))


async def put_bands(http: httpx.AsyncClient) -> None:
    for name, priority in BANDS.items():
        await http.put(f"/v0/topics/{name}", json={"priority": priority})
        assert (await state(http, name))["effective_priority"] == priority


def shares(order: list[str]) -> dict[str, float]:
    counted = Counter(order)
    return {name: counted[name] / len(order) for name in BANDS}


def by_weight(order: list[str]) -> None:
    """These turns have the proportions of the weights while everybody always has something to send."""
    for (name, share), weight in zip(shares(order).items(), WEIGHTS, strict=True):
        assert share == pytest.approx(weight / sum(WEIGHTS), abs=0.03), name


async def test_a_backlog_is_delivered_by_weight_and_no_topic_starves(broker: Broker, http: httpx.AsyncClient) -> None:
    await put_bands(http)
    await fill(http, *BANDS)
    async with watched(broker, *BANDS, from_seq=0) as deliveries:
        each = WATCHERS * RECORDS
        await deliveries.all(len(BANDS) * each)
    order = deliveries.order
    by_weight(order[: order.index("highest") + each])  # while all have something left
    ends = {name: len(order) - order[::-1].index(name) for name in BANDS}
    assert sorted(ends, key=ends.__getitem__) == ["highest", "high", "low", "lowest"]
    # While others are busy, nobody waits longer than a few rounds.
    turns = [index for index, name in enumerate(order) if name == "lowest"]
    assert max(later - earlier for earlier, later in pairwise(turns)) <= 2 * sum(WEIGHTS)
    assert all(seqs == list(range(1, RECORDS + 1)) for seqs in deliveries.seqs.values())


async def test_a_changed_priority_applies_from_then_on(broker: Broker, http: httpx.AsyncClient) -> None:
    await put_bands(http)
    await fill(http, *BANDS)
    await http.put("/v0/topics/lowest", json={"priority": 1000})
    await http.put("/v0/topics/highest", json={"priority": -1000})
    assert (await state(http, "lowest"))["effective_priority"] == 1000
    async with watched(broker, *BANDS, from_seq=0) as deliveries:
        await deliveries.all(len(BANDS) * WATCHERS * RECORDS)
    found = shares(deliveries.order[: WATCHERS * RECORDS])
    assert sorted(found, key=found.__getitem__) == ["highest", "low", "high", "lowest"]


async def test_long_waiting_deliveries_gain_weight(
    broker: Broker, machine: Machine, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a busy machine: each look at the clock sees a slightly later time."""
    await put_bands(http)
    await fill(http, *BANDS)
    async with watched(broker, *BANDS, from_seq=0) as deliveries:
        turns, now_ns = broker.live.scheduler, 0

        def later() -> int:
            nonlocal now_ns
            now_ns += AGEING_MS * 1_000_000 // 4
            return now_ns

        monkeypatch.setattr(turns, "_now_ns", later)
        await deliveries.all(len(BANDS) * WATCHERS * RECORDS)
    found = shares(deliveries.order[: WATCHERS * RECORDS])
    assert found["lowest"] > 2 * WEIGHTS[0] / sum(WEIGHTS)
    assert found["highest"] < WEIGHTS[3] / sum(WEIGHTS)


async def test_recently_written_topics_are_delivered_first(
    broker: Broker, machine: Machine, http: httpx.AsyncClient
) -> None:
    await fill(http, "forgotten")
    await machine.clock.advance(270_000)
    await fill(http, "older")
    await machine.clock.advance(30_000)
    assert {name: (await state(http, name))["effective_priority"] for name in ("forgotten", "older")} == {
        "forgotten": 0,
        "older": 50,
    }
    await machine.clock.advance(15_000)
    await fill(http, "fresh")
    states = {each["topic"]: each["effective_priority"] for each in (await http.get("/v0/topics")).json()["topics"]}
    assert states == {"forgotten": 0, "older": 35, "fresh": 100}
    async with watched(broker, *states, from_seq=0) as deliveries:
        await deliveries.all(3 * WATCHERS * RECORDS)
    found = Counter(deliveries.order[: WATCHERS * RECORDS])
    # Bands of weight 4 and 2; two topics share the second.
    assert found["fresh"] / sum(found.values()) == pytest.approx(4 / 6, abs=0.03)
    assert found["forgotten"] == pytest.approx(found["older"], rel=0.2)


async def test_higher_priority_is_delivered_sooner_at_the_head_and_all_watchers_get_all_records(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Served by the feeds of their topics: one read for all watchers of a topic, and turns for writing to them."""
    await put_bands(http)
    live, watchers, hold = broker.live, 2 * SLICE, asyncio.Event()
    take = live.scheduler.take

    async def take_later(cost: int, priority: Callable[[], int]) -> None:
        await hold.wait()
        await take(cost, priority)

    async with watched(broker, *BANDS, from_seq=0, watchers=watchers) as deliveries:
        async with asyncio.timeout(60):
            while not all(each.cohort for feed in live.feeds() for each in feed.subscriptions):
                await asyncio.sleep(0)
        reads = live.figures.reads
        monkeypatch.setattr(live.scheduler, "take", take_later)
        await fill(http, *BANDS)
        hold.set()
        await deliveries.all(len(BANDS) * watchers * RECORDS)
        assert live.figures.reads - reads == len(BANDS) * RECORDS
    order = deliveries.order
    found = shares(order[: order.index("highest") + watchers * RECORDS])
    assert sorted(found, key=found.__getitem__) == [*BANDS]
    assert len(deliveries.seqs) == len(BANDS) * watchers
    assert all(seqs == list(range(1, RECORDS + 1)) for seqs in deliveries.seqs.values())
