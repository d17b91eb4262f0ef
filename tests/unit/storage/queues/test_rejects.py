"""A rejected job is not delivered again: it becomes a dead letter at its first delivery, or is deleted if the queue has
no dead letter topic."""

from __future__ import annotations

import asyncio

import pytest

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.errors import LeaseLost
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, claim, claim_seqs, config, states, turns, with_jobs

DURABLE = pytest.mark.parametrize("leases_durable", [False, True])


async def dead_letters(engine: Engine) -> list[int]:
    """Seqs, in the queue, of the records in `dead`."""
    async with asyncio.timeout(5):
        while engine.queues.figures("q").dead_pending:
            await turns()
    if "dead" not in engine.catalog.topics:
        return []
    found = await engine.read("dead", ReadQuery(from_seq=0))
    return [int(record.meta["$dead_letter_src_seq"]) for record in found.records]


@DURABLE
async def test_a_rejected_job_becomes_a_dead_letter_at_its_first_delivery(
    machine: Machine, leases_durable: bool
) -> None:
    engine = await with_jobs(machine, 3, leases_durable=leases_durable, max_deliveries=9, dead_letter="dead")
    leases = await claim(engine, 3)
    rejected = await engine.queues.reject("q", "n", [2], lease_ids=[leases[1][1]], reason="no such tea")
    assert (rejected.done, rejected.skipped) == ([2], [])
    assert await dead_letters(engine) == [2]
    assert states(engine) == {1: JobState.LEASED, 3: JobState.LEASED}
    found = (await engine.read("dead", ReadQuery(from_seq=0))).records[0]
    assert b"no such tea" in found.body
    assert engine.queues.figures("q").dead_lettered == engine.queues.stats.rejected == 1


async def test_a_rejected_job_of_an_ephemeral_queue_becomes_a_dead_letter(machine: Machine) -> None:
    engine = await with_jobs(machine, 2, durability=Durability.EPHEMERAL, dead_letter="dead")
    await claim(engine, 2)
    assert (await engine.queues.reject("q", "n", [1])).done == [1]
    assert await dead_letters(engine) == [1]
    assert states(engine) == {2: JobState.LEASED}


@DURABLE
async def test_a_rejected_job_without_a_dead_letter_topic_is_deleted_and_counted(
    machine: Machine, leases_durable: bool
) -> None:
    engine = await with_jobs(machine, 2, leases_durable=leases_durable)
    await claim(engine, 2)
    assert (await engine.queues.reject("q", "n", [1, 2])).done == [1, 2]
    assert states(engine) == {}
    assert (engine.queues.stats.rejected, engine.queues.stats.acked) == (2, 0)
    assert await claim_seqs(engine, 5) == []


@DURABLE
@pytest.mark.parametrize("dead_letter", [None, "dead"])
async def test_a_reject_by_another_node_is_skipped(
    machine: Machine, leases_durable: bool, dead_letter: str | None
) -> None:
    engine = await with_jobs(machine, 1, leases_durable=leases_durable, dead_letter=dead_letter)
    [(_, token)] = await claim(engine)
    assert (await engine.queues.reject("q", "other", [1])).skipped == [1]
    assert (await engine.queues.reject("q", "n", [1], lease_ids=[token ^ 1])).skipped == [1]
    with pytest.raises(LeaseLost):
        await engine.queues.reject("q", "other", [1], strict=True)
    assert states(engine) == {1: JobState.LEASED}


@DURABLE
@pytest.mark.parametrize("when", range(0, 40, 3))
async def test_a_rejected_job_is_moved_once_or_still_a_job_after_a_crash(
    machine: Machine, leases_durable: bool, when: int
) -> None:
    engine = await with_jobs(machine, 2, leases_durable=leases_durable, dead_letter="dead")
    await claim(engine, 1)
    rejecting = asyncio.create_task(engine.queues.reject("q", "n", [1]))
    await turns(when)
    answered = rejecting.done()
    engine = await machine.kill()
    rejecting.cancel()
    dead = await dead_letters(engine)
    left = [seq for seq in states(engine) if seq == 1]
    assert len(dead) + len(left) == 1, (dead, left)
    assert dead == [1] or not answered
    assert 2 in states(engine)


async def test_the_dead_letter_topic_may_change_during_a_reject(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, leases_durable=True, dead_letter="dead")
    await claim(engine)
    rejecting = asyncio.create_task(engine.queues.reject("q", "n", [1]))
    await engine.put_topic("q", config(leases_durable=True))
    assert (await rejecting).done == [1]
    await turns()
    # Moved before the change, cancelled by it, or deleted after it: never both there and gone.
    gone, dead = not states(engine), await dead_letters(engine)
    assert not (dead and not gone)


async def test_a_job_deleted_while_leased_is_not_moved_by_a_reject(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, dead_letter="dead")
    await claim(engine)
    await engine.delete_records("q", before_seq=2)
    assert (await engine.queues.reject("q", "n", [1])).done == [1]
    await turns()
    assert states(engine) == {}
    assert engine.queues.figures("q").dead_pending == 0
    await add(engine)
    assert await claim_seqs(engine, 5) == [2]


@DURABLE
@pytest.mark.parametrize("when", range(12))
async def test_a_job_deleted_during_its_reject_is_not_moved(machine: Machine, leases_durable: bool, when: int) -> None:
    engine = await with_jobs(machine, 1, dead_letter="dead", leases_durable=leases_durable)
    await engine.put_topic("dead", TopicConfig())
    await claim(engine)
    deleting = asyncio.create_task(engine.delete_records("q", before_seq=2))
    await turns(when)
    await engine.queues.reject("q", "n", [1])
    await deleting
    await turns()
    figures = engine.queues.figures("q")
    assert (figures.dead_pending, figures.in_flight, figures.ready) == (0, 0, 0)
