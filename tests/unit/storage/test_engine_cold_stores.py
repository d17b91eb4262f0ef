"""A cold tier in a real object store, and in one so slow that the engine must not wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.platform.posix import PosixFileSystem
from storage.records.values import TagMatch
from storage.segments.tiering.directory import DirectoryStore
from storage.segments.tiering.object_store import ObjectStore
from storage.state.manifest import COLD, HOT
from tests.support.slow_store import SlowStore
from tests.unit.storage.cold.conftest import Rig, s3, s3_endpoint
from tests.unit.storage.machine import options, record, seqs

_ = (s3, s3_endpoint)  # fixtures of the stores' own tests

SMALL = options(
    segment_max_events=10, checkpoint_records=1, hot_retain_segments=1, checkpoint_interval_ms=10**9, cold_threads=2
)
FSYNC = TopicConfig(durability=Durability.FSYNC)


async def fill(engine: Engine, count: int) -> None:
    for number in range(count):
        await engine.append("t", [record({"n": number}, tag=f"tag-{number % 3}")], config=FSYNC)


def tiers(engine: Engine) -> list[str]:
    return [each.tier for each in engine.catalog.topics["t"].log.held.manifest.segments]


async def settle(engine: Engine) -> None:
    await engine.segment_worker.flush_all()
    await engine.relocator.tick()


async def test_an_object_store_is_a_cold_tier(s3: Rig, tmp_path: Path) -> None:
    assert isinstance(s3.store, ObjectStore)
    store = ObjectStore(s3.store._remote, "", PosixFileSystem(), 20)  # pyright: ignore[reportPrivateUsage]
    async with Engine.open(tmp_path, SMALL, cold=store) as engine:
        await fill(engine, 45)
        await settle(engine)
        assert tiers(engine) == [COLD] * 3 + [HOT] * 2
        assert await seqs(engine, "t") == list(range(1, 46))
    async with Engine.open(tmp_path, SMALL, cold=store) as engine:
        await engine.delete_records("t", match=TagMatch(b"tag-1"))
        await engine.delete_records("t", before_seq=12)
        await settle(engine)
        wanted = [seq for seq in range(12, 46) if (seq - 1) % 3 != 1]
        assert await seqs(engine, "t", from_seq=11) == wanted
        folder = f"{engine.cluster_id}/topics/{1:016x}"
        assert await asyncio.to_thread(store.list, folder) == [
            *(f"{folder}/seg-{first:020d}.{ext}" for first in (11, 21) for ext in ("data", "idx")),
            f"{folder}/topic.json",
        ]
        await engine.delete_topic("t")
        await settle(engine)
        assert await asyncio.to_thread(store.list, engine.cluster_id) == []


class RequestGate:
    """Blocks every request to a store while it is on."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self._waiting = threading.Semaphore(0)

    def on(self) -> None:
        while self._waiting.acquire(blocking=False):
            pass
        self._free.clear()

    def off(self) -> None:
        self._free.set()

    async def held(self, requests: int) -> None:
        """Wait until `requests` requests are blocked."""
        for _ in range(requests):
            assert await asyncio.to_thread(self._waiting.acquire, timeout=30), "no request arrived"

    def sleep(self, seconds: float) -> None:
        self._waiting.release()
        assert self._free.wait(60), "the gate was not opened"


@pytest.fixture
def gate() -> RequestGate:
    return RequestGate()


@pytest.fixture
async def deep(tmp_path: Path, gate: RequestGate) -> AsyncIterator[Engine]:
    """An engine with three segments in a store that waits for the brake, and two here."""
    store = SlowStore(DirectoryStore(PosixFileSystem(), str(tmp_path / "cold")), 200, gate.sleep)
    engine = Engine(tmp_path / "data", SMALL, cold=store)
    await engine.start()
    await fill(engine, 45)
    await settle(engine)
    assert tiers(engine) == [COLD] * 3 + [HOT] * 2
    yield engine
    gate.off()
    await engine.close()


async def test_deep_reads_delay_neither_appends_nor_the_tail_nor_hot_segments(deep: Engine, gate: RequestGate) -> None:
    gate.on()
    # More of them than there are threads in either pool.
    reads = [asyncio.create_task(deep.read("t", ReadQuery(limit=30))) for _ in range(12)]
    await gate.held(2)
    for number in range(25):
        appended = await deep.append("t", [record({"n": number})], config=FSYNC)
        assert appended.first_seq == 46 + number
        result = await deep.read("t", ReadQuery(from_seq=45 + number))
        assert [each.seq for each in result.records] == [46 + number]
        if number % 5 == 0:
            await deep.segment_worker.flush_all()
            assert await seqs(deep, "t", from_seq=30) == list(range(31, 47 + number))
    assert not any(each.done() for each in reads)
    gate.off()
    for result in await asyncio.gather(*reads):
        assert ([each.seq for each in result.records], result.cold_segments_read) == (list(range(1, 31)), 3)


async def test_a_stalled_store_delays_neither_housekeeping_nor_caps(deep: Engine, gate: RequestGate) -> None:
    await fill(deep, 15)
    await deep.segment_worker.flush_all()
    gate.on()
    moving = asyncio.create_task(deep.relocator.tick())
    await gate.held(1)
    await deep.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=44))
    await deep.append("t", [record(0)] * 5)
    await deep.segment_worker.flush_all()
    assert (deep.state("t").count, deep.state("t").earliest_seq) == (44, 22)
    assert not moving.done()
    gate.off()
    await moving
    await settle(deep)
    assert tiers(deep)[0] == COLD
    assert await seqs(deep, "t", from_seq=21) == list(range(22, 66))


async def test_appends_continue_beside_a_deep_read_with_200_ms_per_request(
    tmp_path: Path, sleeper: Callable[[float], None]
) -> None:
    store = SlowStore(DirectoryStore(PosixFileSystem(), str(tmp_path / "cold")), 0, sleeper)
    async with Engine.open(tmp_path / "data", SMALL, cold=store) as engine:
        await fill(engine, 45)
        await settle(engine)
        store.delay_ms = 200
        read = asyncio.create_task(engine.read("t", ReadQuery(limit=30)))
        completed = 0
        while not read.done():
            await engine.append("t", [record(completed)], config=FSYNC)
            completed += 1
        assert [each.seq for each in (await read).records] == list(range(1, 31))
        assert (await read).cold_segments_read == 3
        assert completed >= 10, "three requests took 600 ms"


@pytest.fixture
def sleeper() -> Callable[[float], None]:
    """Sleeps for real."""
    never = threading.Event()
    return lambda seconds: void(never.wait(seconds))


def void(_: object) -> None:
    """Drops a result."""


async def test_a_stop_waits_for_the_current_round_and_the_next_start_continues(
    tmp_path: Path, gate: RequestGate
) -> None:
    store = SlowStore(DirectoryStore(PosixFileSystem(), str(tmp_path / "cold")), 200, gate.sleep)
    engine = Engine(tmp_path / "data", SMALL, cold=store)
    await engine.start()
    await fill(engine, 45)
    await engine.segment_worker.flush_all()
    gate.on()
    moving = asyncio.create_task(engine.relocator.tick())
    await gate.held(1)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    gate.off()
    await closing
    await asyncio.gather(moving, return_exceptions=True)
    async with Engine.open(tmp_path / "data", SMALL, cold=store) as again:
        await settle(again)
        assert tiers(again) == [COLD] * 3 + [HOT] * 2
        assert await seqs(again, "t") == list(range(1, 46))
