"""Waiting for records: a waiter wakes when records are readable, and fails when its topic or the engine ends."""

from __future__ import annotations

import asyncio
import errno

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import NotReady, ShuttingDown, StorageFailed, TopicNotFound
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, Machine, options, outcome, record, records

LONG_MS = 60_000
CLASSES = pytest.mark.parametrize("durability", list(Durability))


async def parked(engine: Engine, seq: int = 0, name: str = "t") -> asyncio.Task[bool]:
    task = asyncio.create_task(engine.wait_beyond(name, seq, LONG_MS))
    await asyncio.sleep(0)
    return task


async def test_existing_records_are_not_waited_for(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3))
    assert await engine.wait_beyond("t", 2, 0)
    assert await engine.wait_beyond("t", 0, LONG_MS)


@pytest.mark.parametrize("wait_ms", [0, 1])
async def test_a_wait_without_new_records_times_out(machine: Machine, wait_ms: int) -> None:
    engine = await machine.start()
    await engine.append("t", records(3))
    assert not await engine.wait_beyond("t", 3, wait_ms)
    assert not await engine.wait_beyond("t", 100, wait_ms)


@CLASSES
async def test_an_append_wakes_all_waiters(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=durability))
    waiting = [await parked(engine) for _ in range(5)]
    await engine.append("t", [record()])
    assert await asyncio.gather(*waiting) == [True] * 5


async def test_a_waiter_for_a_later_seq_keeps_waiting(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    waiting = await parked(engine, 2)
    for _ in range(2):
        await engine.append("t", [record()])
        await asyncio.sleep(0)
        assert not waiting.done()
    await engine.append("t", [record()])
    assert await waiting


async def test_a_woken_waiter_reads_the_new_record(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")

    async def follow() -> list[int]:
        seen: list[int] = []
        while len(seen) < 50:
            await engine.wait_beyond("t", seen[-1] if seen else 0, LONG_MS)
            record_ = await engine.read_one("t", (seen[-1] if seen else 0) + 1)
            seen.append(record_.seq)
        return seen

    following = [asyncio.create_task(follow()) for _ in range(3)]
    for n in range(50):
        await engine.append("t", [record(n)])
        if n % 7 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await asyncio.gather(*following) == [list(range(1, 51))] * 3


async def test_appends_to_other_topics_wake_no_waiter(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    waiting = await parked(engine)
    await engine.append("other", [record()])
    await engine.delete_records("t", before_seq=1)
    await asyncio.sleep(0)
    assert not waiting.done()
    await engine.append("t", [record()])
    assert await waiting


async def test_waiters_fail_when_their_topic_is_deleted(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    waiting = [await parked(engine) for _ in range(3)]
    await engine.delete_topic("t")
    for each in waiting:
        with pytest.raises(TopicNotFound) as caught:
            await each
        assert caught.value.detail == {"topic": "t"}


async def test_a_waiter_on_a_deleted_topic_ignores_the_recreated_topic(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3))
    waiting = await parked(engine, 3)
    await engine.delete_topic("t")
    await engine.append("t", records(9))
    assert isinstance(await outcome(waiting), TopicNotFound)
    assert await engine.wait_beyond("t", 3, 0)


async def test_present_and_later_waiters_fail_at_shutdown(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    waiting = [await parked(engine) for _ in range(3)]
    engine.begin_shutdown()
    for each in waiting:
        with pytest.raises(ShuttingDown):
            await each
    with pytest.raises(ShuttingDown):
        await engine.wait_beyond("t", 0, LONG_MS)
    assert (await engine.append("t", [record()])).first_seq == 1, "everything else goes on until close"


async def test_waiters_fail_when_the_engine_closes(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    waiting = await parked(engine)
    await machine.close()
    assert isinstance(await outcome(waiting), ShuttingDown)


async def test_a_cancelled_waiter_is_removed(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    gone, stays = await parked(engine), await parked(engine)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await engine.append("t", [record()])
    assert await stays


async def test_a_timed_out_waiter_is_removed(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    assert not await engine.wait_beyond("t", 0, 0)
    waiting = await parked(engine)
    await engine.append("t", [record()])
    assert await waiting


async def test_a_failed_append_does_not_wake_waiters(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record()], config=TopicConfig(durability=Durability.FSYNC))
    waiting = await parked(engine, 1)
    machine.disk.fail("datasync", errno=errno.EIO)
    assert isinstance(await outcome(engine.append("t", [record()])), StorageFailed)
    assert not waiting.done()
    engine.begin_shutdown()
    assert isinstance(await outcome(waiting), ShuttingDown)


async def test_calls_on_an_engine_before_its_start_fail_with_not_ready() -> None:
    engine = Engine(DATA, options(), fs=SimDisk(), clock=FakeClock(), threaded=False)
    for work in (engine.wait_beyond("t", 0, 0), engine.append("t", [record()]), engine.read_one("t", 1)):
        with pytest.raises(NotReady):
            await work
    await engine.close()
