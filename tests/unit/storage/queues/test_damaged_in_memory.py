"""A job whose record is damaged in memory: its claim takes the slow path, and no other job is lost."""

from __future__ import annotations

import pytest

from storage.queues import job_records
from tests.unit.storage.machine import Machine, log_of
from tests.unit.storage.queues.jobs import add, claim_seqs, with_jobs


@pytest.mark.parametrize("leases_durable", [False, True])
async def test_a_job_damaged_in_memory_is_skipped_and_other_jobs_are_claimed(
    machine: Machine, leases_durable: bool
) -> None:
    engine = await with_jobs(machine, leases_durable=leases_durable)
    for _ in range(3):
        await add(engine)
    log = log_of(engine, "q")
    (span,) = log.tail.slices(2, 3)
    data, offset = log.cached[span.batch_seq]
    log.cached[span.batch_seq] = (bytes(len(data)), offset)
    assert log.read_cached([2], job_records.MAX_BYTES, engine.now_ms(), 0) is None
    assert await claim_seqs(engine, 3) == [1, 3]
    assert await claim_seqs(engine) == []
