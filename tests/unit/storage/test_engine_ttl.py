"""Time-to-live: at its ttl a record is readable; a millisecond later it is gone and the loss is announced."""

from __future__ import annotations

import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import RecordNotFound, TopicNotEmpty
from tests.unit.storage.machine import Machine, log_of, outcome, record, records, seqs

TTL_MS = 1000
IDLE = {"expiry_interval_ms": 10**9}
CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])


@CLASSES
async def test_a_record_is_readable_at_its_ttl_and_gone_a_millisecond_later(
    machine: Machine, durability: Durability
) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(2), config=TopicConfig(ttl_ms=TTL_MS, durability=durability))
    await machine.clock.advance(TTL_MS)
    assert await seqs(engine, "t") == [1, 2]
    assert (await engine.read_one("t", 1)).seq == 1
    await machine.clock.advance(1)
    result = await engine.read("t", ReadQuery())
    assert (result.records, result.next_from_seq) == ([], 2)
    assert result.tombstone is not None
    assert (result.tombstone.gap_from, result.tombstone.gap_to, result.tombstone.reason) == (1, 2, "ttl")
    state = engine.state("t")
    assert (state.count, state.bytes, state.earliest_seq, state.evict_floor) == (0, 0, 3, 3)


async def test_a_read_of_an_expired_record_is_not_found_as_expired(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(1), config=TopicConfig(ttl_ms=TTL_MS))
    await machine.clock.advance(TTL_MS + 1)
    with pytest.raises(RecordNotFound) as caught:
        await engine.read_one("t", 1)
    assert caught.value.detail == {"reason": "expired", "seq": 1}


async def test_each_batch_expires_at_its_own_time(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.put_topic("t", TopicConfig(ttl_ms=TTL_MS))
    for _ in range(4):
        await engine.append("t", records(2))
        await machine.clock.advance(300)
    seen = []
    for _ in range(5):
        await engine.read("t", ReadQuery())
        seen.append(engine.state("t").earliest_seq)
        await machine.clock.advance(300)
    assert seen == [3, 5, 7, 9, 9]


@CLASSES
async def test_idle_topics_are_swept_by_the_worker(machine: Machine, durability: Durability) -> None:
    engine = await machine.start(expiry_interval_ms=500)
    await engine.append("t", records(3), config=TopicConfig(ttl_ms=TTL_MS, durability=durability))
    await machine.clock.advance(TTL_MS + 501)
    state = engine.state("t")
    assert (state.count, state.evict_floor) == (0, 4)


async def test_a_failed_shard_does_not_delay_expiry_in_other_shards(machine: Machine) -> None:
    engine = await machine.start(expiry_interval_ms=500, wal_shards=2)
    names = [f"t{n}" for n in range(8)]
    for name in names:
        await engine.append(name, records(1), config=TopicConfig(ttl_ms=TTL_MS, durability=Durability.FSYNC))
    machine.disk.fail("datasync", "*/shard-00/*")
    shards = {name: engine.catalog.topics[name].log.shard for name in names}
    broken = next(name for name, shard in shards.items() if shard == 0)
    await outcome(engine.append(broken, records(1)))
    await machine.clock.advance(TTL_MS + 501)
    left = {name: log_of(engine, name).count for name in names}  # what their logs say is there
    assert left == {name: 1 - shard for name, shard in shards.items()}


async def test_the_floor_survives_a_crash(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(2), config=TopicConfig(ttl_ms=TTL_MS, durability=Durability.FSYNC))
    await machine.clock.advance(500)
    await engine.append("t", records(2))
    await machine.clock.advance(501)
    await engine.read("t", ReadQuery())
    before = engine.state("t")
    assert before.evict_floor == 3
    engine = await machine.cut_power(**IDLE)
    after = engine.state("t")
    assert (after.evict_floor, after.count, after.head_seq) == (3, 2, 4)


async def test_an_expiry_is_reported_after_its_floor_is_synced(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(2), config=TopicConfig(ttl_ms=TTL_MS, durability=Durability.DISK))
    await machine.clock.advance(TTL_MS + 1)
    before = engine.shards[0].log.stats.fsyncs
    await engine.read("t", ReadQuery())
    assert engine.shards[0].log.stats.fsyncs > before
    engine = await machine.cut_power(**IDLE)
    assert engine.state("t").evict_floor >= 3


async def test_a_shorter_ttl_applies_at_once(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(2))
    await machine.clock.advance(50)
    await engine.append("t", records(1))
    await machine.clock.advance(60)
    state, _ = await engine.put_topic("t", TopicConfig(ttl_ms=100))
    assert (state.count, state.evict_floor) == (1, 3)


async def test_a_longer_ttl_restores_no_record(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(2), config=TopicConfig(ttl_ms=100))
    await machine.clock.advance(101)
    await engine.read("t", ReadQuery())
    await engine.put_topic("t", TopicConfig(ttl_ms=0))
    assert await seqs(engine, "t", from_seq=2) == []
    assert engine.state("t").evict_floor == 3


async def test_expired_and_evicted_records_give_a_mixed_reason(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(3), config=TopicConfig(ttl_ms=TTL_MS, cap_records=2))
    await machine.clock.advance(TTL_MS + 1)
    result = await engine.read("t", ReadQuery())
    assert result.tombstone is not None
    assert (result.tombstone.reason, result.tombstone.gap_to) == ("mixed", 3)
    behind = await engine.read("t", ReadQuery(from_seq=1))
    assert behind.tombstone is not None
    assert behind.tombstone.reason == "ttl", "seq 1 went by the cap, which this reader had seen"


async def test_deleted_records_are_not_counted_as_expired(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", [record(tag="x"), record()], config=TopicConfig(ttl_ms=TTL_MS))
    await engine.delete_records("t", match=TagMatch(b"x"))
    await machine.clock.advance(TTL_MS + 1)
    await engine.read("t", ReadQuery())
    state = engine.state("t")
    assert (state.count, state.bytes) == (0, 0)


async def test_a_topic_with_only_expired_records_is_empty(machine: Machine) -> None:
    engine = await machine.start(expiry_interval_ms=100)
    await engine.append("t", records(1), config=TopicConfig(ttl_ms=TTL_MS))
    await machine.clock.advance(TTL_MS)
    with pytest.raises(TopicNotEmpty):
        await engine.delete_topic("t", if_empty=True)
    await machine.clock.advance(101)
    assert await engine.delete_topic("t", if_empty=True)


async def test_expiry_is_exact_after_the_wall_clock_is_set_back(machine: Machine) -> None:
    engine = await machine.start(**IDLE)
    await engine.append("t", records(1), config=TopicConfig(ttl_ms=TTL_MS))
    machine.clock.set_wall(machine.clock.wall_ms() - 10**6)
    await machine.clock.advance(TTL_MS)
    assert await seqs(engine, "t") == [1]
    await machine.clock.advance(1)
    assert await seqs(engine, "t") == []
