"""A read with a small limit that skips many records fetched them one by one, with one call to the disk for each."""

from __future__ import annotations

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from tests.unit.storage.machine import Machine, record


async def test_the_number_of_disk_reads_does_not_grow_with_skipped_records() -> None:
    async with Machine() as machine:
        engine = await machine.start(tail_cache_bytes=0)
        await engine.append("t", [record(tag="x") for _ in range(700)], config=TopicConfig(durability=Durability.FSYNC))
        await engine.append("t", [record(tag="y")])
        before = sum(call.op == "pread" for call in machine.disk.calls)
        result = await engine.read("t", ReadQuery(limit=1, tag=TagMatch(b"y")))
        assert [each.seq for each in result.records] == [701]
        assert sum(call.op == "pread" for call in machine.disk.calls) - before < 20
