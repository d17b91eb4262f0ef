"""A claim with a key is answered when it is repeated, whatever became of the first one."""

from __future__ import annotations

import asyncio
from typing import Any

from storage.errors import StorageError
from tests.unit.storage.machine import Machine, outcome
from tests.unit.storage.queues.jobs import add, claim, flushed, turns, with_jobs


async def test_at_a_stopped_shard_each_one_is_refused() -> None:
    async with Machine() as machine:
        engine = await with_jobs(machine, 1)
        machine.disk.fail("pwritev", "*/wal-*")
        assert isinstance(await outcome(add(engine)), StorageError)
        machine.disk.clear_faults()
        for _ in range(2):
            async with asyncio.timeout(5):
                assert isinstance(await outcome(claim(engine, attempt_key="k")), StorageError)


async def test_after_one_whose_caller_and_job_went_away() -> None:
    async with Machine() as machine:
        engine = await flushed(machine, 1)
        may_read, read = asyncio.Event(), engine.queues.ahead.read

        async def slow(topic: Any, seqs: Any) -> Any:
            await may_read.wait()
            return await read(topic, seqs)

        engine.queues.ahead.read = slow
        first = asyncio.create_task(engine.queues.claim("q", "n", wait_ms=30_000, attempt_key="k"))
        await turns(10)
        first.cancel()
        await turns(10)
        await engine.delete_records("q", before_seq=2)
        may_read.set()
        await turns(100)
        await machine.clock.advance(60_000)
        async with asyncio.timeout(5):
            assert not (await engine.queues.claim("q", "n", attempt_key="k")).jobs
