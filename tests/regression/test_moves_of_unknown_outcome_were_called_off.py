"""The shard failed while a redrive wrote its copy. The redrive was called off, but the next start found the copy, so
the job existed twice."""

from __future__ import annotations

import pytest

from storage import Durability, Engine, ReadQuery
from storage.errors import StorageFailed
from tests.unit.storage.machine import Machine, log_of, outcome, records
from tests.unit.storage.queues.jobs import config, turns


async def in_two_shards(machine: Machine) -> tuple[Engine, str]:
    """A queue whose dead letter topic is in another shard, and the shard of the queue."""
    engine = await machine.start(wal_shards=2)
    await engine.put_topic("dead")
    for number in range(20):
        name = f"q{number}"
        await engine.put_topic(name, config(max_deliveries=1, dead_letter="dead", durability=Durability.FSYNC))
        if log_of(engine, name).shard != log_of(engine, "dead").shard:
            return engine, name
    raise AssertionError("all in one shard")


@pytest.mark.parametrize("op", ["pwritev", "datasync"])
@pytest.mark.parametrize("when", range(1, 4))
async def test_a_job_with_a_move_of_unknown_outcome_is_in_one_topic_after_the_next_start(op: str, when: int) -> None:
    async with Machine() as machine:
        engine, name = await in_two_shards(machine)
        await engine.append(name, records(1))
        await engine.queues.claim(name, "n")
        await engine.queues.nack(name, "n", [1])
        await turns(400)
        machine.disk.fail(op, f"*/shard-{log_of(engine, name).shard:02d}/wal-*", nth=when)
        redriven = await outcome(engine.queues.redrive(name))
        if isinstance(redriven, StorageFailed):
            assert len((await engine.read("dead", ReadQuery())).records) == 1
        machine.disk.clear_faults()
        engine = await machine.kill(wal_shards=2)
        await turns(400)
        places = [len((await engine.read(each, ReadQuery())).records) for each in (name, "dead")]
        assert sum(places) == 1, places


async def test_a_recovered_copy_of_a_redrive_is_not_redriven_again() -> None:
    async with Machine() as machine:
        engine, name = await in_two_shards(machine)
        await engine.append(name, records(1))
        await engine.queues.claim(name, "n")
        await engine.queues.nack(name, "n", [1])
        await turns(400)
        machine.disk.fail("datasync", f"*/shard-{log_of(engine, name).shard:02d}/wal-*")
        await outcome(engine.queues.redrive(name))
        machine.disk.clear_faults()
        engine = await machine.kill(wal_shards=2)
        await turns(400)
        assert engine.queues.figures(name).ready == 1
        assert (await engine.queues.redrive(name)).moved == 0
