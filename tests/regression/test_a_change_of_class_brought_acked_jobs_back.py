"""What is acked or moved while an ephemeral queue is written to the log is so after a crash, too."""

from __future__ import annotations

import asyncio

import pytest

from storage import Durability, TopicConfig
from tests.unit.storage.machine import Machine, data
from tests.unit.storage.queues.jobs import claim_seqs, config, states, turns, with_jobs


@pytest.mark.parametrize("when", range(6))
async def test_an_acked_job_stays_acked(when: int) -> None:
    async with Machine() as machine:
        engine = await with_jobs(machine, 2, durability=Durability.EPHEMERAL)
        await claim_seqs(engine, 2)
        acks = [asyncio.create_task(engine.queues.ack("q", "n", each)) for each in ([1], [1, 2])]
        await turns(when)
        await engine.put_topic("q", config(durability=Durability.DISK))
        for each in acks:
            await each
        assert not states(await machine.kill())


@pytest.mark.parametrize("when", range(12))
async def test_a_dead_letter_is_moved_and_not_in_the_queue_again(when: int) -> None:
    async with Machine() as machine:
        dead = {"max_deliveries": 1, "dead_letter": "dead"}
        engine = await with_jobs(machine, 2, durability=Durability.EPHEMERAL, **dead)
        await engine.put_topic("dead", TopicConfig(durability=Durability.FSYNC))
        await claim_seqs(engine, 2)
        await engine.queues.nack("q", "n", [1, 2])
        await turns(when)
        await engine.put_topic("q", config(durability=Durability.DISK, **dead))
        await turns(200)
        engine = await machine.kill()
        await turns(200)
        assert (states(engine), sorted(await data(engine, "dead"))) == ({}, [0, 1])
