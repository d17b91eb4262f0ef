"""Limits of the whole broker: all bytes, memory-only bytes, and their release when records go."""

from __future__ import annotations

import asyncio

import pytest

from storage import Discard, Durability, TopicConfig
from storage.errors import LimitReached, StorageFull
from tests.unit.storage.machine import Machine, errors_among, outcome, record, records, seqs, sized

EPHEMERAL = TopicConfig(durability=Durability.EPHEMERAL)


async def test_appends_over_max_total_bytes_are_refused(machine: Machine) -> None:
    engine = await machine.start(max_total_bytes=100)
    await engine.append("a", [sized(60)])
    await engine.append("b", [sized(40)])
    for name in ("a", "c"):
        with pytest.raises(LimitReached) as caught:
            await engine.append(name, [record()])
        assert caught.value.detail == {"limit": "max_total_bytes", "max": 100}
    assert engine.catalog.usage.bytes == 100


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])
async def test_concurrent_appends_do_not_exceed_max_total_bytes(machine: Machine, durability: Durability) -> None:
    engine = await machine.start(max_total_bytes=100)
    config = TopicConfig(durability=durability)
    outcomes = await asyncio.gather(
        *(outcome(engine.append(f"t{n % 3}", [sized(30)], config=config)) for n in range(10))
    )
    assert len(errors_among(outcomes)) == 7
    assert engine.catalog.usage.bytes == 90


async def test_evicted_deleted_and_expired_records_free_total_bytes(machine: Machine) -> None:
    engine = await machine.start(max_total_bytes=100, expiry_interval_ms=10)
    for durability in (Durability.FSYNC, Durability.EPHEMERAL):
        config = TopicConfig(durability=durability)
        await engine.append("t", [sized(50), sized(50)], config=config)
        await engine.delete_records("t", before_seq=2)
        await engine.append("t", [sized(50)])
        await engine.put_topic("t", TopicConfig(durability=durability, cap_records=1))
        await engine.append("u", [sized(50)], config=config)
        await engine.delete_topic("t")
        await engine.append("u", [sized(50)])
        await engine.put_topic("u", TopicConfig(durability=durability, ttl_ms=5))
        await machine.clock.advance(30)
        assert engine.catalog.usage.bytes == 0
        await engine.delete_topic("u")


async def test_an_append_that_evicts_its_own_size_is_within_max_total_bytes(machine: Machine) -> None:
    engine = await machine.start(max_total_bytes=100)
    await engine.append("t", [sized(50)], config=TopicConfig(cap_records=1))
    for _ in range(3):
        await engine.append("t", [sized(50)])
    assert engine.catalog.usage.bytes == 50


async def test_the_total_is_correct_after_a_restart(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("a", [sized(60), sized(10)], config=TopicConfig(cap_records=1, durability=Durability.FSYNC))
    await engine.append("b", [sized(20)], config=EPHEMERAL)
    engine = await machine.restart(max_total_bytes=12)
    assert (engine.catalog.usage.bytes, engine.catalog.usage.ephemeral_bytes) == (10, 0)
    with pytest.raises(LimitReached):
        await engine.append("c", [sized(3)])
    await engine.append("c", [sized(2)])


# -- memory ------------------------------------------------------------------------------------------------------


async def test_all_ephemeral_topics_share_ephemeral_max_bytes(machine: Machine) -> None:
    engine = await machine.start(ephemeral_max_bytes=100)
    await engine.append("a", [sized(60)], config=EPHEMERAL)
    await engine.append("b", [sized(40)], config=EPHEMERAL)
    for name in ("a", "c"):
        with pytest.raises(StorageFull) as caught:
            await engine.append(name, [record()], config=EPHEMERAL)
        assert caught.value.detail == {"limit": "ephemeral_max_bytes", "max": 100}
    assert [each.topic for each in engine.topics()] == ["a", "b"]
    await engine.append("on-disk", [sized(500)])
    await engine.delete_records("a", before_seq=2)
    await engine.append("b", [sized(60)])
    assert engine.catalog.usage.ephemeral_bytes == 100


async def test_concurrent_writers_never_exceed_ephemeral_max_bytes(machine: Machine) -> None:
    engine = await machine.start(ephemeral_max_bytes=100)
    outcomes = await asyncio.gather(
        *(outcome(engine.append(f"t{n % 2}", [sized(30)], config=EPHEMERAL)) for n in range(10))
    )
    refused = errors_among(outcomes)
    assert len(refused) == 7
    assert all(isinstance(each, StorageFull) for each in refused)
    assert engine.catalog.usage.ephemeral_bytes == 90


async def test_leaving_the_ephemeral_class_frees_the_memory(machine: Machine) -> None:
    engine = await machine.start(ephemeral_max_bytes=100)
    await engine.append("a", [sized(100)], config=EPHEMERAL)
    await engine.put_topic("a", TopicConfig(durability=Durability.DISK))
    assert engine.catalog.usage.ephemeral_bytes == 0
    await engine.append("b", [sized(100)], config=EPHEMERAL)
    assert engine.catalog.usage.bytes == 200


async def test_a_capped_ephemeral_topic_accepts_writes_without_end(machine: Machine) -> None:
    engine = await machine.start(ephemeral_max_bytes=100)
    config = TopicConfig(durability=Durability.EPHEMERAL, cap_records=3)
    for n in range(300):
        await engine.append("t", [sized(20)], config=config)
        assert engine.catalog.usage.ephemeral_bytes == min(60, 20 * (n + 1))
    log = engine.catalog.topics["t"].log
    assert len(log.cached) <= 5
    assert await seqs(engine, "t", from_seq=297) == [298, 299, 300]


async def test_a_full_memory_is_not_a_full_disk(machine: Machine) -> None:
    engine = await machine.start(ephemeral_max_bytes=10)
    with pytest.raises(StorageFull):
        await engine.append("a", [sized(11)], config=EPHEMERAL)
    assert not engine.shards[0].log.full
    await engine.append("b", [sized(11)], config=TopicConfig(cap_records=1, discard=Discard.REJECT))
    await engine.append("c", records(2), config=EPHEMERAL)
