"""A batch returns the records as they were read, however late it is accessed and whatever happened to them since."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from storage import Durability, Engine, Options, TopicConfig

COUNT = 300
ENTRIES = {
    "of one size": [os.urandom(100) for _ in range(COUNT)],
    "of many sizes": [os.urandom(50 + number) for number in range(COUNT)],
}
AT_ONCE = Options(wal_shards=1, checkpoint_interval_ms=5, checkpoint_records=1)


async def in_segments(engine: Engine) -> None:
    log = engine.topic("t").log
    async with asyncio.timeout(60):
        while log.held.flushed != log.head:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("kind", list(ENTRIES))
@pytest.mark.parametrize("where", ["memory", "log", "segment"])
async def test_records_read_earlier_do_not_change_after_a_later_deletion(tmp_path: Path, where: str, kind: str) -> None:
    entries, options = ENTRIES[kind], AT_ONCE if where == "segment" else Options(wal_shards=1)
    config = TopicConfig(durability=Durability.MEMORY if where == "memory" else Durability.DISK)
    async with Engine.open(tmp_path, options) as engine:
        await engine.append_batch("t", entries, config=config)
        if where == "log":
            engine.topic("t").log.cached.clear()
        if where == "segment":
            await in_segments(engine)
        batch = await engine.read_batch("t", "c", max_records=COUNT)
        seqs = [record.seq for record in batch]
        await engine.delete_records("t", before_seq=COUNT - 10)
        await engine.append_batch("t", [bytes(200)] * COUNT)
        assert batch.data() == entries
        assert len(await engine.read_batch("t", "new", max_records=COUNT)) < COUNT + 11
        await engine.delete_topic("t")
    assert batch.data() == [record.data for record in batch] == entries
    assert [record.seq for record in batch] == seqs == [*range(1, COUNT + 1)]
