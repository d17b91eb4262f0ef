"""A cap evicted durable records of a topic that had been made ephemeral, but noted it in memory only. A restart brought
the records back."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.unit.storage.machine import Machine, records, seqs


async def test_the_floor_never_falls() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", records(10), config=TopicConfig(durability=Durability.FSYNC))
        await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL, cap_records=10))
        await engine.append("t", records(4))
        await machine.clock.advance(100)
        assert engine.state("t").evict_floor == 5
        engine = await machine.cut_power()
        assert engine.state("t").evict_floor == 5
        assert await seqs(engine, "t", from_seq=4) == [5, 6, 7, 8, 9, 10]
