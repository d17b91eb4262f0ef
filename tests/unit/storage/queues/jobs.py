"""A queue on a simulated machine: shared helpers of the queue tests."""

from __future__ import annotations

import asyncio
from typing import Any

from storage import Durability, Engine, TopicConfig, TopicType
from storage.queues.prefetched import PrefetchedRecords
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine, record

LONG_MS = 30_000
#: Turns of the loop within which everything is done that can be done at once.
MANY_TURNS = 60


def config(**settings: Any) -> TopicConfig:
    """A queue of class fsync."""
    return TopicConfig(**{"type": TopicType.QUEUE, "durability": Durability.FSYNC, **settings})


async def with_jobs(machine: Machine, count: int = 0, **settings: Any) -> Engine:
    """An engine with the queue `q` and this many jobs."""
    engine = await machine.start()
    await engine.put_topic("q", config(**settings))
    if count:
        await add(engine, count)
    return engine


async def add(engine: Engine, count: int = 1, **more: Any) -> None:
    await engine.append("q", [record(n, **more) for n in range(count)])


async def claim(engine: Engine, most: int = 1, node: str = "n", **more: Any) -> list[tuple[int, int]]:
    """(seq, token) of each returned job."""
    claimed = await engine.queues.claim("q", node, max=most, **more)
    return [(job.record.seq, job.lease_id) for job in claimed.jobs]


async def claim_seqs(engine: Engine, most: int = 1, node: str = "n", **more: Any) -> list[int]:
    return [seq for seq, _ in await claim(engine, most, node, **more)]


async def parked(engine: Engine, most: int = 1, node: str = "p", **more: Any) -> asyncio.Task[list[int]]:
    """A claim that waits. Returns its seqs."""
    task = asyncio.create_task(claim_seqs(engine, most, node, **{"wait_ms": LONG_MS, **more}))
    await turns()
    assert not task.done(), task
    return task


async def turns(count: int = MANY_TURNS) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def states(engine: Engine) -> dict[int, JobState]:
    return {view.seq: view.state for view in engine.queues.leases("q", limit=1000)}


async def flushed(machine: Machine, count: int, *, in_log: bool = False, **settings: Any) -> Engine:
    """Jobs whose records are in segments, ten in each."""
    engine = await machine.start(
        segment_max_events=10, checkpoint_records=10**6 if in_log else 1, tail_cache_bytes=0 if in_log else 1 << 20
    )
    await engine.put_topic("q", config(**settings))
    await add(engine, count)
    if not in_log:
        await engine.segment_worker.flush_all()
    assert engine.topic("q").log.held.flushed == (0 if in_log else count)
    assert in_log is not bool(engine.cache.max_bytes)
    return engine


def kept(engine: Engine) -> dict[int, PrefetchedRecords]:
    queues = engine.queues.ahead._queues  # pyright: ignore[reportPrivateUsage]
    return {topic_id: ahead.prefetched for topic_id, ahead in queues.items()}
