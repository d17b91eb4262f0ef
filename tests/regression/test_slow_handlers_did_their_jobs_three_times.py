"""A handler took longer than its lease. It got its job again, ran it three times, and acked in vain without an error;
in the end the job was in the dead letter topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import closing

import pytest

from tests.client.real_broker import RealBroker
from topics_client import AsyncClient, Client, LeaseLost

LEASE_MS = 2000
SLOW_S = 2.5 * LEASE_MS / 1000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Generator[RealBroker]:
    broker = RealBroker(tmp_path_factory.mktemp("broker"))
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def client(broker: RealBroker) -> Generator[Client]:
    with Client(broker.url) as client:
        for name in ("q", "dead"):
            client.delete_topic(name)
        client.put_topic("q", type="queue", lease_ms=LEASE_MS, max_deliveries=3, dead_letter="dead")
        yield client


def figures(client: Client, name: str = "q") -> tuple[int, int, int]:
    queue = client.state(name).queue or {}
    return queue["ready"], queue["in_flight"], queue["dead_lettered"]


async def test_a_slow_handler_does_each_job_once(broker: RealBroker, client: Client) -> None:
    queues = ["one", "four", "async-one", "async-four"]
    for name in queues:
        client.put_topic(name, type="queue", lease_ms=LEASE_MS, max_deliveries=3, dead_letter="dead")
        client.append(name, [1])
    done = await asyncio.gather(
        asyncio.to_thread(_work, client, "one", 1),
        asyncio.to_thread(_work, client, "four", 4),
        _work_by_asyncio(broker, "async-one", 1),
        _work_by_asyncio(broker, "async-four", 4),
    )
    assert done == [1, 1, 1, 1]
    for name in queues:
        assert figures(client, name) == (0, 0, 0)


def _work(client: Client, queue: str, most: int) -> int:
    """How often the job had been delivered when it was done."""
    with closing(client.work(queue, "w", max=most)) as jobs:
        job = next(jobs)
        time.sleep(SLOW_S)
        client.ack(queue, "w", [job])
        return job.deliveries


async def _work_by_asyncio(broker: RealBroker, queue: str, most: int) -> int:
    async with AsyncClient(broker.url) as client:
        jobs = client.work(queue, "w", max=most)
        job = await anext(jobs)
        await asyncio.sleep(SLOW_S)
        await client.ack(queue, "w", [job])
        await jobs.aclose()
        return job.deliveries


def test_jobs_not_begun_by_a_worker_stay_claimable(client: Client) -> None:
    """Also after an ack: a handler that continues with other work has no job waiting for it."""
    client.append("q", [1, 2, 3])
    with closing(client.work("q", "w", max=3)) as jobs:
        client.ack("q", "w", [next(jobs)])
        assert figures(client) == (2, 0, 0)
        next(jobs)
        assert figures(client) == (1, 1, 0)
    assert figures(client) == (2, 0, 0)


@pytest.mark.parametrize("call", ["ack", "nack", "extend"])
async def test_settling_a_lost_lease_raises_lease_lost(broker: RealBroker, client: Client, call: str) -> None:
    client.append("q", [1, 2])
    lost, kept = client.claim("q", "w", max=2, lease_ms=60_000).jobs
    client.nack("q", "w", [lost])
    more = (60_000,) if call == "extend" else ()
    with pytest.raises(LeaseLost) as caught:
        getattr(client, call)("q", "w", [lost, kept], *more)
    assert caught.value.detail["seqs"] == [lost.seq]
    assert "1" in str(caught.value)
    assert caught.value.settled is not None
    assert (caught.value.settled.count, caught.value.settled.skipped) == (1, [lost.seq])
    assert getattr(client, call)("q", "w", [lost], *more, skip_lost=True).skipped == [lost.seq]
    async with AsyncClient(broker.url) as other:
        with pytest.raises(LeaseLost):
            await getattr(other, call)("q", "w", [lost], *more)
        assert (await getattr(other, call)("q", "w", [lost], *more, skip_lost=True)).skipped == [lost.seq]
