"""Several repeats of a claim waited for its answer. The answer was empty, and then each repeat continued alone, so one
key got two answers."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, claim_seqs, parked, turns, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
async def test_repetitions_of_a_waiting_claim_get_the_same_job(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, leases_durable=leases_durable)
    first = asyncio.create_task(claim_seqs(engine, node="p", wait_ms=200, attempt_key="k"))
    await turns()
    others = [await parked(engine, attempt_key="k") for _ in range(3)]
    assert await first == []
    await turns()
    await add(engine, 5)
    assert [await other for other in others] == [[1], [1], [1]]
    assert engine.queues.figures("q").in_flight == 1
