"""A full disk, seen from outside: writes are refused, deletes and reads work, and appends resume by themselves."""

from __future__ import annotations

import asyncio
import errno

import pytest

from storage import Durability, Engine, ReadQuery, TagMatch, TopicConfig
from storage.errors import StorageFailed, StorageFull
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, errors_among, log_of, outcome, record, records, seqs, sized

FSYNC = TopicConfig(durability=Durability.FSYNC)


async def a_full_machine(machine: Machine, **changes: int) -> Engine:
    """Two topics with records, and then no space for anything."""
    engine = await machine.start(**changes)
    await engine.append("t", [record(n, tag="x" if n % 2 else "y") for n in range(10)], config=FSYNC)
    await engine.append("gone", records(3), config=FSYNC)
    machine.disk.capacity_bytes = machine.disk.used_bytes
    outcomes = [await outcome(engine.append("t", [sized(60_000)])) for _ in range(6)]
    assert isinstance(outcomes[-1], StorageFull)
    assert engine.shards[0].log.full
    return engine


async def test_writes_on_a_full_disk_are_refused_without_a_seq(machine: Machine) -> None:
    engine = await a_full_machine(machine)
    head = engine.state("t").head_seq
    outcomes = await asyncio.gather(
        outcome(engine.append("t", records(1))),
        outcome(engine.append("new", records(1))),
        outcome(engine.put_topic("new")),
        outcome(engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, ttl_ms=10**9))),
    )
    assert all(isinstance(each, StorageFull) for each in outcomes)
    assert all(each.outcome == "none" for each in errors_among(outcomes))
    assert (engine.state("t").head_seq, log_of(engine, "t").assigned_head) == (head, head)
    assert [each.topic for each in engine.topics()] == ["gone", "t"]


async def test_reads_continue_on_a_full_disk(machine: Machine) -> None:
    engine = await a_full_machine(machine, tail_cache_bytes=0)
    assert (await seqs(engine, "t"))[:10] == list(range(1, 11))
    assert (await engine.read_one("t", 4)).body == b'{"data":3}'


async def test_deleting_records_and_topics_continues_on_a_full_disk(machine: Machine) -> None:
    engine = await a_full_machine(machine)
    assert (await engine.delete_records("t", before_seq=4)).deleted == 3
    assert (await engine.delete_records("t", match=TagMatch(b"x"))).deleted == 4
    assert await engine.delete_topic("gone")
    left = await seqs(engine, "t")
    machine.disk.capacity_bytes = None
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == left
    assert [each.topic for each in engine.topics()] == ["t"]


async def test_appends_resume_without_a_restart_when_there_is_space(machine: Machine) -> None:
    engine = await a_full_machine(machine)
    await engine.delete_records("t", before_seq=4)
    head = engine.state("t").head_seq
    await machine.clock.advance(5000)
    assert isinstance(await outcome(engine.append("t", records(1))), StorageFull)
    machine.disk.capacity_bytes = None
    await machine.clock.advance(600)
    assert (await engine.append("t", records(1))).first_seq == head + 1
    engine = await machine.cut_power(Loss.DROP)
    assert engine.state("t").head_seq == head + 1


async def test_pending_writes_are_refused_as_a_whole_when_the_disk_fills_up(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2), config=FSYNC)
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    machine.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    outcomes = await asyncio.gather(*(outcome(engine.append("t", records(2))) for _ in range(5)))
    assert [type(each) for each in outcomes] == [StorageFull] * 5
    assert engine.state("t").head_seq == 2
    machine.disk.clear_faults()
    await machine.clock.advance(600)
    answers = await asyncio.gather(*(engine.append("t", records(2)) for _ in range(5)))
    assert [each.first_seq for each in answers] == [3, 5, 7, 9, 11]
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == list(range(1, 13))


