"""A log that cannot keep up: appends wait for room, then fail; no write is dropped or acked before its sync."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from storage import Durability, Engine, TopicConfig
from storage.errors import ShuttingDown, WalSaturated
from tests.support.sim_disk import Gate, SimDisk
from tests.unit.storage.machine import DATA, errors_among, options, outcome, records, seqs

FSYNC = TopicConfig(durability=Durability.FSYNC)
PATIENCE_S = 20
Task = asyncio.Task[Any]


@asynccontextmanager
async def stuck(engine: Engine, disk: SimDisk, op: str = "pwritev") -> AsyncIterator[Gate]:
    """The writer thread hangs in the disk during a write."""
    with disk.hold(op, "*/wal-*", times=1) as gate:
        first = asyncio.create_task(engine.append("t", records(1)))
        await asyncio.to_thread(gate.wait_held)
        yield gate
    await first


async def some_done(tasks: list[Task], count: int) -> tuple[set[Task], set[Task]]:
    """Done and pending tasks, shortly after this many are done."""
    async with asyncio.timeout(PATIENCE_S):
        while sum(each.done() for each in tasks) < count:
            await asyncio.sleep(0.005)
    return await asyncio.wait(tasks, timeout=0.5)


async def test_an_append_that_waits_too_long_for_room_fails_and_is_not_stored() -> None:
    disk = SimDisk()
    limits = options(wal_queue_frames=100, wal_enqueue_timeout_ms=10)
    async with Engine.open(DATA, limits, fs=disk) as engine:
        await engine.append("t", records(1), config=FSYNC)
        async with stuck(engine, disk):
            waiting = [asyncio.create_task(outcome(engine.append("t", records(30)))) for _ in range(6)]
            done, pending = await some_done(waiting, 4)
            refused = errors_among(each.result() for each in done)
            assert all(isinstance(each, WalSaturated) for each in refused)
            assert len(refused) == 4
            assert len(pending) == 2, "those that are in the queue wait for the disk"
        answers = [await each for each in pending]
        assert sorted(each.first_seq for each in answers) == [3, 33]
        assert await seqs(engine, "t") == list(range(1, 63))


async def test_deletes_are_bounded_like_writes() -> None:
    disk = SimDisk()
    limits = options(wal_queue_frames=30, wal_enqueue_timeout_ms=10)
    async with Engine.open(DATA, limits, fs=disk) as engine:
        await engine.append("t", records(5), config=FSYNC)
        async with stuck(engine, disk):
            deleting = [asyncio.create_task(outcome(engine.delete_records("t", before_seq=2))) for _ in range(60)]
            done, pending = await some_done(deleting, 30)
            assert all(isinstance(each, WalSaturated) for each in errors_among(each.result() for each in done))
            assert 30 <= len(done) < 60
            assert engine.shards[0].queued_frames <= 30
        assert sorted([(await each).deleted for each in pending])[-2:] == [0, 1]


async def test_an_append_that_waits_for_room_succeeds_when_the_disk_resumes() -> None:
    disk = SimDisk()
    limits = options(wal_queue_frames=100, wal_enqueue_timeout_ms=60_000)
    async with Engine.open(DATA, limits, fs=disk) as engine:
        await engine.append("t", records(1), config=FSYNC)
        async with stuck(engine, disk):
            waiting = [asyncio.create_task(engine.append("t", records(30))) for _ in range(8)]
            await asyncio.sleep(0)
            assert not any(each.done() for each in waiting)
        answers = await asyncio.gather(*waiting)
        assert sorted(each.first_seq for each in answers) == list(range(3, 243, 30))
        assert engine.shards[0].peak_frames <= 100


async def test_an_fsync_append_is_neither_acked_nor_readable_before_the_sync() -> None:
    disk = SimDisk()
    async with Engine.open(DATA, options(), fs=disk) as engine:
        await engine.append("t", records(1), config=FSYNC)
        async with stuck(engine, disk, "datasync"):
            waiting = asyncio.create_task(engine.append("t", records(1)))
            await asyncio.sleep(0)
            assert engine.state("t").head_seq == 1
            assert await seqs(engine, "t") == [1]
            assert not waiting.done()
        assert (await waiting).first_seq == 3


async def test_a_slow_sync_does_not_delay_disk_class_writes_of_its_group() -> None:
    disk = SimDisk()
    async with Engine.open(DATA, options(), fs=disk) as engine:
        await engine.append("slow", records(1), config=FSYNC)
        await engine.append("quick", records(1), config=TopicConfig(durability=Durability.DISK))
        with disk.hold("pwritev", "*/wal-*", times=1) as writing, disk.hold("datasync", "*/wal-*", times=1) as syncing:
            first = asyncio.create_task(engine.append("quick", records(1)))
            await asyncio.to_thread(writing.wait_held)
            slow = asyncio.create_task(engine.append("slow", records(1)))
            quick = asyncio.create_task(engine.append("quick", records(1)))
            await asyncio.sleep(0)
            writing.open()
            await asyncio.to_thread(syncing.wait_held)
            assert (await first).first_seq == 2
            assert (await quick).first_seq == 3
            assert not slow.done()
        assert (await slow).first_seq == 2


async def test_appends_that_wait_for_room_fail_at_shutdown() -> None:
    disk = SimDisk()
    limits = options(wal_queue_frames=20, wal_enqueue_timeout_ms=60_000)
    engine = Engine(DATA, limits, fs=disk)
    await engine.start()
    await engine.append("t", records(1), config=FSYNC)
    async with stuck(engine, disk):
        held = [asyncio.create_task(outcome(engine.append("t", records(10)))) for _ in range(4)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
    await closing
    outcomes = await asyncio.gather(*held)
    refused = errors_among(outcomes)
    assert len(refused) == 3
    assert all(isinstance(each, ShuttingDown) for each in refused)


async def test_every_promise_holds_with_real_threads_and_many_topics() -> None:
    disk = SimDisk()
    async with Engine.open(DATA, options(wal_shards=3), fs=disk) as engine:

        async def write(topic: int, count: int) -> None:
            durability = list(Durability)[topic % 4]
            for _ in range(count):
                await engine.append(f"t{topic}", records(2), config=TopicConfig(durability=durability))

        await asyncio.gather(*(write(topic, 15) for topic in range(12) for _ in range(2)))
        for topic in range(12):
            assert await seqs(engine, f"t{topic}") == list(range(1, 61))
        assert {engine.catalog.topics[f"t{topic}"].log.shard for topic in range(12)} == {0, 1, 2}
    async with Engine.open(DATA, options(wal_shards=3), fs=disk) as engine:
        for topic in range(12):
            state = engine.state(f"t{topic}")
            assert state.head_seq == 60
            assert state.count == (0 if state.config.durability is Durability.EPHEMERAL else 60)
