"""A queue was paused while records for a claim were being read. The claim got its jobs after the pause had been
answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from storage.log.writer import Shard
from storage.queues import job_records
from storage.queues.read_ahead import ReadAhead
from storage.reads.reader import Reader
from storage.state.catalog import Topic
from storage.state.log import Log
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import claim_seqs, turns, with_jobs


@pytest.mark.parametrize("jitter_ms", [0, 5])
@pytest.mark.parametrize("leases_durable", [False, True])
async def test_a_claim_in_progress_returns_no_job_after_a_pause_is_answered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, leases_durable: bool, jitter_ms: int
) -> None:
    engine = await with_jobs(machine, 3, leases_durable=leases_durable, claim_jitter_ms=jitter_ms)
    disk = asyncio.Event()
    read = job_records.read

    async def read_slowly(reader: Reader, topic: Topic, seqs: Sequence[int]) -> job_records.FoundJobs:
        await disk.wait()
        return await read(reader, topic, seqs)

    monkeypatch.setattr(Log, "read_cached", lambda *_: None)
    monkeypatch.setattr(job_records, "read", read_slowly)
    monkeypatch.setattr(ReadAhead, "read", lambda ahead, *asked: read_slowly(engine.reader, *asked))  # pyright: ignore
    claiming = asyncio.create_task(claim_seqs(engine, 2))
    await machine.clock.advance(jitter_ms)
    pausing = asyncio.create_task(engine.queues.pause("q"))
    await turns()
    answered_first = pausing.done()
    asleep: list[Shard] = []
    wake = Shard._schedule_drain  # pyright: ignore[reportPrivateUsage]
    # From here on, writes to the log wait there.
    monkeypatch.setattr(Shard, "_schedule_drain", lambda shard: asleep.append(shard))
    disk.set()
    await turns()
    assert pausing.done() is not leases_durable, "leases that are on their way to the log are waited for"
    for shard in asleep:
        wake(shard)
    assert await claiming == [1, 2]
    assert await pausing
    assert not answered_first
