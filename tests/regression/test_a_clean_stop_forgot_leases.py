"""Leases of a queue without leases_durable survive a clean stop, but sometimes they were lost.

Some frames belong to no topic's section: a checkpoint mark, or the rest of the log of a deleted topic. Recovery took
such a frame for one written after the snapshot of the stop, although the snapshot covered it. It concluded that the
snapshot was not the last state, and voided every lease.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from storage import TopicConfig, TopicType
from storage.engine import Engine
from tests.unit.storage.machine import Machine, records


async def mark_flushed(engine: Engine) -> None:
    """Only the queue is due for a checkpoint. The other topic's record keeps the mark in the replayed part of the
    log."""
    await engine.append("queue", records(5))
    await engine.segment_worker.tick()


async def delete(engine: Engine) -> None:
    await engine.append("gone", records(5))
    await engine.segment_worker.tick()
    await engine.delete_topic("gone")


@pytest.mark.parametrize("happens", [mark_flushed, delete])
async def test_a_lease_survives_a_clean_stop_with_frames_of_other_and_deleted_topics(
    happens: Callable[[Engine], Awaitable[None]],
) -> None:
    async with Machine() as machine:
        engine = await machine.start(checkpoint_records=5)
        await engine.append("kept", records(1))
        await engine.put_topic("queue", TopicConfig(type=TopicType.QUEUE))
        await engine.append("queue", records(2))
        await happens(engine)
        [job] = (await engine.queues.claim("queue", "worker", lease_ms=60_000)).jobs
        engine = await machine.restart(checkpoint_records=5)
        settled = await engine.queues.ack("queue", "worker", [job.record.seq], lease_ids=[job.lease_id])
        assert settled.done == [job.record.seq]


async def test_a_kill_after_the_snapshot_of_a_clean_stop_voids_leases() -> None:
    async with Machine() as machine:
        engine = await machine.start(checkpoint_records=5)
        await engine.put_topic("queue", TopicConfig(type=TopicType.QUEUE))
        await engine.append("queue", records(5))
        [job] = (await engine.queues.claim("queue", "worker", lease_ms=60_000)).jobs
        engine = await machine.restart(checkpoint_records=5)
        await engine.put_topic("new", TopicConfig())
        engine = await machine.kill(checkpoint_records=5)
        settled = await engine.queues.ack("queue", "worker", [job.record.seq], lease_ids=[job.lease_id])
        assert settled.done == []
