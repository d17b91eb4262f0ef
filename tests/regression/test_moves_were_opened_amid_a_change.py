"""A move was opened while its queue was being changed. After the change the job might live on, and be delivered
again."""

from __future__ import annotations

import asyncio

from storage import TopicConfig
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, turns, with_jobs


async def test_a_move_waits_for_the_change(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, max_deliveries=1, dead_letter="dead")
    await engine.put_topic("dead", TopicConfig())
    assert await claim_seqs(engine) == [1]
    topic = engine.topic("q")
    change: asyncio.Future[None] = engine.loop.create_future()
    await engine.queues.nack("q", "n", [1])
    engine.changing[topic.topic_id] = change  # pyright: ignore[reportArgumentType]
    await turns(200)
    assert not topic.log.moves.out
    assert engine.state("dead").count == 0
    del engine.changing[topic.topic_id]
    change.set_result(None)
    await turns(200)
    assert engine.state("dead").count == 1
