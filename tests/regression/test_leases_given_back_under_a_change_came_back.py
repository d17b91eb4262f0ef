"""Leases ended while the leases of their queue were being made durable. They were written with their old state, and
came back."""

from __future__ import annotations

import asyncio

import pytest

from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim, claim_seqs, config, states, turns, with_jobs


@pytest.mark.parametrize("when", range(14))
async def test_a_stream_that_ends_during_the_change_returns_its_jobs(machine: Machine, when: int) -> None:
    engine = await with_jobs(machine, 1)
    async with engine.queues.work("q", "w") as worker:
        assert (await anext(worker)).record.seq == 1
        changing = asyncio.create_task(engine.put_topic("q", config(leases_durable=True)))
        await turns(when)
    await changing
    await turns()
    assert states(engine) == {1: JobState.READY}
    engine = await machine.kill()
    assert await claim_seqs(engine) == [1]


async def test_a_stream_keeps_its_maximum_of_jobs_over_a_change_to_durable_leases(machine: Machine) -> None:
    engine = await with_jobs(machine, 3)
    async with engine.queues.work("q", "w", max=2) as worker:
        assert [(await anext(worker)).record.seq for _ in range(2)] == [1, 2]
        await engine.put_topic("q", config(leases_durable=True))
        third = asyncio.ensure_future(anext(worker))
        await turns()
        assert not third.done()
        await engine.queues.ack("q", "w", [1])
        assert (await third).record.seq == 3
    await turns()
    assert states(engine) == dict.fromkeys((2, 3), JobState.READY)


@pytest.mark.parametrize("when", range(14))
async def test_a_nack_after_a_pending_ack_is_kept_over_a_change_to_durable_leases(machine: Machine, when: int) -> None:
    engine = await with_jobs(machine, 2)
    await claim(engine, 2)
    calls = [
        asyncio.create_task(engine.queues.ack("q", "n", [1])),
        asyncio.create_task(engine.queues.nack("q", "n", [1, 2], delay_ms=0)),
    ]
    await turns(when)
    await engine.put_topic("q", config(leases_durable=True))
    assert [(await call).done for call in calls] == [[1], [2]]
    await turns()
    assert states(engine) == {2: JobState.READY}
