"""How many of the jobs that are read ahead are held."""

from __future__ import annotations

import pytest

from storage import Engine
from storage.queues import read_ahead
from tests.unit.storage.machine import Machine, sized
from tests.unit.storage.queues.jobs import claim_seqs, config, flushed, kept, with_jobs


async def large_jobs(machine: Machine, count: int, size: int) -> Engine:
    engine = await with_jobs(machine)
    for _ in range(count):
        await engine.append("q", [sized(size)])
    await engine.segment_worker.flush_all()
    return engine


@pytest.mark.parametrize(("size", "most"), [(20_000, 20), (60_000, 5), (60_000, 1), (100_000, 3)])
async def test_read_ahead_of_large_jobs_is_bounded_by_bytes(machine: Machine, size: int, most: int) -> None:
    engine = await large_jobs(machine, 60, size)
    for _ in range(60 // most):
        assert len(await claim_seqs(engine, most)) == most
        held = sum(of_one.bytes for of_one in kept(engine).values())
        assert held <= read_ahead.PREFETCH_BYTES
    assert await claim_seqs(engine) == []
    assert [*map(len, kept(engine).values())] == [0], "all of them were asked for"


async def test_unclaimed_read_ahead_jobs_are_bounded_by_bytes(machine: Machine) -> None:
    engine = await large_jobs(machine, 60, 60_000)
    for seq in range(4, 61, 4):
        await claim_seqs(engine)
        await engine.delete_records("q", before_seq=seq + 1)
        held = sum(of_one.bytes for of_one in kept(engine).values())
        assert held <= read_ahead.PREFETCH_BYTES


async def test_unclaimed_read_ahead_jobs_are_bounded_by_records(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "RECORDS", 10)
    monkeypatch.setattr(read_ahead, "PREFETCH_RECORDS", 25)
    engine = await flushed(machine, 200)
    for seq in range(10, 200, 10):
        assert await claim_seqs(engine) == [seq - 9]
        await engine.delete_records("q", before_seq=seq + 1)
        [of_one] = kept(engine).values()
        assert len(of_one) <= 25
    assert sum(map(len, kept(engine).values())) > 15


async def test_the_number_of_queues_with_read_ahead_is_bounded(machine: Machine) -> None:
    engine = await machine.start(segment_max_events=10, checkpoint_records=1)
    for number in range(read_ahead.QUEUES + 4):
        await engine.put_topic(f"q{number}", config())
        await engine.append(f"q{number}", [sized(5), sized(5)])
    await engine.segment_worker.flush_all()
    for number in range(read_ahead.QUEUES + 4):
        claimed = await engine.queues.claim(f"q{number}", "n")
        assert [job.record.seq for job in claimed.jobs] == [1]
    assert len(kept(engine)) == read_ahead.QUEUES
    for number in range(read_ahead.QUEUES + 4):
        claimed = await engine.queues.claim(f"q{number}", "n")
        assert [job.record.seq for job in claimed.jobs] == [2]
