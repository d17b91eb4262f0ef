"""A delete floor above a loss range made reads skip the range without its tombstone."""

from __future__ import annotations

from storage import Durability, ReadQuery, TopicConfig
from tests.unit.storage.machine import Machine, records


async def test_a_read_ends_before_a_loss_range_and_the_next_read_returns_its_tombstone() -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.append("t", records(5), config=TopicConfig(durability=Durability.EPHEMERAL))
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
        await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
        await engine.append("t", records(3))
        engine = await machine.kill()
        lost_to = engine.state("t").head_seq
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
        await engine.append("t", records(3))
        await engine.delete_records("t", before_seq=lost_to + 3)

        first = await engine.read("t", ReadQuery())
        assert (first.records, first.tombstone, first.next_from_seq) == ([], None, 5)
        second = await engine.read("t", ReadQuery(from_seq=5))
        assert second.tombstone is not None
        assert (second.tombstone.gap_from, second.tombstone.gap_to) == (6, lost_to)
        assert [each.seq for each in second.records] == [lost_to + 3]
