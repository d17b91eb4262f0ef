"""Records deleted or expired while an ephemeral topic was being written to the log came back after a crash."""

from __future__ import annotations

import asyncio

import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from tests.unit.storage.machine import Machine, record, records, seqs

TURNS = pytest.mark.parametrize("turns", range(5))
IDLE = {"expiry_interval_ms": 10**9}


@TURNS
@pytest.mark.parametrize(
    ("before_seq", "match", "left"), [(3, None, [3, 4]), (None, TagMatch(b"x"), [2, 4]), (2, TagMatch(b"x"), [2, 3, 4])]
)
async def test_records_deleted_during_a_change_of_durability_stay_deleted_after_a_power_cut(
    turns: int, before_seq: int | None, match: TagMatch | None, left: list[int]
) -> None:
    async with Machine() as machine:
        engine = await machine.start()
        batch = [record(tag="x"), record(), record(tag="x"), record()]
        await engine.append("t", batch, config=TopicConfig(durability=Durability.EPHEMERAL))
        changing = asyncio.create_task(engine.put_topic("t", TopicConfig(durability=Durability.FSYNC)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await engine.delete_records("t", before_seq=before_seq, match=match)
        await changing
        assert await seqs(engine, "t") == left
        engine = await machine.cut_power()
        assert await seqs(engine, "t") == left
        assert engine.state("t").count == len(left)


@TURNS
async def test_records_expired_during_a_change_of_durability_stay_expired_after_a_power_cut(turns: int) -> None:
    async with Machine() as machine:
        engine = await machine.start(**IDLE)
        config = TopicConfig(durability=Durability.EPHEMERAL, ttl_ms=100)
        await engine.append("t", records(2), config=config)
        await machine.clock.advance(101)
        await engine.append("t", records(2))
        changing = asyncio.create_task(engine.put_topic("t", TopicConfig(durability=Durability.FSYNC)))
        for _ in range(turns):
            await asyncio.sleep(0)
        told = (await engine.read("t", ReadQuery())).tombstone
        await changing
        floor = engine.state("t").evict_floor
        assert floor == (1 if told is None else 3)
        engine = await machine.cut_power(**IDLE)
        assert engine.state("t").evict_floor == floor
