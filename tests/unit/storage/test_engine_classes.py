"""Changing the durability class, in all directions: promises are kept, and no seq is assigned twice."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import StorageFull
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, data, log_of, outcome, record, records, seqs, sized

CHANGES = pytest.mark.parametrize(("old", "new"), list(itertools.permutations(Durability, 2)))


def config(durability: Durability, **more: int) -> TopicConfig:
    return TopicConfig(durability=durability, **more)


@CHANGES
async def test_records_seqs_and_figures_stay(machine: Machine, old: Durability, new: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", [record(n, tag="x") for n in range(5)], config=config(old))
    before = engine.state("t")
    state, created = await engine.put_topic("t", config(new))
    assert not created
    assert (state.head_seq, state.count, state.bytes, state.epoch) == (5, 5, 5, before.epoch)
    assert state.config.durability is new
    assert await data(engine, "t") == [0, 1, 2, 3, 4]
    assert (await engine.append("t", [record(5)])).first_seq == 6
    assert await data(engine, "t") == [0, 1, 2, 3, 4, 5]


@CHANGES
async def test_promised_records_survive_a_crash_after_a_change_of_class_and_seqs_continue(
    machine: Machine, old: Durability, new: Durability
) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=config(old))
    await engine.put_topic("t", config(new))
    await engine.append("t", records(3))
    engine = await machine.cut_power(Loss.DROP)
    kept = {Durability.FSYNC: 8}.get(new, 5)
    state = engine.state("t")
    assert state.config.durability is new
    assert state.count == kept, "the change of class was answered after a sync of all before it"
    assert state.head_seq >= 8, "a seq that was given out is never given out again"
    if new is Durability.FSYNC:
        assert state.head_seq == 8, "the last frame of the fsync class is its head"
    answer = await engine.append("t", [record("next")])
    assert answer.first_seq == state.head_seq + 1
    lost = await engine.read("t", ReadQuery(from_seq=kept))
    if kept < state.head_seq:
        assert lost.tombstone is not None
        assert (lost.tombstone.gap_from, lost.tombstone.gap_to) == (kept + 1, state.head_seq)
        assert lost.tombstone.reason == "crash"
    assert [each.seq for each in lost.records] == [answer.first_seq]


@CHANGES
async def test_a_clean_stop_after_a_change_of_class_loses_only_ephemeral_records(
    machine: Machine, old: Durability, new: Durability
) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=config(old))
    await engine.put_topic("t", config(new))
    await engine.append("t", records(3))
    engine = await machine.restart()
    state = engine.state("t")
    assert (state.head_seq, state.count) == (8, 5 if new is Durability.EPHEMERAL else 8)


async def test_to_fsync_answers_after_a_sync(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=config(Durability.DISK))
    before = engine.shards[0].log.stats.fsyncs
    await engine.put_topic("t", config(Durability.FSYNC))
    assert engine.shards[0].log.stats.fsyncs == before + 1
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == [1, 2, 3, 4, 5]


async def test_writes_during_a_change_of_class_have_the_old_or_the_new_class(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(1), config=config(Durability.EPHEMERAL))
    work = [
        engine.append("t", records(2)),
        engine.put_topic("t", config(Durability.FSYNC)),
        *(engine.append("t", records(2)) for _ in range(5)),
        engine.put_topic("t", config(Durability.EPHEMERAL)),
        *(engine.append("t", records(2)) for _ in range(5)),
    ]
    await asyncio.gather(*work)
    head = engine.state("t").head_seq
    assert head == 23
    assert await seqs(engine, "t") == list(range(1, 24))
    durable = log_of(engine, "t").durable_head
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == list(range(1, durable + 1))


# -- what an ephemeral topic takes along -------------------------------------------------------------------------


async def test_records_evicted_or_deleted_in_memory_stay_gone_after_a_write_out(machine: Machine) -> None:
    engine = await machine.start()
    tags = ["x", None, "x", None, None, "x", None, None]
    await engine.append("t", [record(n, tag=tag) for n, tag in enumerate(tags)], config=config(Durability.EPHEMERAL))
    await engine.delete_records("t", match=TagMatch(b"x"))
    await engine.delete_records("t", before_seq=3)
    await engine.put_topic("t", config(Durability.FSYNC))
    assert await seqs(engine, "t") == [4, 5, 7, 8]
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == [4, 5, 7, 8]
    state = engine.state("t")
    assert (state.count, state.bytes, state.earliest_seq, state.evict_floor) == (4, 4, 4, 1)
    assert (await engine.delete_records("t", match=TagMatch(b"x"))).deleted == 0


async def test_tags_are_found_after_a_write_out(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(tag="x"), record(tag="y")], config=config(Durability.EPHEMERAL))
    await engine.put_topic("t", config(Durability.FSYNC))
    engine = await machine.kill()
    assert (await engine.delete_records("t", match=TagMatch(b"y"))).deleted == 1
    assert await seqs(engine, "t") == [1]


async def test_idempotency_keys_are_found_after_a_write_out(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2), idempotency_key="k", config=config(Durability.EPHEMERAL))
    await engine.put_topic("t", config(Durability.FSYNC))
    engine = await machine.cut_power(Loss.DROP)
    assert (await engine.append("t", records(2), idempotency_key="k")).deduped


async def test_repeated_changes_of_class_keep_all_records(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", config(Durability.DISK))
    head = 0
    for round_ in range(6):
        durability = Durability.EPHEMERAL if round_ % 2 else Durability.FSYNC
        await engine.put_topic("t", config(durability))
        head = (await engine.append("t", [record(round_)] * 3)).last_seq
    await engine.put_topic("t", config(Durability.FSYNC))
    engine = await machine.cut_power(Loss.DROP)
    assert engine.state("t").head_seq == head == 18
    assert await data(engine, "t") == [n for n in range(6) for _ in range(3)]


async def test_a_change_of_class_refused_for_space_can_be_repeated(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [sized(20_000) for _ in range(3)], config=config(Durability.EPHEMERAL))
    await engine.append("t", [sized(20_000) for _ in range(3)])
    machine.disk.capacity_bytes = machine.disk.used_bytes
    machine.disk.fail("pwritev", "*/wal-*", errno=28)
    assert isinstance(await outcome(engine.put_topic("t", config(Durability.FSYNC))), StorageFull)
    assert engine.state("t").config.durability is Durability.EPHEMERAL
    assert await seqs(engine, "t") == [1, 2, 3, 4, 5, 6]
    machine.disk.capacity_bytes = None
    await machine.clock.advance(1000)
    await engine.put_topic("t", config(Durability.FSYNC))
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == [1, 2, 3, 4, 5, 6]
    assert engine.state("t").count == 6


async def test_older_durable_records_survive_a_time_in_memory(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=config(Durability.FSYNC))
    await engine.put_topic("t", config(Durability.EPHEMERAL))
    await engine.append("t", records(4))
    engine = await machine.restart()
    result = await engine.read("t", ReadQuery())
    assert [each.seq for each in result.records] == [1, 2, 3]
    assert (result.tombstone, result.next_from_seq) == (None, 3)
    behind = await engine.read("t", ReadQuery(from_seq=3))
    assert behind.tombstone is not None
    assert (behind.tombstone.gap_from, behind.tombstone.gap_to, behind.tombstone.reason) == (4, 7, "crash")
    assert behind.next_from_seq == 7
