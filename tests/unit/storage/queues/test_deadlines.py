"""A lease lasts exactly to the ms of its deadline."""

from __future__ import annotations

import pytest

from storage.errors import LeaseLost
from tests.unit.storage.machine import Machine, outcome
from tests.unit.storage.queues.jobs import add, claim, claim_seqs, turns, with_jobs

LEASE_MS = 1000
DURABLE = pytest.mark.parametrize("leases_durable", [False, True])


@DURABLE
@pytest.mark.parametrize("notices", [False, True])
async def test_a_lease_is_valid_at_its_deadline(machine: Machine, leases_durable: bool, notices: bool) -> None:
    engine = await with_jobs(machine, 3, lease_ms=LEASE_MS, leases_durable=leases_durable)
    leases = await claim(engine, 3)
    machine.clock.tick(LEASE_MS)
    if notices:
        await turns()
    assert await claim_seqs(engine, 3, "other") == []
    assert (await engine.queues.extend("q", "n", [1], LEASE_MS)).done == [1]
    assert (await engine.queues.nack("q", "n", [2], lease_ids=[leases[1][1]])).done == [2]
    assert (await engine.queues.ack("q", "n", [3])).done == [3]
    assert engine.queues.figures("q").in_flight == 1


@DURABLE
@pytest.mark.parametrize("notices", [False, True])
async def test_a_lease_is_lost_one_ms_after_its_deadline(machine: Machine, leases_durable: bool, notices: bool) -> None:
    engine = await with_jobs(machine, 3, lease_ms=LEASE_MS, leases_durable=leases_durable)
    leases = await claim(engine, 3)
    machine.clock.tick(LEASE_MS + 1)
    if notices:
        await turns()
    tokens = [token for _, token in leases]
    assert (await engine.queues.extend("q", "n", [1], LEASE_MS)).skipped == [1]
    assert (await engine.queues.nack("q", "n", [2], lease_ids=[tokens[1]])).skipped == [2]
    assert (await engine.queues.ack("q", "n", [1, 2, 3], lease_ids=tokens)).skipped == [1, 2, 3]
    await turns()  # their expiry may have to be written
    assert engine.queues.figures("q").in_flight == 0
    claimed = await engine.queues.claim("q", "other", max=3)
    assert [(job.record.seq, job.deliveries) for job in claimed.jobs] == [(1, 2), (2, 2), (3, 2)]
    assert not {job.lease_id for job in claimed.jobs} & set(tokens)


async def test_an_extended_lease_is_valid_until_its_new_deadline(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, lease_ms=LEASE_MS)
    await claim(engine)
    await machine.clock.advance(LEASE_MS)
    done = await engine.queues.extend("q", "n", [1], 2 * LEASE_MS)
    assert done.deadlines == {1: machine.clock.wall_ms() + 2 * LEASE_MS}
    await machine.clock.advance(2 * LEASE_MS)
    assert await claim_seqs(engine, 1, "other") == []
    await machine.clock.advance(1)
    assert await claim_seqs(engine, 1, "other") == [1]


async def test_a_token_of_an_earlier_lease_is_not_accepted(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, lease_ms=LEASE_MS)
    [(_, old)] = await claim(engine)
    await machine.clock.advance(LEASE_MS + 1)
    [(_, new)] = await claim(engine)
    assert (await engine.queues.ack("q", "n", [1], lease_ids=[old])).skipped == [1]
    assert (await engine.queues.extend("q", "n", [1], LEASE_MS, lease_ids=[old])).skipped == [1]
    assert (await engine.queues.nack("q", "n", [1], lease_ids=[old])).skipped == [1]
    assert (await engine.queues.ack("q", "n", [1], lease_ids=[new])).done == [1]


async def test_an_ack_with_the_lease_of_another_node_is_skipped(machine: Machine) -> None:
    engine = await with_jobs(machine, 1)
    [(_, token)] = await claim(engine)
    assert (await engine.queues.ack("q", "other", [1], lease_ids=[token])).skipped == [1]
    assert (await engine.queues.ack("q", "n", [1], lease_ids=[0])).done == [1]


async def test_a_strict_call_with_a_lost_lease_changes_no_job(machine: Machine) -> None:
    engine = await with_jobs(machine, 3)
    await claim(engine, 2)
    lost = [3, 7]
    for call in (
        engine.queues.ack("q", "n", [1, 2, *lost], strict=True),
        engine.queues.nack("q", "n", [1, 2, *lost], strict=True),
        engine.queues.extend("q", "n", [1, 2, *lost], 10_000, strict=True),
    ):
        error = await outcome(call)
        assert isinstance(error, LeaseLost)
        assert error.detail["seqs"] == lost
    assert {view.seq: view.deadline for view in engine.queues.leases("q")} == {
        1: machine.clock.wall_ms() + 30_000,
        2: machine.clock.wall_ms() + 30_000,
        3: None,
    }


async def test_an_acked_job_is_no_longer_a_record(machine: Machine) -> None:
    engine = await with_jobs(machine, 2)
    await claim(engine, 2)
    assert (await engine.queues.ack("q", "n", [2])).done == [2]
    assert engine.state("q").count == 1
    assert (await engine.queues.ack("q", "n", [2])).skipped == [2]


async def test_a_delayed_job_is_claimable_exactly_at_its_due_time(machine: Machine) -> None:
    engine = await with_jobs(machine)
    await add(engine, delay_ms=500)
    await add(engine, deliver_at=machine.clock.wall_ms() + 200)
    machine.clock.tick(199)
    assert await claim_seqs(engine, 5) == []
    machine.clock.tick(1)
    assert await claim_seqs(engine, 5) == [2]
    machine.clock.tick(299)
    assert await claim_seqs(engine, 5) == []
    machine.clock.tick(1)
    assert await claim_seqs(engine, 5) == [1]


async def test_a_lease_outlives_its_record(machine: Machine) -> None:
    engine = await with_jobs(machine, 4)
    await claim(engine, 3)
    await engine.delete_records("q", before_seq=10)
    figures = engine.queues.figures("q")
    assert (figures.in_flight, figures.ready, figures.lost) == (3, 0, 0)
    assert (await engine.queues.ack("q", "n", [1])).done == [1]
    assert (await engine.queues.nack("q", "n", [2])).done == [2]
    await machine.clock.advance(30_001)
    assert engine.queues.figures("q").in_flight == 0
    assert await claim_seqs(engine, 5) == []


async def test_unacked_jobs_evicted_or_expired_are_counted_as_lost(machine: Machine) -> None:
    engine = await with_jobs(machine, 3, cap_records=3, ttl_ms=60_000)
    await claim(engine, 2)
    await engine.queues.ack("q", "n", [1])
    await add(engine, 3)
    assert engine.queues.figures("q").lost == 2
    await machine.clock.advance(60_001)
    await engine.expiry.tick()
    figures = engine.queues.figures("q")
    assert (figures.lost, figures.ready, figures.in_flight) == (5, 0, 0)