async def test_a_start_without_space_reads_and_deletes(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=FSYNC)
    await machine.close()
    machine.disk.capacity_bytes = machine.disk.used_bytes
    engine = await machine.start()
    assert engine.ready
    assert await seqs(engine, "t") == [1, 2, 3, 4, 5]
    assert isinstance(await outcome(engine.append("t", records(1))), StorageFull)
    assert (await engine.delete_records("t", before_seq=3)).deleted == 2
    machine.disk.capacity_bytes = None
    await machine.clock.advance(600)
    assert (await engine.append("t", records(1))).first_seq == 6


async def test_other_shards_continue(machine: Machine) -> None:
    engine = await machine.start(wal_shards=2)
    names = [f"t{n}" for n in range(6)]
    for name in names:
        await engine.append(name, records(1), config=FSYNC)
    machine.disk.fail("pwritev", "*/shard-01/wal-*", errno=errno.ENOSPC, sticky=True)
    machine.disk.fail("allocate", "*/shard-01/*", errno=errno.ENOSPC, sticky=True)
    for name in names:
        await outcome(engine.append(name, records(1)))
    heads = {name: engine.state(name).head_seq for name in names}
    shards = {name: log_of(engine, name).shard for name in names}
    assert heads == {name: 1 if shard == 1 else 2 for name, shard in shards.items()}
    assert set(shards.values()) == {0, 1}


# -- a disk that fails -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["pwritev", "datasync"])
async def test_a_failed_disk_stops_its_shard_and_rolls_heads_back(machine: Machine, op: str) -> None:
    engine = await machine.start(wal_shards=2)
    told: list[tuple[int, int | None]] = []
    engine.on_shard_failed = lambda shard, number: told.append((shard, number))
    names = [f"t{n}" for n in range(6)]
    for name in names:
        await engine.append(name, records(2), config=FSYNC)
    machine.disk.fail(op, "*/shard-01/wal-*", errno=errno.EIO)
    for name in names:
        await outcome(engine.append(name, records(1)))
    shards = {name: log_of(engine, name).shard for name in names}
    for name, shard in shards.items():
        log = log_of(engine, name)
        assert log.head == log.assigned_head == (2 if shard == 1 else 3)
        assert len(await seqs(engine, name)) == log.head, "reads go on"
    assert engine.failed_shards == told == [(1, errno.EIO)]
    broken = next(name for name, shard in shards.items() if shard == 1)
    for work in (
        engine.append(broken, records(1)),
        engine.delete_records(broken, before_seq=1),
        engine.delete_topic(broken),
        engine.put_topic(broken, TopicConfig(ttl_ms=10**9)),
    ):
        error = await outcome(work)
        assert isinstance(error, StorageFailed)
        assert error.detail["outcome"] == "unknown"
    for n in range(20):
        await engine.append(f"new{n}", records(1))
        assert log_of(engine, f"new{n}").shard == 0, "ids of the stopped shard are skipped"


async def test_a_keyed_retry_after_a_restart_resolves_a_write_of_unknown_outcome(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2), config=FSYNC)
    machine.disk.fail("datasync", "*/wal-*", errno=errno.EIO)
    assert isinstance(await outcome(engine.append("t", records(1), idempotency_key="k")), StorageFailed)
    engine = await machine.kill()
    assert engine.failed_shards == []
    answer = await engine.append("t", records(1), idempotency_key="k")
    assert answer.first_seq == 3
    assert await seqs(engine, "t") == [1, 2, 3]


async def test_a_failed_shard_makes_no_clean_stop(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2), config=TopicConfig(durability=Durability.DISK))
    await engine.append("t", records(1))
    machine.disk.fail("datasync", "*/wal-*", errno=errno.EIO)
    await machine.clock.advance(200)
    assert engine.failed_shards == [(0, errno.EIO)]
    engine = await machine.restart()
    state = engine.state("t")
    assert state.head_seq >= 3
    answer = await engine.append("t", records(1))
    assert answer.first_seq == state.head_seq + 1
    result = await engine.read("t", ReadQuery(from_seq=answer.first_seq - 1))
    assert [each.seq for each in result.records] == [answer.first_seq]
