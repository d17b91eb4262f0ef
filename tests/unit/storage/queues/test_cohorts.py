"""With claim_jitter_ms, claims are gathered for a moment and served together: evenly and atomically."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from storage.errors import StorageError
from storage.queues.lease_queue import Claimed
from storage.state.queues.values import JobState
from tests.support.spec_control import LEASE
from tests.support.spec_decoder import read_files
from tests.unit.storage.machine import DATA, Machine, outcome
from tests.unit.storage.queues.jobs import LONG_MS, add, claim_seqs, parked, states, turns, with_jobs

JITTER_MS = 200


def files_of(machine: Machine) -> dict[str, Callable[[], bytes]]:
    """The data directory as the independent decoder takes it."""
    content = machine.disk.content()
    return {path.removeprefix(f"{DATA}/"): lambda data=data: data for path, data in content.items()}


async def gathered(machine: Machine, *claims: asyncio.Task[list[int]]) -> list[list[int]]:
    """The jobs of each claim when the window closes; before that, no claim is answered."""
    await machine.clock.advance(JITTER_MS - 1)
    assert not any(task.done() for task in claims)
    await machine.clock.advance(1)
    assert all(task.done() for task in claims)
    return [await task for task in claims]


@pytest.mark.parametrize("leases_durable", [False, True])
async def test_jobs_are_distributed_to_gathered_claims_in_turn(machine: Machine, leases_durable: bool) -> None:
    engine = await with_jobs(machine, 7, claim_jitter_ms=JITTER_MS, leases_durable=leases_durable)
    claims = [await parked(engine, 5, node, wait_ms=0) for node in "abc"]
    assert await gathered(machine, *claims) == [[1, 4, 7], [2, 5], [3, 6]]


async def test_a_gathered_claim_at_its_maximum_is_skipped(machine: Machine) -> None:
    engine = await with_jobs(machine, 7, claim_jitter_ms=JITTER_MS)
    claims = [await parked(engine, most, node, wait_ms=0) for node, most in (("a", 1), ("b", 9), ("c", 2))]
    assert await gathered(machine, *claims) == [[1], [2, 4, 6, 7], [3, 5]]


async def test_each_gathered_claim_has_its_own_lease_duration(machine: Machine) -> None:
    engine = await with_jobs(machine, 3, claim_jitter_ms=JITTER_MS, lease_ms=7000)
    claims = [await parked(engine, 1, node, wait_ms=0, lease_ms=ms) for node, ms in (("a", 500), ("b", None))]
    await gathered(machine, *claims)
    now = machine.clock.wall_ms()
    assert {view.node: view.deadline for view in engine.queues.leases("q")} == {
        "a": now + 500,
        "b": now + 7000,
        None: None,
    }


async def test_a_claim_within_the_window_is_served_with_the_window(machine: Machine) -> None:
    engine = await with_jobs(machine, 4, claim_jitter_ms=JITTER_MS)
    first = await parked(engine, 4, "a", wait_ms=0)
    await machine.clock.advance(JITTER_MS - 10)
    second = await parked(engine, 4, "b", wait_ms=0)
    await machine.clock.advance(10)
    assert (await first, await second) == ([1, 3], [2, 4])


async def test_a_claim_after_the_window_opens_a_new_window(machine: Machine) -> None:
    engine = await with_jobs(machine, 2, claim_jitter_ms=JITTER_MS)
    first = await parked(engine, 1, "a", wait_ms=0)
    await machine.clock.advance(JITTER_MS)
    assert await first == [1]
    assert await gathered(machine, await parked(engine, 1, "b", wait_ms=0)) == [[2]]


async def test_a_window_opens_when_a_job_reaches_waiting_claims(machine: Machine) -> None:
    engine = await with_jobs(machine, claim_jitter_ms=JITTER_MS)
    claims = [await parked(engine, 3, node) for node in "ab"]
    await machine.clock.advance(5 * JITTER_MS)
    await add(engine, 1)
    await machine.clock.advance(JITTER_MS // 2)
    await add(engine, 3)
    await machine.clock.advance(JITTER_MS // 2 - 1)
    assert not any(task.done() for task in claims)
    await machine.clock.advance(1)
    assert [await task for task in claims] == [[1, 3], [2, 4]]


async def test_a_claim_without_wait_and_job_returns_empty_when_the_window_closes(machine: Machine) -> None:
    engine = await with_jobs(machine, 1, claim_jitter_ms=JITTER_MS)
    claims = [await parked(engine, 1, node, wait_ms=0) for node in "ab"]
    assert await gathered(machine, *claims) == [[1], []]


async def test_a_claim_cancelled_within_the_window_gets_no_job(machine: Machine) -> None:
    engine = await with_jobs(machine, 3, claim_jitter_ms=JITTER_MS)
    claims = [await parked(engine, 3, node, wait_ms=0) for node in "abc"]
    claims[1].cancel()
    await turns()
    assert await gathered(machine, claims[0], claims[2]) == [[1, 3], [2]]


async def test_leases_of_a_window_are_written_as_a_single_batch(machine: Machine) -> None:
    engine = await with_jobs(machine, 6, claim_jitter_ms=JITTER_MS, leases_durable=True)
    claims = [await parked(engine, 2, node, wait_ms=0) for node in "abc"]
    await gathered(machine, *claims)
    decoded = read_files(files_of(machine))
    [shard] = decoded.shards
    batches = [batch for file in shard.files for batch in file.batches if batch.frames[0].type == LEASE]
    assert [[frame.node for frame in batch.frames] for batch in batches] == [[b"a", b"b", b"c"]]


@pytest.mark.parametrize("op", ["pwritev", "datasync"])
async def test_leases_of_a_window_are_atomic_over_a_failure(machine: Machine, op: str) -> None:
    engine = await with_jobs(machine, 6, claim_jitter_ms=JITTER_MS, leases_durable=True)

    async def ask(node: str) -> Claimed:
        return await engine.queues.claim("q", node, max=2)

    claims = [asyncio.create_task(ask(node)) for node in "abc"]
    await turns()
    machine.disk.fail(op, "*/wal-*", sticky=True)
    await machine.clock.advance(JITTER_MS)
    outcomes = [await outcome(task) for task in claims]
    assert all(isinstance(each, StorageError) for each in outcomes)
    assert states(engine) == dict.fromkeys(range(1, 7), JobState.READY)
    machine.disk.clear_faults()
    engine = await machine.cut_power()
    found = states(engine)
    assert set(found.values()) in ({JobState.READY}, {JobState.LEASED})


async def test_time_asked_for_ends_within_a_window(machine: Machine) -> None:
    engine = await with_jobs(machine, claim_jitter_ms=JITTER_MS)
    waiting = await parked(engine, 1, wait_ms=LONG_MS)
    await machine.clock.advance(LONG_MS - JITTER_MS // 2)
    assert not waiting.done()
    await add(engine)
    await machine.clock.advance(JITTER_MS)
    given = await waiting
    assert given in ([1], [])
    if not given:
        later = asyncio.create_task(claim_seqs(engine))
        await machine.clock.advance(JITTER_MS)
        assert await later == [1]
