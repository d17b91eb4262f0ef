"""The leases of a clean stop were voided by a later crash, and became valid again after the next stop, because claims
leave no frames."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator

import pytest

from storage import Durability, Engine
from storage.state.queues.values import JobState
from tests.support.crash_run import until_crash
from tests.unit.storage.machine import DATA, Machine, options
from tests.unit.storage.queues.jobs import claim, states, with_jobs

CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.MEMORY])


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    async with Machine() as machine:
        yield machine


async def stopped_with_a_lease(machine: Machine, durability: Durability = Durability.FSYNC) -> int:
    """The token of the lease."""
    engine = await with_jobs(machine, 2, durability=durability)
    [(_, token)] = await claim(engine)
    await machine.close()
    return token


@CLASSES
async def test_a_kill_voids_a_lease_that_survived_a_clean_stop(machine: Machine, durability: Durability) -> None:
    token = await stopped_with_a_lease(machine, durability)
    engine = await machine.start()
    assert states(engine) == {1: JobState.LEASED, 2: JobState.READY}
    engine = await machine.kill()
    assert states(engine) == {1: JobState.READY, 2: JobState.READY}
    assert (await engine.queues.ack("q", "n", [1], lease_ids=[token])).skipped == [1]


async def test_a_void_lease_stays_void_after_another_kill(machine: Machine) -> None:
    token = await stopped_with_a_lease(machine)
    # The next process dies during its start. That is a crash, so the process after it must find no lease.
    machine.disk.crash_on("sync_dir", "*/wal")
    dying = Engine(DATA, options(), fs=machine.disk, clock=machine.clock, threaded=False)
    await until_crash(machine.disk, dying.start())
    engine = await machine.kill()
    assert states(engine) == {1: JobState.READY, 2: JobState.READY}
    [(_, other)] = await claim(engine)
    engine = await machine.kill()
    assert states(engine) == {1: JobState.READY, 2: JobState.READY}
    assert (await engine.queues.ack("q", "n", [1], lease_ids=[token])).skipped == [1]
    assert (await engine.queues.ack("q", "n", [1], lease_ids=[other])).skipped == [1]


async def test_a_failed_snapshot_makes_no_difference(machine: Machine) -> None:
    await stopped_with_a_lease(machine)
    machine.disk.fail("*", "*/meta/*.tmp", errno=errno.ENOSPC, sticky=True)
    engine = await machine.start()
    await engine.queues.nack("q", "n", [1])
    machine.disk.clear_faults()
    engine = await machine.kill()
    assert states(engine) == {1: JobState.READY, 2: JobState.READY}
