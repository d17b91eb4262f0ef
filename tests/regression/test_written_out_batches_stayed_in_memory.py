"""Batches of a topic that stopped being ephemeral stayed in memory for good, and were not counted."""

from __future__ import annotations

from storage import Durability, TopicConfig
from storage.log.publisher import CACHE_ENTRY_BYTES
from tests.unit.storage.machine import Machine, data, log_of, record


async def test_written_out_batches_enter_the_tail_cache_and_are_evicted() -> None:
    async with Machine() as machine:
        room = 300 + 5 * CACHE_ENTRY_BYTES
        engine = await machine.start(tail_cache_bytes=room)
        await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
        for n in range(20):
            await engine.append("t", [record(n)])
        assert len(log_of(engine, "t").cached) == 20
        await engine.put_topic("t", TopicConfig(durability=Durability.DISK))
        kept = log_of(engine, "t").cached
        assert 0 < len(kept) < 10
        assert sum(len(payload) + CACHE_ENTRY_BYTES for payload, _ in kept.values()) == engine.cache.bytes <= room
        assert await data(engine, "t") == list(range(20))
