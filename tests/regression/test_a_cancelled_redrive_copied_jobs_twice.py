"""A redrive whose caller goes away moves each job once: nobody looks for a copy that is being written."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from storage import ReadQuery
from storage.records.topic_config import Discard
from tests.unit.storage.machine import Machine, log_of
from tests.unit.storage.queues.jobs import claim_seqs, config, turns, with_jobs

JOBS = 100


async def test_a_cancelled_redrive_into_a_queue_that_is_nearly_full_moves_each_job_once() -> None:
    async with Machine() as machine:
        engine = await with_jobs(machine, JOBS, max_deliveries=1, dead_letter="dead")
        await claim_seqs(engine, JOBS)
        await engine.queues.nack("q", "n", list(range(1, JOBS + 1)))
        await turns(400)
        full = config(max_deliveries=1, dead_letter="dead", cap_records=JOBS - 1, discard=Discard.REJECT)
        await engine.put_topic("q", full)
        log = log_of(engine, "q")
        redrive = asyncio.create_task(engine.queues.redrive("q"))
        for _ in range(400):
            await asyncio.sleep(0)
            if log.assigned_head - log.head >= 60:
                break
        shard = engine.shards[log.shard]
        work, shard._work = shard._work, lambda: None  # the sync takes a while
        redrive.cancel()
        await turns(200)
        shard._work = work
        for _ in range(5):
            await turns(200)
            await machine.clock.advance(600)
        found = (await engine.read("q", ReadQuery(limit=1000))).records
        assert max(Counter(json.loads(each.body)["data"] for each in found).values()) == 1
