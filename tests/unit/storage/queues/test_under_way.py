"""While the frame of an ack or nack is in flight, its jobs stay leased; if it fails, the lease is as before."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

import pytest

from storage.errors import StorageError
from storage.queues import job_records as reading
from storage.queues import read_ahead
from storage.reads.reader import Reader
from storage.state.catalog import Topic
from storage.state.log import Log
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine, outcome
from tests.unit.storage.queues.jobs import add, claim, claim_seqs, states, turns, with_jobs

DURABLE = pytest.mark.parametrize("leases_durable", [False, True])


@DURABLE
@pytest.mark.parametrize("when", range(12))
async def test_a_deadline_that_passes_during_an_ack_does_not_release_the_job(
    machine: Machine, leases_durable: bool, when: int
) -> None:
    engine = await with_jobs(machine, 1, lease_ms=1000, leases_durable=leases_durable)
    await claim(engine)
    await machine.clock.advance(1000)
    acking = asyncio.create_task(engine.queues.ack("q", "n", [1]))
    await turns(when)
    machine.clock.tick(1)
    other = await claim_seqs(engine, 1, "other")
    done = await acking
    assert (done.done, other) in (([1], []), ([], [1]))
    assert when == 0 or done.done == [1]


@DURABLE
async def test_a_job_is_acked_once(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 2, leases_durable=leases_durable)
    await claim(engine, 2)
    answers = await asyncio.gather(
        engine.queues.ack("q", "n", [1, 2]),
        engine.queues.ack("q", "n", [2]),
        engine.queues.nack("q", "n", [1], delay_ms=0),
        engine.queues.extend("q", "n", [1, 2], 5000),
    )
    assert [each.done for each in answers] == [[1, 2], [], [], []]
    assert states(engine) == {}


@DURABLE
async def test_a_job_is_nacked_once(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 1, leases_durable=leases_durable)
    await claim(engine)
    answers = await asyncio.gather(engine.queues.nack("q", "n", [1], delay_ms=5000), engine.queues.ack("q", "n", [1]))
    assert [each.done for each in answers] == [[1], []]
    assert states(engine) == {1: JobState.DELAYED}


@DURABLE
async def test_concurrent_claims_share_no_job(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 20, leases_durable=leases_durable)
    given = await asyncio.gather(*(claim_seqs(engine, 3, f"n{number}") for number in range(9)))
    seqs = [seq for each in given for seq in each]
    assert sorted(seqs) == list(range(1, 21))


@DURABLE
async def test_after_a_failed_ack_the_lease_is_unchanged(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 2, leases_durable=leases_durable)
    await claim(engine, 2)
    before = engine.queues.leases("q")
    machine.disk.fail("pwritev", "*/wal-*")
    assert isinstance(await outcome(engine.queues.ack("q", "n", [1])), StorageError)
    assert engine.queues.leases("q") == before
    machine.disk.clear_faults()
    engine = await machine.kill()
    assert sorted(states(engine)) == [1, 2]


async def test_after_a_failed_nack_the_lease_is_unchanged(machine: Machine) -> None:
    engine = await with_jobs(machine, 2, leases_durable=True)
    await claim(engine, 2)
    before = engine.queues.leases("q")
    machine.disk.fail("pwritev", "*/wal-*")
    assert isinstance(await outcome(engine.queues.nack("q", "n", [1], delay_ms=0)), StorageError)
    assert isinstance(await outcome(engine.queues.extend("q", "n", [2], 90_000)), StorageError)
    assert engine.queues.leases("q") == before


async def test_a_failed_claim_leases_no_job(machine: Machine) -> None:
    engine = await with_jobs(machine, 2, leases_durable=True)
    machine.disk.fail("pwritev", "*/wal-*")
    assert isinstance(await outcome(engine.queues.claim("q", "n", max=2)), StorageError)
    assert states(engine) == {1: JobState.READY, 2: JobState.READY}


@DURABLE
async def test_acks_and_nacks_work_on_a_full_disk(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 3, leases_durable=leases_durable)
    await claim(engine, 3)
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    machine.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    assert isinstance(await outcome(add(engine)), StorageError)
    assert (await engine.queues.ack("q", "n", [1])).done == [1]
    assert (await engine.queues.nack("q", "n", [2], delay_ms=60_000)).done == [2]
    assert (await engine.queues.extend("q", "n", [3], 60_000)).done == [3]
    assert states(engine) == {2: JobState.DELAYED, 3: JobState.LEASED}


async def test_a_claim_gets_other_jobs_when_its_jobs_are_deleted_during_the_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await with_jobs(machine, 4)
    read, deleted = reading.read, list[int]()

    async def read_late(reader: Reader, topic: Topic, seqs: Sequence[int]) -> reading.FoundJobs:
        if not deleted:
            deleted.extend(seqs)
            await engine.admin.delete_records("q", seqs[-1] + 1, None)
        return await read(reader, topic, seqs)

    monkeypatch.setattr(Log, "read_cached", lambda *_: None)
    monkeypatch.setattr(reading, "read", read_late)
    monkeypatch.setattr(read_ahead, "RECORDS", 0)  # each is read alone
    assert await claim_seqs(engine, 2) == [3, 4]
    assert deleted == [1, 2]
    assert await claim_seqs(engine, 2) == []
