"""A claim with an attempt key may be repeated. It returns the same leases as long as any of them is held."""

from __future__ import annotations

import asyncio

import pytest

from storage.errors import TopicNotFound
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, claim, claim_seqs, parked, states, turns, with_jobs

DURABLE = pytest.mark.parametrize("leases_durable", [False, True])


@DURABLE
async def test_a_repeated_claim_returns_the_same_leases(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 5, leases_durable=leases_durable)
    first = await engine.queues.claim("q", "n", max=2, attempt_key="k")
    await machine.clock.advance(1000)
    again = await engine.queues.claim("q", "n", max=4, attempt_key="k")
    assert again.jobs == first.jobs
    assert engine.queues.figures("q").in_flight == 2


async def test_a_repeated_claim_omits_settled_jobs(machine: Machine) -> None:
    engine = await with_jobs(machine, 5)
    first = await claim(engine, 3, attempt_key="k")
    await engine.queues.ack("q", "n", [1])
    await engine.queues.nack("q", "n", [2], delay_ms=0)
    assert await claim(engine, 3, attempt_key="k") == first[2:]


async def test_a_job_leased_again_is_not_in_the_repeated_answer(machine: Machine) -> None:
    engine = await with_jobs(machine, 2)
    first = await claim(engine, 2, attempt_key="k")
    await engine.queues.nack("q", "n", [1], delay_ms=0)
    assert await claim_seqs(engine) == [1]
    assert await claim(engine, 2, attempt_key="k") == first[1:]


async def test_attempt_keys_of_different_nodes_are_independent(machine: Machine) -> None:
    engine = await with_jobs(machine, 5)
    assert await claim_seqs(engine, 2, attempt_key="k") == [1, 2]
    assert await claim_seqs(engine, 2, node="other", attempt_key="k") == [3, 4]
    assert await claim_seqs(engine, 2, attempt_key="l") == [5]


async def test_an_empty_answer_is_not_remembered(machine: Machine) -> None:
    engine = await with_jobs(machine)
    assert await claim_seqs(engine, attempt_key="k") == []
    await add(engine)
    assert await claim_seqs(engine, attempt_key="k") == [1]


async def test_an_attempt_key_is_free_after_its_leases_have_ended(machine: Machine) -> None:
    engine = await with_jobs(machine, 2, lease_ms=1000)
    [(_, old)] = await claim(engine, attempt_key="k")
    await machine.clock.advance(1001)
    [(seq, new)] = await claim(engine, attempt_key="k")
    assert seq == 1
    assert new != old


async def test_concurrent_claims_with_an_attempt_key_share_an_answer(machine: Machine) -> None:
    for leases_durable in (False, True):
        engine = await with_jobs(machine, 4, leases_durable=leases_durable)
        first, second = await asyncio.gather(claim(engine, 2, attempt_key="k"), claim(engine, 2, attempt_key="k"))
        assert first == second
        assert engine.queues.figures("q").in_flight == 2
        await engine.delete_topic("q")
        await machine.close()


async def test_waiting_claims_with_an_attempt_key_share_an_answer(machine: Machine) -> None:
    engine = await with_jobs(machine)
    first, second = await parked(engine, 2, attempt_key="k"), await parked(engine, 2, attempt_key="k")
    await add(engine, 4)
    assert await first == await second == [1, 2]
    assert engine.queues.figures("q").in_flight == 2


@DURABLE
async def test_a_repeated_claim_after_an_undo_returns_the_same_leases(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 3, leases_durable=leases_durable)
    claimed = await engine.queues.claim("q", "n", max=2, attempt_key="k")
    given = list(claimed.jobs)
    claimed.undo()
    await turns()
    assert states(engine) == {1: JobState.LEASED, 2: JobState.LEASED, 3: JobState.READY}
    assert (await engine.queues.claim("q", "n", max=2, attempt_key="k")).jobs == given


@DURABLE
@pytest.mark.parametrize("when", range(1, 14))
async def test_a_cancelled_claim_with_a_key_gives_each_job_once(
    machine: Machine, leases_durable: bool, when: int
) -> None:
    engine = await with_jobs(machine, 3, leases_durable=leases_durable)
    claiming = asyncio.create_task(claim(engine, 2, attempt_key="k"))
    await turns(when)
    claiming.cancel()
    await turns()
    again = await claim(engine, 2, attempt_key="k")
    if not claiming.cancelled():
        assert again == await claiming
    assert [seq for seq, _ in again] == [1, 2]
    assert engine.queues.figures("q").in_flight == 2


@pytest.mark.parametrize("end", ["restart", "kill", "cut_power"])
async def test_durable_keys_outlive_any_end(machine: Machine, end: str) -> None:
    engine = await with_jobs(machine, 3, leases_durable=True)
    first = await engine.queues.claim("q", "n", max=2, attempt_key="k")
    engine = await getattr(machine, end)()
    assert (await engine.queues.claim("q", "n", max=2, attempt_key="k")).jobs == first.jobs


async def test_volatile_leases_of_an_attempt_key_survive_only_a_clean_stop(machine: Machine) -> None:
    engine = await with_jobs(machine, 3)
    first = await engine.queues.claim("q", "n", max=2, attempt_key="k")
    engine = await machine.restart()
    assert (await engine.queues.claim("q", "n", max=2, attempt_key="k")).jobs == first.jobs
    engine = await machine.kill()
    again = await engine.queues.claim("q", "n", max=2, attempt_key="k")
    assert [(job.record.seq, job.deliveries) for job in again.jobs] == [(1, 1), (2, 1)]
    assert not {job.lease_id for job in again.jobs} & {job.lease_id for job in first.jobs}


async def test_repetitions_waiting_on_a_deleted_queue_get_topic_not_found(machine: Machine) -> None:
    engine = await with_jobs(machine)
    first = await parked(engine, attempt_key="k", node="n")
    repeat = await parked(engine, attempt_key="k", node="n")
    await engine.delete_topic("q")
    for each in (first, repeat):
        with pytest.raises(TopicNotFound):
            await asyncio.wait_for(each, 1)
