"""The load and the checker of the kill test, with a lying proxy between them and a correct broker: every lie is
found."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import queue_liar
from tests.support.broker_process import BrokerProcess
from tests.support.queue_check import violations
from tests.support.queue_liar import Liar
from tests.support.queue_load import QueueLoad, Service

DRAINED_WITHIN_S = 120.0
LEASES: dict[str, Any] = {
    "durability": "disk",
    "leases_durable": False,
    "max_deliveries": 3,
    "retry_backoff_ms": 800,
    "retry_backoff_max_ms": 800,
}

#: What an operator does, often enough that everything was done and has had consequences.
OPERATED = ("/redrive", "/pause", "/purge", "-dead/diff")
TURNS = 14

#: Runs in which a lie has to be found once: usually it is in the first few, on a busy machine later.
OCCASIONS = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("honest"), wal_shards=2) as process:
        process.start()
        yield process


async def work_off(broker: BrokerProcess, load: QueueLoad, service: Service, *, turns: int = 0) -> list[str]:
    """Work off all jobs, with at least this many turns of the operator; returns the checker's verdict."""
    service.port = broker.port
    await load.create()
    service.up()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(load.run())
        async with asyncio.timeout(DRAINED_WITHIN_S):
            while load.produced < load.jobs or load.counts["looked after"] < turns:
                await asyncio.sleep(0.01)
            service.calm = True
            await load.drained()
        service.over = True
        await running
    await load.look(final=True)
    return violations(load.calls.history)


async def test_an_honest_queue_history_has_no_problem(broker: BrokerProcess, dice: random.Random) -> None:
    service = Service()
    load = QueueLoad("honest", LEASES, service, dice, workers=6, jobs=400)
    assert await work_off(broker, load, service, turns=TURNS) == []


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("operation", "every", "lie", "sentence"),
    [
        ("/ack", 6, queue_liar.forget_an_ack, "after it was acked under"),
        ("/ack", 1, queue_liar.count_what_is_passed_over, "counted"),
        ("/ack", 3, queue_liar.pass_over_what_counts, "a valid lease, was passed over"),
        ("/nack", 1, queue_liar.forget_a_delay, "before the delay of its nack was over"),
        ("/claim", 1, queue_liar.hand_a_job_to_two, "expired"),
        # Found because others get the job too early, or because acks come too late.
        ("/claim", 3, queue_liar.end_leases_early, "expired|a valid lease, was passed over"),
        ("/claim", 3, queue_liar.swallow_a_job, "is lost"),
        ("/claim", 3, queue_liar.miscount_deliveries, "deliveries, it must be"),
        ("/claim", 3, queue_liar.mix_the_order_up, "out of order"),
        ("/claim", 1, queue_liar.give_other_jobs_for_a_key, "asked again under"),
        ("-dead/diff", 1, queue_liar.bury_a_job_twice, "times in the dead letter topic"),
        ("-dead/diff", 1, queue_liar.lose_a_dead_letter, "are gone and were not acked"),
        ("/redrive", 1, queue_liar.bring_a_job_back_twice, "jobs came back from the dead letter topic"),
        ("/pause", 1, queue_liar.forget_a_pause, "was leased while the queue was paused"),
        ("/purge", 1, queue_liar.forget_a_purge, "and of all that are gone"),
        ("/purge", 1, queue_liar.purge_more_than_is_said, "are gone and were not acked"),
        ("/ack?strict=true", 1, queue_liar.refuse_what_was_done, "a valid lease, was passed over"),
        ("/nack", 1, queue_liar.forget_a_backoff, "before the delay of its nack was over"),
        ("", 1, queue_liar.forget_that_jobs_are_delayed, "before the job was due"),
        ("/work", 3, queue_liar.push_a_job_twice, "after it was acked under"),
    ],
)
async def test_every_lie_is_reported(
    broker: BrokerProcess, dice: random.Random, operation: str, every: int, lie: queue_liar.Lie, sentence: str
) -> None:
    # By chance later events may not contradict a lie, so it gets several opportunities to be found.
    for occasion in range(OCCASIONS):
        liar = Liar(operation, lie, dice, every)
        service = Service(liar.connect, liar.pushes)
        load = QueueLoad(f"{lie.__name__}-{occasion}", LEASES, service, dice, workers=6, jobs=400)
        found = await work_off(broker, load, service, turns=TURNS if operation in OPERATED else 0)
        if liar.lies and any(each in problem for problem in found for each in sentence.split("|")):
            return
    raise AssertionError(f"no lie came out in {OCCASIONS} runs; the last one lied {liar.lies} times, and {found}")
