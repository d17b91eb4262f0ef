"""Records were evicted while a read waited for the disk. The next step of the read skipped them without a tombstone."""

from __future__ import annotations

import asyncio

from storage import Durability, Engine, ReadQuery, TagMatch, TopicConfig
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, options, record


async def test_a_read_stops_before_evicted_records_and_the_next_read_returns_the_tombstone() -> None:
    disk = SimDisk()
    async with Engine.open(DATA, options(tail_cache_bytes=0), fs=disk) as engine:
        config = TopicConfig(durability=Durability.FSYNC, cap_records=20)
        for _ in range(20):
            await engine.append("t", [record(tag="x")], config=config)
        with disk.hold("pread", "*/wal-*.log", times=1) as gate:
            reading = asyncio.create_task(engine.read("t", ReadQuery(limit=1, tag=TagMatch(b"y"))))
            await asyncio.to_thread(gate.wait_held)
            for _ in range(20):
                await engine.append("t", [record(tag="x")])
        first = await reading
        second = await engine.read("t", ReadQuery(from_seq=first.next_from_seq))
    assert first.next_from_seq < 20
    assert second.tombstone is not None
    assert (second.tombstone.gap_from, second.tombstone.gap_to) == (first.next_from_seq + 1, 20)
