"""Idempotent producers: a batch is stored once, in order, over crashes and with many batches in flight."""

from __future__ import annotations

import asyncio
import errno

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import InvalidProducerEpoch, InvalidRequest, OutOfOrderSequence, StorageFailed, StorageFull
from storage.records.values import Appended, ProducerBatch, StoredBodies
from storage.state.producer_table import MAX_SEQUENCE
from tests.unit.storage.machine import Machine, data, log_of, outcome

FSYNC, DISK = TopicConfig(durability=Durability.FSYNC), TopicConfig(durability=Durability.DISK)
KEPT = pytest.mark.parametrize("again", ["kill", "cut_power", "restart"])


def bodies(*values: int) -> StoredBodies:
    return StoredBodies([b'{"data":%d}' % value for value in values])


async def send(engine: Engine, base: int, *values: int, epoch: int = 0, producer_id: int = 7) -> Appended:
    return await engine.append("t", bodies(*values), producer=ProducerBatch(producer_id, epoch, base), config=FSYNC)


async def test_a_repeated_producer_batch_gets_the_first_answer(machine: Machine) -> None:
    engine = await machine.start()
    for base in range(0, 14, 2):
        await send(engine, base, base, base + 1)
    for base in range(4, 14, 2):
        again = await send(engine, base, base, base + 1)
        assert (again.deduped, again.first_seq, again.last_seq, again.count) == (True, base + 1, base + 2, 2)
    assert await data(engine, "t") == list(range(14))
    with pytest.raises(OutOfOrderSequence):
        await send(engine, 2, 2, 3)


