"""A claim window in which nobody waited any more, or one of a paused queue, was over but never closed.

Its alarm rang again and again. A claim that would not wait at a paused queue was never answered.
"""

from __future__ import annotations

import asyncio

import pytest

from storage import Engine
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, claim_seqs, parked, turns, with_jobs

JITTER_MS = 200


async def rings(engine: Engine, machine: Machine) -> int:
    """How often something falls due at the same instant."""
    seen: list[int] = []
    alarms = engine.queues.alarms
    ring, alarms._ring = alarms._ring, seen.append  # pyright: ignore[reportPrivateUsage]

    def count(topic_id: int) -> None:
        seen.append(topic_id)
        ring(topic_id)

    alarms._ring = count  # pyright: ignore[reportPrivateUsage]
    await machine.clock.advance(JITTER_MS)
    await turns(100)
    return len(seen)


async def test_the_window_of_a_cancelled_claim_closes(machine: Machine) -> None:
    engine = await with_jobs(machine, claim_jitter_ms=JITTER_MS)
    leaving = await parked(engine)
    leaving.cancel()
    await turns()
    assert await rings(engine, machine) <= 1
    await add(engine)
    later = asyncio.create_task(claim_seqs(engine))
    await machine.clock.advance(JITTER_MS)
    assert await later == [1]


@pytest.mark.parametrize("wait_ms", [0, 10_000])
async def test_the_window_of_a_paused_queue_closes(machine: Machine, wait_ms: int) -> None:
    engine = await with_jobs(machine, 1, claim_jitter_ms=JITTER_MS)
    await engine.queues.pause("q")
    waiting = await parked(engine, wait_ms=wait_ms)
    assert await rings(engine, machine) <= 1
    assert waiting.done() == (not wait_ms)
    await engine.queues.resume("q")
    await machine.clock.advance(JITTER_MS)
    assert await waiting == ([1] if wait_ms else [])
