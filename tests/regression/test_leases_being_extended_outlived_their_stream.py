"""A worker left while an extension of its lease was being written. It kept the job for the whole extension."""

from __future__ import annotations

import asyncio

import pytest

from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, states, turns, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
@pytest.mark.parametrize("when", range(0, 12))
async def test_a_job_is_ready_when_its_stream_ends_during_an_extension(
    machine: Machine, leases_durable: bool, when: int
) -> None:
    engine = await with_jobs(machine, 1, leases_durable=leases_durable)
    async with engine.queues.work("q", "w") as worker:
        assert (await anext(worker)).record.seq == 1
        extending = asyncio.create_task(engine.queues.extend("q", "w", [1], 600_000))
        await turns(when)
    await extending
    await turns()
    assert states(engine) == {1: JobState.READY}
    assert await claim_seqs(engine) == [1]
