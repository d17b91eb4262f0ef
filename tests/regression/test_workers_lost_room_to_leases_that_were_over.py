"""A lease that ended before its worker had received the job counted as held for good, and the stream went silent."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, turns, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
@pytest.mark.parametrize("when", range(16))
async def test_a_lease_that_ends_at_any_moment_makes_room(machine: Machine, leases_durable: bool, when: int) -> None:
    engine = await with_jobs(machine, leases_durable=leases_durable)
    async with engine.queues.work("q", "w") as worker:
        pushed = asyncio.ensure_future(anext(worker))
        await turns()
        appending = asyncio.create_task(add(engine))
        await turns(when)
        while not (await engine.queues.nack("q", "w", [1], delay_ms=5000)).done:
            await asyncio.sleep(0)
            if pushed.done():
                break
        await appending
        await engine.queues.ack("q", "w", [1])
        await add(engine)
        await turns()
        job = await pushed
        if job.record.seq == 1:
            job = await asyncio.wait_for(anext(worker), 1)
        assert job.record.seq == 2
