"""A redrive whose queue was deleted meanwhile called off its moves, but counted them as done."""

from __future__ import annotations

import asyncio

import pytest

from storage import ReadQuery
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, turns, with_jobs


@pytest.mark.parametrize("when", range(1, 30, 2))
async def test_a_redrive_during_the_deletion_of_its_queue_counts_only_moved_jobs(machine: Machine, when: int) -> None:
    engine = await with_jobs(machine, 3, max_deliveries=1, dead_letter="dead")
    await engine.queues.nack("q", "n", await claim_seqs(engine, 3))
    await turns(400)
    redriving = asyncio.create_task(engine.queues.redrive("q"))
    await turns(when)
    await engine.delete_topic("q")
    [done] = await asyncio.gather(redriving, return_exceptions=True)
    await turns(400)
    left = len((await engine.read("dead", ReadQuery())).records)
    if not isinstance(done, BaseException):
        assert done.moved == 3 - left
