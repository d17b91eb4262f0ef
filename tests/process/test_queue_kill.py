"""kill -9 of a broker whose queues are at work: afterwards the whole history is one that a lease queue may have."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import is_long
from tests.support.broker_process import BrokerProcess, verify
from tests.support.queue_check import check
from tests.support.queue_history import Claim, Settle
from tests.support.queue_load import QueueLoad, Service

LONG = is_long(os.environ)
WORKERS = 50 if LONG else 12
JOBS = 20_000 if LONG else 2000
KILLS = 12 if LONG else 3
#: Once the faults are over: all leases end within two seconds, the rest is work.
DRAINED_WITHIN_S = 120.0 if LONG else 40.0

# Small files (the default here) and frequent snapshots: a kill then meets turning over, trimming and snapshots as well.
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


@pytest.mark.timeout(1800 if LONG else 200)
@pytest.mark.parametrize("leases_durable", [False, True])
async def test_a_queue_keeps_its_promises_when_the_process_is_killed(
    broker: BrokerProcess, dice: random.Random, leases_durable: bool
) -> None:
    service = Service()
    loads = [
        QueueLoad(
            f"jobs-{durability}",
            {
                "durability": durability,
                "leases_durable": leases_durable,
                "max_deliveries": 3,
                "claim_jitter_ms": dice.choice((0, 5)),
            },
            service,
            dice,
            workers=WORKERS // 2,
            jobs=JOBS // 2,
        )
        for durability in ("fsync", "disk")
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
        service.calm = True
        async with asyncio.timeout(DRAINED_WITHIN_S):
            figures = [await load.drained() for load in loads]
        service.over = True
    buried = 0
    for load, found in zip(loads, figures, strict=True):
        dead = (await load.look(final=True)).dead
        tell(load)
        check(load.calls.history)
        assert found["dead_lettered"] == len(dead)
        buried += len(dead)
        assert found["lost"] == 0
        it_was_worth_it(load)
    assert buried
    assert broker.stop() == 0
    assert broker.complaints() == []
    print(verify(broker.data_dir))


async def be_killed_again_and_again(
    broker: BrokerProcess, service: Service, loads: list[QueueLoad], dice: random.Random
) -> None:
    """At moments spread over the work; one of the ends is a clean stop. After each start, what is there is noted."""
    clean = dice.randrange(KILLS + 1)
    for number in range(KILLS + 1):
        share = int(0.8 * JOBS * (number + 1) / (KILLS + 1))
        while sum(load.acked for load in loads) < share:
            await asyncio.sleep(0.005)
        if number == clean:
            service.down()
            assert await asyncio.to_thread(broker.stop) == 0
        elif dice.random() < 0.5:
            service.strike = broker.kill
            while service.strike is not None:
                await asyncio.sleep(0)
            service.down()
        else:
            await asyncio.sleep(dice.uniform(0, 0.02))
            service.down()
            broker.kill()
        for load in loads:
            load.calls.history.ended(clean=number == clean)
        await asyncio.to_thread(broker.start)
        service.port = broker.port
        for load in loads:
            load.calls.history.started()
            await load.look()
        service.up()


def tell(load: QueueLoad) -> None:
    """What the load was like: pytest shows it when the test fails, or with -s."""
    operations = load.calls.history.operations
    outcomes = Counter(f"{type(each).__name__.lower()} {each.outcome.value}" for each in operations)
    print(load.calls.topic, dict(sorted(outcomes.items())), dict(sorted(load.counts.items())))


def it_was_worth_it(load: QueueLoad) -> None:
    """A load in which nothing went wrong would prove nothing."""
    history = load.calls.history
    assert any(not claim.known for claim in history.of(Claim))
    assert any(not settle.known for settle in history.of(Settle))
    assert any(lease.deliveries > 1 for claim in history.of(Claim) for lease in claim.leases)
    assert load.counts["tried an old token"]
