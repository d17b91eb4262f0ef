"""A job that died just as the last move out of its queue ended was not moved until something else happened."""

from __future__ import annotations

import pytest

from tests.unit.storage.machine import Machine, record
from tests.unit.storage.queues.jobs import claim, turns, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
async def test_a_job_that_dies_around_the_end_of_a_move_is_moved(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, max_deliveries=1, dead_letter="dead", leases_durable=leases_durable)
    dead = 0
    for when in range(60):
        await engine.append("q", [record(when), record(when)])
        (one, _), (two, _) = await claim(engine, 2)
        await engine.queues.nack("q", "n", [one])
        await turns(when)
        await engine.queues.nack("q", "n", [two])
        await turns(200)  # and no request arrives
        dead += 2
        assert engine.state("dead").count == dead, when
