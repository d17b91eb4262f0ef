"""Two simultaneous redrives, or one beside moves that were in progress, took the same dead letters, and each made a
copy."""

from __future__ import annotations

import asyncio
import json

from storage import Engine, ReadQuery
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, turns, with_jobs

JOBS = 5


async def with_dead_letters(machine: Machine) -> Engine:
    engine = await with_jobs(machine, JOBS, max_deliveries=1, dead_letter="dead")
    await claim_seqs(engine, JOBS)
    await engine.queues.nack("q", "n", list(range(1, JOBS + 1)))
    await turns(400)
    assert await data(engine, "dead") == list(range(JOBS))
    return engine


async def data(engine: Engine, name: str) -> list[int]:
    return sorted(json.loads(record.body)["data"] for record in (await engine.read(name, ReadQuery())).records)


async def test_each_dead_letter_goes_back_once() -> None:
    async with Machine() as machine:
        engine = await with_dead_letters(machine)
        done = await asyncio.gather(*(engine.queues.redrive("q") for _ in range(3)))
        await turns(400)
        assert sum(each.moved for each in done) == JOBS
        assert await data(engine, "q") == list(range(JOBS))
        assert await data(engine, "dead") == []


async def test_a_cancelled_and_repeated_redrive_moves_each_job_once() -> None:
    for when in range(1, 40, 3):
        async with Machine() as machine:
            engine = await with_dead_letters(machine)
            first = asyncio.create_task(engine.queues.redrive("q"))
            await turns(when)
            first.cancel()
            await engine.queues.redrive("q")
            await turns(400)
            assert await data(engine, "q") == list(range(JOBS)), when
            assert await data(engine, "dead") == [], when
