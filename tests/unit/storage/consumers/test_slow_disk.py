"""Other calls while a cursor frame, or the frame of a new consumer, waits for a slow disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import TopicIncompatible
from tests.support.sim_disk import SimDisk
from tests.unit.storage.consumers.consumed import FSYNC, STRICT, add, cursor, durable, every, known, take, turns
from tests.unit.storage.machine import DATA, WAL, options, outcome


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
async def engine(disk: SimDisk) -> AsyncIterator[Engine]:
    """An engine with a sync thread, so that the loop runs meanwhile."""
    async with Engine.open(DATA, options(gc_min_us=0, gc_max_us=0), fs=disk) as engine:
        await engine.put_topic("a", FSYNC)
        await add(engine, 20)
        yield engine


async def until_held(disk: SimDisk, engine: Engine) -> None:
    """A frame was submitted, and its outcome is not known yet."""
    async with asyncio.timeout(10):
        while not engine.shards[0].unresolved:
            await asyncio.sleep(0.001)


async def test_a_read_waits_for_the_pending_cursor_of_a_cancelled_strict_read(disk: SimDisk, engine: Engine) -> None:
    await engine.consumers.put("a", "c", STRICT)
    with disk.hold("datasync", f"{WAL}/*"):
        leaving = asyncio.ensure_future(take(engine, 2, attempt_key="k"))
        await until_held(disk, engine)
        behind = asyncio.ensure_future(take(engine, 2))
        leaving.cancel()
        await turns()
        assert leaving.cancelled()
        assert cursor(engine) == 0
    assert await behind == [3, 4]
    assert await take(engine, 2, attempt_key="k") == [1, 2]


async def test_a_topic_cannot_become_ephemeral_while_a_consumer_is_being_made(disk: SimDisk, engine: Engine) -> None:
    with disk.hold("datasync", f"{WAL}/*"):
        making = asyncio.ensure_future(engine.consumers.put("a", "c"))
        await until_held(disk, engine)
        changing = asyncio.ensure_future(outcome(engine.put_topic("a", TopicConfig(durability=Durability.EPHEMERAL))))
        await turns()
    await making
    assert isinstance(await changing, TopicIncompatible)
    assert engine.state("a").config == FSYNC


async def test_reads_of_different_consumers_do_not_wait_for_each_other(disk: SimDisk, engine: Engine) -> None:
    await engine.consumers.put("a", "c", STRICT)
    await engine.consumers.put("a", "d", every(10))
    with disk.hold("datasync", f"{WAL}/*"):
        waiting = asyncio.ensure_future(take(engine, 2))
        await until_held(disk, engine)
        assert await take(engine, 3, name="d") == [1, 2, 3]
        assert await take(engine, 3, checkpoint=False) == [1, 2, 3]
        assert not waiting.done()
    assert await waiting == [1, 2]


async def test_reads_continue_during_a_cursor_write_up_to_persist_every(disk: SimDisk, engine: Engine) -> None:
    await engine.consumers.put("a", "c", every(6))
    with disk.hold("datasync", f"{WAL}/*"):
        assert await take(engine, 3) == [1, 2, 3]
        assert await take(engine, 2) == [4, 5]
        assert known(engine).writing == 3
        assert await take(engine, 1) == [6]
        waiting = asyncio.ensure_future(take(engine, 2))
        await turns()
        assert not waiting.done()
        assert (cursor(engine), durable(engine)) == (6, 0)
    assert await waiting == [7, 8]
    assert durable(engine) == 3


async def test_a_seek_is_not_undone_by_a_cursor_frame_in_flight(disk: SimDisk, engine: Engine) -> None:
    await engine.consumers.put("a", "c", every(4))
    with disk.hold("datasync", f"{WAL}/*"):
        await take(engine, 2)
        await take(engine, 1)
        seeking = asyncio.ensure_future(engine.consumers.seek("a", "c", seq=1))
        await turns()
    await seeking
    assert (cursor(engine), durable(engine), known(engine).unpersisted) == (1, 1, 0)
    assert await take(engine, 2) == [2, 3]
