"""A full group of dead jobs that could not be moved kept all later dead jobs from being tried."""

from __future__ import annotations

from storage import Discard, TopicConfig
from storage.queues.dead_letter import SIDE_BY_SIDE
from tests.unit.storage.machine import Machine, sized
from tests.unit.storage.queues.jobs import claim_seqs, turns, with_jobs


async def test_dead_jobs_after_immovable_jobs_are_moved(machine: Machine) -> None:
    engine = await with_jobs(machine, max_deliveries=1, dead_letter="dead")
    await engine.put_topic("dead", TopicConfig(cap_bytes=2000, discard=Discard.REJECT))
    await engine.append("q", [sized(3000) for _ in range(SIDE_BY_SIDE)])
    await engine.append("q", [sized(10)])
    seqs = await claim_seqs(engine, SIDE_BY_SIDE + 1)
    await engine.queues.nack("q", "n", seqs)
    await turns(600)
    for _ in range(3):
        await machine.clock.advance(1000)  # the refused moves are tried again
    await turns(600)
    assert engine.state("dead").count == 1
    assert engine.queues.figures("q").dead_pending == SIDE_BY_SIDE
