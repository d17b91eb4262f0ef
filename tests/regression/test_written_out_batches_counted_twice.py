"""An ephemeral topic was made durable. After a crash the evicted part of a batch was counted as live."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.unit.storage.machine import Machine, records, seqs


async def test_only_live_records_count_after_a_crash() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", records(10), config=TopicConfig(durability=Durability.EPHEMERAL, cap_records=4))
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=4))
        before = engine.state("t")
        engine = await machine.kill()
        after = engine.state("t")
        assert (before.count, before.bytes, before.earliest_seq) == (4, 4, 7)
        assert (after.count, after.bytes, after.earliest_seq) == (4, 4, 7)
        assert engine.catalog.usage.bytes == 4
        assert await seqs(engine, "t") == [7, 8, 9, 10]
