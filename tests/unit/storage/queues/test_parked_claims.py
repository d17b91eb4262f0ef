"""Waiting claims: every event that makes a job claimable wakes them at once, and wakes no other claim."""

from __future__ import annotations

import asyncio

import pytest

from storage.errors import ShuttingDown, TopicNotFound
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine, outcome
from tests.unit.storage.queues.jobs import LONG_MS, add, claim, claim_seqs, parked, states, turns, with_jobs

DURABLE = pytest.mark.parametrize("leases_durable", [False, True])


async def test_a_claim_with_ready_jobs_does_not_wait(machine: Machine) -> None:
    engine = await with_jobs(machine, 1)
    assert await claim_seqs(engine, 5, wait_ms=LONG_MS) == [1]


async def test_a_waiting_claim_returns_empty_at_its_timeout(machine: Machine) -> None:
    engine = await with_jobs(machine)
    waiting = asyncio.create_task(claim_seqs(engine, wait_ms=20))
    await turns()
    assert engine.queues.figures("q").waiting_claims == 1
    assert await waiting == []
    assert engine.queues.figures("q").waiting_claims == 0


@DURABLE
async def test_an_appended_job_wakes_a_single_waiting_claim(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, leases_durable=leases_durable)
    first, second = await parked(engine), await parked(engine)
    await add(engine)
    await turns()
    assert (first.done(), second.done()) == (True, False)
    assert await first == [1]
    await add(engine, 2)
    assert await second == [2]


async def test_an_appended_batch_wakes_only_as_many_claims_as_it_has_jobs_for(machine: Machine) -> None:
    engine = await with_jobs(machine)
    waiting = [await parked(engine, 2) for _ in range(3)]
    await add(engine, 3)
    await turns()
    assert [task.done() for task in waiting] == [True, True, False]
    assert [await task for task in waiting[:2]] == [[1, 2], [3]]
    await add(engine)
    assert await waiting[2] == [4]


@DURABLE
async def test_a_nack_wakes_a_waiting_claim(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 1, leases_durable=leases_durable)
    await claim(engine)
    waiting = await parked(engine)
    await engine.queues.nack("q", "n", [1], delay_ms=0)
    await turns()
    assert waiting.done()
    assert await waiting == [1]


async def test_a_delayed_nack_wakes_a_waiting_claim_when_due(machine: Machine) -> None:
    engine = await with_jobs(machine, 1)
    await claim(engine)
    waiting = await parked(engine)
    await engine.queues.nack("q", "n", [1], delay_ms=250)
    await machine.clock.advance(249)
    assert not waiting.done()
    await machine.clock.advance(1)
    assert await waiting == [1]


@pytest.mark.parametrize("delay", ["delay_ms", "deliver_at"])
async def test_a_due_job_wakes_a_waiting_claim(machine: Machine, delay: str) -> None:
    engine = await with_jobs(machine)
    waiting = await parked(engine)
    await add(engine, **{delay: 700 + (machine.clock.wall_ms() if delay == "deliver_at" else 0)})
    await machine.clock.advance(699)
    assert not waiting.done()
    await machine.clock.advance(1)
    assert waiting.done()
    assert await waiting == [1]


async def test_a_shorter_delay_behind_a_longer_delay_wakes_a_claim_in_time(machine: Machine) -> None:
    engine = await with_jobs(machine)
    waiting = await parked(engine)
    await add(engine, delay_ms=5000)
    await machine.clock.advance(10)
    await add(engine, delay_ms=100)
    await machine.clock.advance(100)
    assert waiting.done()
    assert await waiting == [2]


@DURABLE
async def test_an_expired_lease_wakes_a_waiting_claim(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 1, lease_ms=1000, leases_durable=leases_durable)
    await claim(engine)
    waiting = await parked(engine)
    await machine.clock.advance(1000)
    assert not waiting.done()
    await machine.clock.advance(1)
    assert waiting.done()
    assert await waiting == [1]


async def test_an_extension_that_shortens_a_lease_wakes_a_claim_at_the_new_deadline(machine: Machine) -> None:
    engine = await with_jobs(machine, 1)
    await claim(engine)
    waiting = await parked(engine)
    await engine.queues.extend("q", "n", [1], 100)
    await machine.clock.advance(100)
    assert not waiting.done()
    await machine.clock.advance(1)
    assert waiting.done()
    assert await waiting == [1]


async def test_an_extension_delays_the_waking(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, lease_ms=1000)
    await claim(engine)
    waiting = await parked(engine)
    await machine.clock.advance(900)
    await engine.queues.extend("q", "n", [1], 1000)
    await machine.clock.advance(1000)
    assert not waiting.done()
    await machine.clock.advance(1)
    assert await waiting == [1]


