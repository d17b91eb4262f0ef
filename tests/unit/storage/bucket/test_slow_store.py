"""An engine whose log goes into a store that takes long, or does not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage import Durability, NewRecord, TopicConfig
from storage.bucket import ANYONE, Candidate, Driver, Slots
from storage.bucket.slot import decode
from storage.cells.owner import CellOwner, begin
from storage.errors import WalSaturated
from storage.options import Options
from storage.platform import SystemClock
from storage.records import TopicType
from tests.support.memory_bucket import MemoryBucket

CELL = "cell-00"
FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)


class SlowStore(MemoryBucket):
    """Creates of slots wait while it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.open.set()
        #: Creates of slots that have begun and not ended, and the most of them at a time.
        self.waiting = self.most = 0

    def create(self, key: str, data: bytes) -> bool:
        if "/log/" not in key:
            return super().create(key, data)
        with self.lock:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
        self.open.wait()
        with self.lock:
            self.waiting -= 1
        return super().create(key, data)

    def slots(self) -> list[bytes]:
        """The bodies of the data slots, in order."""
        found = [decode(int(key[-16:], 16), data) for key, data in sorted(self.objects.items()) if "/log/" in key]
        return [each.body for each in found if each.seal is None]


@pytest.fixture
async def store() -> AsyncIterator[SlowStore]:
    made = SlowStore()
    begin(made, CELL, Candidate("init", "00" * 16))
    yield made
    made.open.set()


async def owner_of(store: SlowStore, directory: Path, **options: Any) -> CellOwner:
    owner = CellOwner(
        store,
        CELL,
        str(directory),
        Candidate("node", "01" * 16),
        options=msgspec.structs.replace(Options(put_interval_ms=0), **options),
        ttl_s=60.0,
    )
    seal_of_nobody(store)
    await owner.start()
    return owner


def seal_of_nobody(store: SlowStore) -> None:
    """Let anyone take the cell over at once."""
    found = decode(0, store.objects[f"{CELL}/log/{0:016x}"]).seal
    assert found is not None
    driver = Driver(store, SystemClock())
    driver.run(Slots(CELL, found).give_to(ANYONE))
    driver.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def record(text: str) -> NewRecord:
    return NewRecord(msgspec.Raw(msgspec.json.encode(text)))


async def test_records_of_class_disk_do_not_wait_for_the_store(store: SlowStore, tmp_path: Path) -> None:
    owner = await owner_of(store, tmp_path)
    engine = owner.engine
    await engine.put_topic("safe", FSYNC)
    await engine.put_topic("fast", DISK)
    await engine.append("fast", [record("reserves seqs")])
    store.open.clear()
    waiting = asyncio.create_task(engine.append("safe", [record("a")]))
    await until(lambda: store.waiting == 1)
    for number in range(20):
        await engine.append("fast", [record(f"record {number}")])
    assert not waiting.done()
    store.open.set()
    await waiting
    await until(lambda: any(b"record 19" in body for body in store.slots()))
    await owner.close()
    assert store.most == 1


async def test_records_of_class_disk_are_refused_while_the_store_is_too_far_behind(
    store: SlowStore, tmp_path: Path
) -> None:
    owner = await owner_of(store, tmp_path, slot_lag_ms=100)
    engine = owner.engine
    await engine.put_topic("fast", DISK)
    await engine.append("fast", [record("first")])
    store.open.clear()
    taken = 0

    async def until_refused() -> None:
        nonlocal taken
        while True:
            await engine.append("fast", [record(f"taken {taken}")])
            taken += 1
            await asyncio.sleep(0.005)

    with pytest.raises(WalSaturated):
        await until_refused()
    store.open.set()
    await until(lambda: any(f"taken {taken - 1}".encode() in body for body in store.slots()))
    await until(lambda: engine.shards[0].log.unsynced_since_ns is None)
    await engine.append("fast", [record("taken again")])
    await owner.close()


async def test_durable_leases_are_in_a_slot_before_they_are_answered_in_every_class(
    store: SlowStore, tmp_path: Path
) -> None:
    # Nothing else would be put within the test.
    owner = await owner_of(store, tmp_path, disk_sync_ms=3_600_000)
    queues = owner.engine.queues
    await owner.engine.put_topic("jobs", TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC))
    await owner.engine.append("jobs", [record("a"), record("b")])
    await owner.engine.put_topic(
        "jobs", TopicConfig(type=TopicType.QUEUE, durability=Durability.DISK, leases_durable=True)
    )
    store.open.clear()
    claim = asyncio.create_task(queues.claim("jobs", "worker", lease_ms=3_600_000))
    await until(lambda: store.waiting == 1)
    assert not claim.done()
    store.open.set()
    [job] = (await claim).jobs
    store.open.clear()
    ack = asyncio.create_task(queues.ack("jobs", "worker", [job.record.seq], lease_ids=[job.lease_id]))
    await until(lambda: store.waiting == 1)
    assert not ack.done()
    store.open.set()
    assert (await ack).done == [job.record.seq]
    await owner.close()


async def test_slots_are_as_far_apart_as_configured(store: SlowStore, tmp_path: Path) -> None:
    owner = await owner_of(store, tmp_path, put_interval_ms=200)
    await owner.engine.put_topic("safe", FSYNC)
    begun, before = asyncio.get_running_loop().time(), len(store.slots())
    for number in range(5):
        await asyncio.gather(*(owner.engine.append("safe", [record(f"{number} {each}")]) for each in range(20)))
    lasted, slots = asyncio.get_running_loop().time() - begun, len(store.slots()) - before
    assert lasted >= 0.2 * (slots - 1)
    assert slots <= 12  # of 100 records
    await owner.close()
