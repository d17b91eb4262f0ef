"""The reason of a nack was lost over a clean stop, because snapshots did not contain it. If a lower `max_deliveries`
then sent the job to the dead letter topic, it had no `$dead_letter_reason`."""

from __future__ import annotations

import asyncio

import pytest

from storage import ReadQuery
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim, config, turns, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
async def test_reason_reaches_the_dead_letter_after_a_restart(leases_durable: bool) -> None:
    async with Machine() as machine:
        changes = {"leases_durable": leases_durable, "dead_letter": "dead"}
        engine = await with_jobs(machine, 2, **changes)
        [(_, lease_id), _] = await claim(engine, 2)
        assert (await engine.queues.nack("q", "n", [1], lease_ids=[lease_id], reason="no such tea")).done == [1]

        engine = await machine.restart()
        await engine.put_topic("q", config(**changes, max_deliveries=1))
        async with asyncio.timeout(5):
            while "dead" not in engine.catalog.topics or engine.queues.figures("q").dead_pending:
                await turns()
        [letter] = (await engine.read("dead", ReadQuery(from_seq=0))).records
        assert letter.meta["$dead_letter_reason"] == "no such tea"