async def test_gaps_and_old_epochs_are_refused_and_leave_no_trace(machine: Machine) -> None:
    engine = await machine.start()
    await send(engine, 0, 0, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        await send(engine, 2, 2, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        await send(engine, 1, 1, epoch=0)
    with pytest.raises(OutOfOrderSequence):
        await send(engine, 1, 1, epoch=2)
    told: list[Appended | Exception] = []
    with pytest.raises(OutOfOrderSequence):
        engine.try_append("t", bodies(2), told.append, producer=ProducerBatch(7, 1, 2))
    await send(engine, 0, 5, epoch=2)
    await send(engine, 0, 6, producer_id=8)
    assert await data(engine, "t") == [0, 5, 6]


@KEPT
async def test_producer_state_survives_a_restart(machine: Machine, again: str) -> None:
    engine = await machine.start(producer_id_expiration_ms=1000)
    for base in range(6):
        await send(engine, base, base, epoch=3)
    await machine.clock.advance(900)
    await send(engine, 0, 100, producer_id=8)
    engine = await getattr(machine, again)(producer_id_expiration_ms=1000)
    await machine.clock.advance(900)
    for base in range(1, 6):
        assert (await send(engine, base, base, epoch=3)).first_seq == base + 1
    with pytest.raises(InvalidProducerEpoch):
        await send(engine, 6, 6, epoch=2)
    assert not (await send(engine, 6, 6, epoch=3)).deduped
    assert await data(engine, "t") == [0, 1, 2, 3, 4, 5, 100, 6]


async def test_producer_state_survives_snapshots_and_a_change_of_the_shard_count(machine: Machine) -> None:
    engine = await machine.start()
    await send(engine, 0, 0, 1, epoch=2)
    for _ in range(3):
        await engine.snapshotter.take()
    await send(engine, 2, 2, epoch=2)
    engine = await machine.kill(wal_shards=3)
    assert (await send(engine, 0, 0, 1, epoch=2)).deduped
    assert (await send(engine, 2, 2, epoch=2)).first_seq == 3
    engine = await machine.cut_power(wal_shards=3)
    assert (await send(engine, 2, 2, epoch=2)).deduped
    await send(engine, 3, 3, epoch=2)
    assert await data(engine, "t") == [0, 1, 2, 3]


async def test_concurrent_producer_batches_keep_their_order(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    sent = await asyncio.gather(*[send(engine, base, base) for base in range(20)])
    assert [each.first_seq for each in sent] == list(range(1, 21))
    with pytest.raises(OutOfOrderSequence):
        await send(engine, 22, 22)


async def test_a_repetition_of_a_pending_producer_batch_waits_for_the_pending_batch(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    told: list[Appended | Exception] = []
    batch = ProducerBatch(7, 0, 0)
    assert engine.try_append("t", bodies(1), told.append, producer=batch)
    assert not engine.try_append("t", bodies(1), told.append, producer=batch)
    again = await send(engine, 0, 1)
    assert (again.deduped, again.first_seq, len(told)) == (True, 1, 1)
    assert engine.producers.pending == {}


async def test_a_producer_batch_refused_by_a_full_disk_can_be_repeated(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    await send(engine, 0, 0)
    machine.disk.capacity_bytes = 0
    value = int("1" * 70)
    outcomes = await asyncio.gather(*[outcome(send(engine, base, *[value] * 900)) for base in (1, 901, 1801)])
    while not any(isinstance(each, Exception) for each in outcomes):
        outcomes = await asyncio.gather(*[outcome(send(engine, outcomes[-1].last_seq, *[value] * 900))])
    assert any(isinstance(each, StorageFull) for each in outcomes)
    head = engine.state("t").head_seq
    machine.disk.capacity_bytes = None
    await machine.clock.advance(2000)
    engine.shards[0].harden()
    sent = await send(engine, head, 5)
    assert (sent.deduped, sent.first_seq) == (False, head + 1)
    assert log_of(engine, "t").producers is not None


async def test_a_repetition_of_a_failed_producer_batch_fails_until_the_next_start(machine: Machine) -> None:
    engine = await machine.start()
    await send(engine, 0, 0)
    machine.disk.fail("datasync", errno=errno.EIO)
    outcomes = await asyncio.gather(*[outcome(send(engine, 1, 1)) for _ in range(2)])
    assert [type(each) for each in outcomes] == [StorageFailed] * 2
    machine.disk.clear_faults()
    engine = await machine.kill()
    found = await data(engine, "t")
    again = await send(engine, 1, 1)
    assert again.deduped == (found == [0, 1])
    assert await data(engine, "t") == [0, 1]


async def test_an_ephemeral_topic_forgets_its_producers_at_a_restart(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
    await send(engine, 0, 0)
    assert (await send(engine, 0, 0)).deduped
    engine = await machine.restart()
    assert not (await send(engine, 0, 0)).deduped


async def test_the_longest_idle_producer_is_dropped_for_a_new_producer(machine: Machine) -> None:
    engine = await machine.start(max_producers=2)
    for producer_id in (1, 2, 3):
        await send(engine, 0, 0, producer_id=producer_id)
    usage = engine.catalog.usage
    assert (usage.producers, usage.producers_forgotten) == (2, 1)
    assert (await send(engine, 0, 0, producer_id=3)).deduped
    assert not (await send(engine, 0, 0, producer_id=1)).deduped


async def test_idle_producers_are_forgotten_after_expiry_and_with_their_topic(machine: Machine) -> None:
    engine = await machine.start(producer_id_expiration_ms=1000)
    await send(engine, 0, 0)
    await machine.clock.advance(1001)
    await send(engine, 0, 0, producer_id=8)
    await engine.expiry.tick()
    assert engine.catalog.usage.producers == 1
    assert not (await send(engine, 50, 0)).deduped
    await engine.delete_topic("t")
    assert engine.catalog.usage.producers == 0


@pytest.mark.parametrize(
    "batch",
    [
        ProducerBatch(-1, 0, 0),
        ProducerBatch(1 << 63, 0, 0),
        ProducerBatch(7, -1, 0),
        ProducerBatch(7, 1 << 15, 0),
        ProducerBatch(7, 0, -1),
        ProducerBatch(7, 0, MAX_SEQUENCE + 1),
    ],
)
async def test_invalid_producer_numbers_are_refused(machine: Machine, batch: ProducerBatch) -> None:
    engine = await machine.start()
    with pytest.raises(InvalidRequest, match="63 bits"):
        await engine.append("t", bodies(1), producer=batch)
    assert engine.topics() == []


async def test_an_id_is_handed_out_once(machine: Machine) -> None:
    engine = await machine.start()
    claimed = [await engine.producers.claim() for _ in range(1500)]
    claimed += await asyncio.gather(*[engine.producers.claim() for _ in range(1500)])
    engine = await machine.cut_power()
    claimed += [await engine.producers.claim() for _ in range(5)]
    engine = await machine.restart(wal_shards=2)
    claimed += [await engine.producers.claim() for _ in range(5)]
    assert {epoch for _, epoch in claimed} == {0}
    assert len({producer_id for producer_id, _ in claimed}) == len(claimed) == 3010


async def test_a_bump_of_the_last_epoch_gives_a_new_producer_id(machine: Machine) -> None:
    engine = await machine.start()
    claimed, epoch = await engine.producers.claim()
    assert await engine.producers.bump(claimed, epoch) == (claimed, 1)
    other, epoch = await engine.producers.bump(claimed, 32_766)
    assert other != claimed
    assert epoch == 0
