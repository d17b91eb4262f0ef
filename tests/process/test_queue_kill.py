"""kill -9 of a broker with busy queues: afterwards the whole history is valid for a lease queue."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_soak
from tests.support.broker_process import BrokerProcess, verify
from tests.support.queue_check import check
from tests.support.queue_history import Act, Claim, Observation, Pause, Produce, Purge, Redrive, Settle
from tests.support.queue_load import QueueLoad, Service

SOAK = is_soak(os.environ)
WORKERS = 50 if SOAK else 12
JOBS = 20_000 if SOAK else 2000
KILLS = 12 if SOAK else 3
#: The longest wait for such a moment.
MOMENT_WITHIN_S = 3.0
#: What operators do and workers meet, in one queue or the other.
ASKED_FOR = ("redriven", "purged", "paused", "was refused to settle some, strictly")
#: What workers meet in each queue.
OF_EACH = ("tried an old token", "was pushed a job", "left a stream with jobs in hand")
#: If chance has left something of that out, the load continues with more jobs, but no longer than this.
ALL_WITHIN_S = 120.0
MORE_JOBS = 20
#: Once the faults are over, all leases end within two seconds. The rest is work.
DRAINED_WITHIN_S = 120.0

BACKOFFS: list[dict[str, int]] = [{}, {"retry_backoff_ms": 500, "retry_backoff_max_ms": 800}]
#: The first dead job creates its topic, or the topic exists before: a queue itself, of another class.
TARGETS: list[dict[str, Any] | None] = [None, {"type": "queue", "durability": "memory"}]

# With small files (the default here) and frequent snapshots, kills also meet file changes, trimming and snapshots.
SMALL: dict[str, Any] = {
    "wal_shards": 2,
    "snapshot_interval_ms": 300,
    "snapshot_wal_bytes": 256 << 10,
    "sync_point_bytes": 64 << 10,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path, **SMALL) as process:
        yield process


@pytest.mark.timeout(1800 if SOAK else 600)
@pytest.mark.parametrize("leases_durable", [False, True])
async def test_a_queue_keeps_its_promises_when_the_process_is_killed(
    broker: BrokerProcess, dice: random.Random, leases_durable: bool
) -> None:
    service = Service()
    jitters = dice.sample((0, 5), 2)
    loads = [
        QueueLoad(
            f"jobs-{durability}",
            {
                "durability": durability,
                "leases_durable": leases_durable,
                "max_deliveries": 3,
                "claim_jitter_ms": jitter_ms,
                **backoff,
            },
            service,
            dice,
            workers=WORKERS // 2,
            jobs=JOBS // 2,
            target=target,
        )
        for durability, jitter_ms, backoff, target in zip(
            ("fsync", "disk"), jitters, dice.sample(BACKOFFS, 2), dice.sample(TARGETS, 2), strict=True
        )
    ]
    broker.start()
    service.port = broker.port
    for load in loads:
        await load.create()
    service.up()
    async with asyncio.TaskGroup() as tasks:
        for load in loads:
            tasks.create_task(load.run())
        await be_killed_again_and_again(broker, service, loads, dice)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ALL_WITHIN_S):
                while excluded_nodes(loads):
                    for load in loads:
                        if load.produced >= load.jobs:
                            load.jobs += MORE_JOBS
                    await asyncio.sleep(0.05)
        service.calm = True
        async with asyncio.timeout(DRAINED_WITHIN_S):
            figures = [await load.drained() for load in loads]
        service.over = True
    for load, found in zip(loads, figures, strict=True):
        look = await load.look(final=True)
        tell(load)
        check(load.calls.history)
        # Each dead job is still a dead letter, or has been redriven: then it died again, was acked, or was purged.
        assert found["dead_lettered"] >= len(look.dead) + len(brought_back(look, load))
        assert found["lost"] == 0
        it_was_worth_it(load)
    assert excluded_nodes(loads) == []
    assert broker.stop() == 0
    assert broker.complaints() == []
    print(verify(broker.data_dir))


def excluded_nodes(loads: list[QueueLoad]) -> list[str]:
    """Events that have not happened yet in any of the queues, or in one of them."""
    of_any = [what for what in ASKED_FOR if not any(load.counts[what] for load in loads)]
    return of_any + [f"{load.calls.topic}: {what}" for load in loads for what in OF_EACH if not load.counts[what]]


async def be_killed_again_and_again(
    broker: BrokerProcess, service: Service, loads: list[QueueLoad], dice: random.Random
) -> None:
    """Kill at moments spread over the work. One of the stops is clean. After each start, note the contents."""
    clean = dice.randrange(KILLS + 1)
    for number in range(KILLS + 1):
        share = int(0.8 * JOBS * (number + 1) / (KILLS + 1))
        while sum(load.acked + load.purged for load in loads) < share:
            await asyncio.sleep(0.005)
        if number == clean:
            service.down()
            for load in loads:
                load.calls.history.stopping()
            assert await asyncio.to_thread(broker.stop) == 0
        else:
            await be_killed_at_the_worst_moment(broker, service, dice)
        for load in loads:
            load.calls.history.ended(clean=number == clean)
        await asyncio.to_thread(broker.start)
        service.port = broker.port
        for load in loads:
            load.calls.history.started()
            await load.look()
        service.up()


async def be_killed_at_the_worst_moment(broker: BrokerProcess, service: Service, dice: random.Random) -> None:
    """Together with an ack, during the move of a dead job or its redrive, after a pause or a purge, or at any time."""
    act = dice.choice((Act.ACK, Act.NACK, Redrive, Pause, Purge, None))
    until = asyncio.get_running_loop().time() + (dice.uniform(0, 0.02) if act is None else MOMENT_WITHIN_S)
    service.strike = (act, broker.kill) if act is not None else None
    while (act is None or service.strike is not None) and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0)
    service.strike = None
    service.down()
    broker.kill()


def brought_back(look: Observation, load: QueueLoad) -> set[int]:
    """Seqs of jobs that were redriven from the dead letter topic and were seen."""
    produced = {
        produce.first_seq + index
        for produce in load.calls.history.of(Produce)
        if produce.first_seq
        for index in range(len(produce.names))
    }
    claimed = {lease.seq for claim in load.calls.history.of(Claim) for lease in claim.leases}
    return (claimed | {each.source_seq for each in look.dead}) - produced


def tell(load: QueueLoad) -> None:
    """Describe the load: pytest shows it when the test fails, or with -s."""
    operations = load.calls.history.operations
    outcomes = Counter(f"{type(each).__name__.lower()} {each.outcome.value}" for each in operations)
    print(load.calls.topic, dict(sorted(outcomes.items())), dict(sorted(load.counts.items())))


def it_was_worth_it(load: QueueLoad) -> None:
    """A load without any failure would prove nothing."""
    history = load.calls.history
    assert any(not claim.known for claim in history.of(Claim))
    assert any(not settle.known for settle in history.of(Settle))
    assert any(lease.deliveries > 1 for claim in history.of(Claim) for lease in claim.leases)
    assert [what for what in OF_EACH if not load.counts[what]] == []
