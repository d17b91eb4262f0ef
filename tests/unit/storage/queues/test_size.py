"""A waiting job needs no memory, and the number of waiting jobs does not slow down a claim."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from storage import Durability, Engine, TopicConfig, TopicType
from storage.records.values import PlainRecords
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine
from tests.unit.storage.queues.jobs import add, with_jobs

FEW, MANY = 10_000, 1_000_000
#: Memory limit of the queue's state for a million untouched jobs (bytes).
IDLE_BYTES = 200_000
#: A hundred times the jobs: code that looks at each of them would be a hundred times as slow.
MUCH_SLOWER = 15


async def filled(machine: Machine, jobs: int, **settings: Any) -> Engine:
    engine = await machine.start(wal_file_bytes=1 << 26, tail_cache_bytes=1 << 16)
    await engine.put_topic("q", TopicConfig(type=TopicType.QUEUE, durability=Durability.MEMORY, **settings))
    batch = PlainRecords([msgspec.Raw(b"1")] * 10_000)
    for _ in range(jobs // 10_000):
        await engine.append("q", batch)
    return engine


async def calls_of(work: Awaitable[Any]) -> int:
    """How many functions are called meanwhile."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        await work
    finally:
        sys.setprofile(None)
    return count


async def cost(engine: Engine) -> tuple[int, float]:
    """(function calls, seconds) of a claim and an ack of 100 jobs: the least of some."""
    calls: list[int] = []
    seconds: list[float] = []
    for round_ in range(6):

        async def work(node: str = f"n{round_}") -> None:
            claimed = await engine.queues.claim("q", node, max=100)
            assert len(claimed.jobs) == 100
            await engine.queues.ack("q", node, [job.record.seq for job in claimed.jobs])

        if round_ % 2:
            calls.append(await calls_of(work()))
        else:
            begin = time.perf_counter()
            await work()
            seconds.append(time.perf_counter() - begin)
    return min(calls), min(seconds)


async def test_claims_are_as_fast_with_a_million_jobs_as_with_few(machine: Machine) -> None:
    few_calls, few_seconds = await cost(await filled(machine, FEW))
    await machine.close()
    other = Machine()
    async with other:
        many_calls, many_seconds = await cost(await filled(other, MANY))
    assert many_calls < 2 * few_calls
    assert many_seconds < MUCH_SLOWER * few_seconds


async def test_idle_jobs_take_no_memory(machine: Machine) -> None:
    engine = await machine.start(wal_file_bytes=1 << 26, tail_cache_bytes=1 << 16)
    await engine.put_topic("q", TopicConfig(type=TopicType.QUEUE, durability=Durability.MEMORY))
    batch = PlainRecords([msgspec.Raw(b"1")] * 10_000)
    tracemalloc.start()
    try:
        for _ in range(MANY // 10_000):
            await engine.append("q", batch)
        claimed = await engine.queues.claim("q", "n", max=10)
        assert len(claimed.jobs) == 10
        assert engine.queues.figures("q").ready == MANY - 10
        taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/storage/queues/*")])
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in taken.statistics("filename")) < IDLE_BYTES


@pytest.mark.parametrize("how", ["nacked", "delayed", "expired"])
async def test_the_number_of_returned_jobs_does_not_slow_down_claims(machine: Machine, how: str) -> None:
    costs: list[tuple[int, float]] = []
    for jobs in (1000, 50_000):
        async with Machine() as one:
            engine = await filled(one, FEW if jobs <= FEW else jobs, lease_ms=1000)
            await come_back(one, engine, jobs, how)
            costs.append(await cost(engine))
    assert costs[1][0] < 2 * costs[0][0]
    assert costs[1][1] < MUCH_SLOWER * costs[0][1]


async def come_back(machine: Machine, engine: Engine, jobs: int, how: str) -> None:
    for _ in range(0, jobs, 1000):
        claimed = await engine.queues.claim("q", "first", max=1000)
        seqs = [job.record.seq for job in claimed.jobs]
        if how != "expired":
            await engine.queues.nack("q", "first", seqs, delay_ms=0 if how == "nacked" else 50)
    await machine.clock.advance(1001)
    assert engine.queues.figures("q").ready >= jobs


async def looks(delayed: int) -> list[int]:
    """Function calls of each kind of claim, in a queue with this many delayed jobs and one ready job after them."""
    async with Machine() as machine:
        engine = await with_jobs(machine)
        await add(engine, delayed, delay_ms=60_000)
        await add(engine, 1)
        engine.state("q")  # what this finds out need not be found out again
        page = partial(engine.queues.leases, "q", after=delayed - 9, limit=20)
        ways: list[Callable[[], object]] = [
            partial(engine.queues.figures, "q"),
            page,
            partial(engine.queues.leases, "q", JobState.LEASED),
        ]
        calls = [await calls_of(_at_once(way)) for way in ways]
        assert engine.queues.figures("q").oldest_ready_age_ms == 0
        assert [(each.seq, each.state) for each in page()] == [
            *((seq, JobState.DELAYED) for seq in range(delayed - 8, delayed + 1)),
            (delayed + 1, JobState.READY),
        ]
        return calls


async def _at_once(look: Callable[[], object]) -> None:
    look()


async def test_the_cost_of_figures_and_listings_does_not_grow_with_delayed_jobs() -> None:
    """Delayed jobs are known one by one: neither the age of the oldest ready job nor a page of jobs looks at all of
    them."""
    few, many = await looks(100), await looks(10_000)
    assert all(after < 3 * before + 100 for before, after in zip(few, many, strict=True)), (few, many)