async def test_a_paused_queue_returns_no_job_until_resumed(machine: Machine) -> None:
    engine = await with_jobs(machine, 1)
    assert await engine.queues.pause("q")
    assert await claim_seqs(engine) == []
    waiting = await parked(engine)
    await add(engine)
    await turns()
    assert not waiting.done()
    assert not await engine.queues.resume("q")
    await turns()
    assert waiting.done()
    assert await waiting == [1]


async def test_leases_are_ended_and_extended_while_paused(machine: Machine) -> None:
    engine = await with_jobs(machine, 3)
    await claim(engine, 3)
    await engine.queues.pause("q")
    assert (await engine.queues.ack("q", "n", [1])).done == [1]
    assert (await engine.queues.nack("q", "n", [2])).done == [2]
    assert (await engine.queues.extend("q", "n", [3], 90_000)).done == [3]
    assert await claim_seqs(engine) == []


async def test_a_raised_limit_of_deliveries_is_no_reason_to_wake(machine: Machine) -> None:
    engine = await with_jobs(machine)
    waiting = await parked(engine)
    await engine.put_topic("q", engine.state("q").config)
    await turns()
    assert not waiting.done()
    await add(engine)
    assert await waiting == [1]


async def test_deleting_the_topic_ends_all_waiting_claims(machine: Machine) -> None:
    engine = await with_jobs(machine)
    waiting = [await parked(engine) for _ in range(3)]
    await engine.delete_topic("q")
    await turns()
    assert all(task.done() for task in waiting)
    for task in waiting:
        assert isinstance(await outcome(task), TopicNotFound)


async def test_a_recreated_queue_has_no_lease_of_the_deleted_queue(machine: Machine) -> None:
    engine = await with_jobs(machine, 2)
    await claim(engine, 2)
    config = engine.state("q").config
    await engine.delete_topic("q")
    await engine.put_topic("q", config)
    await add(engine, 1)
    assert states(engine) == {1: JobState.READY}
    assert (await engine.queues.ack("q", "n", [1])).skipped == [1]
    assert await claim_seqs(engine, 5) == [1]


async def test_a_shutdown_ends_all_waiting_claims_at_once(machine: Machine) -> None:
    engine = await with_jobs(machine)
    waiting = [await parked(engine) for _ in range(3)]
    await machine.close()
    await turns()
    assert all(task.done() for task in waiting)
    assert [await task for task in waiting] == [[], [], []]
    assert isinstance(await outcome(claim_seqs(engine, wait_ms=LONG_MS)), ShuttingDown)


async def test_a_cancelled_waiting_claim_takes_no_job(machine: Machine) -> None:
    engine = await with_jobs(machine)
    first, second = await parked(engine), await parked(engine)
    first.cancel()
    await turns()
    assert engine.queues.figures("q").waiting_claims == 1
    await add(engine)
    assert await second == [1]


@DURABLE
@pytest.mark.parametrize("when", range(14))
async def test_a_claim_cancelled_as_its_job_arrives_gives_the_job_back(
    machine: Machine, leases_durable: bool, when: int
) -> None:
    engine = await with_jobs(machine, leases_durable=leases_durable)
    waiting = await parked(engine)
    appending = asyncio.create_task(add(engine))
    await turns(when)
    waiting.cancel()
    await appending
    await turns()
    if waiting.cancelled():
        assert states(engine) == {1: JobState.READY}
        claimed = await engine.queues.claim("q", "n", max=5)
        assert [job.record.seq for job in claimed.jobs] == [1]
    else:
        assert await waiting == [1]
        assert states(engine) == {1: JobState.LEASED}


@DURABLE
@pytest.mark.parametrize("when", range(1, 14))
async def test_a_claim_cancelled_in_progress_gives_all_jobs_back(
    machine: Machine, leases_durable: bool, when: int
) -> None:
    engine = await with_jobs(
        machine, 3, leases_durable=leases_durable, max_deliveries=1, dead_letter="dead", retry_backoff_ms=1000
    )
    claiming = asyncio.create_task(claim_seqs(engine, 2))
    await turns(when)
    claiming.cancel()
    await turns()
    if claiming.cancelled():
        # Forgiven: neither dead letters nor backed off.
        assert states(engine) == dict.fromkeys((1, 2, 3), JobState.READY)
        assert await claim_seqs(engine, 5) == [1, 2, 3]
    else:
        assert await claiming == [1, 2]
        assert states(engine) == {1: JobState.LEASED, 2: JobState.LEASED, 3: JobState.READY}


@DURABLE
async def test_a_job_of_an_undone_claim_goes_to_a_waiting_claim(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 1, leases_durable=leases_durable)
    claimed = await engine.queues.claim("q", "n")
    waiting = await parked(engine)
    claimed.undo()
    await turns()
    assert waiting.done()
    assert await waiting == [1]
    [view] = engine.queues.leases("q")
    assert (view.node, view.deliveries) == ("p", 2)
