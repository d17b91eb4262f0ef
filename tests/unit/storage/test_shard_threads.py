"""The writer thread sleeps until there is work, never delays a lone write, and hardens by the timer."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import StorageFailed
from storage.log.submission import Submission
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, errors_among, options, outcome, records, seqs

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)


class Threads:
    """A threaded engine with a clock that stands still."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = FakeClock()
        self.engine = Engine(DATA, options(gc_min_us=500, gc_max_us=10_000), fs=self.disk, clock=self.clock)

    async def asleep(self) -> None:
        """Return when the writer waits for work or for time."""
        await asyncio.to_thread(self.clock.until_waiting)

    async def close(self) -> None:
        """Close, with the time that a waiting writer needs."""
        closing = asyncio.create_task(self.engine.close())
        while not closing.done():
            self.clock.tick(10)
            await asyncio.sleep(0)
        await closing


@pytest.fixture
async def threads() -> AsyncIterator[Threads]:
    threads = Threads()
    await threads.engine.start()
    yield threads
    threads.disk.clear_faults()
    await threads.close()


async def test_a_single_writer_does_not_wait_for_a_group(threads: Threads) -> None:
    async with asyncio.timeout(10):
        await threads.engine.put_topic("t", FSYNC)
        for n in range(20):
            assert (await threads.engine.append("t", records(1))).first_seq == n + 1


async def test_a_writer_that_returns_early_is_not_counted_in_its_former_group(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    await threads.engine.put_topic("t", FSYNC)
    shard = threads.engine.shards[0]
    real = shard.log.commit

    def commit(group: list[Submission]) -> None:
        real(group)
        for _ in range(200):  # the answered writer has written again before this thread continues
            if shard._queue:
                return
            time.sleep(0.001)

    monkeypatch.setattr(shard.log, "commit", commit)
    async with asyncio.timeout(10):
        for n in range(5):
            assert (await threads.engine.append("t", records(1))).first_seq == n + 1


async def test_unsynced_writes_are_synced_by_the_timer_without_further_writes(threads: Threads) -> None:
    await threads.engine.put_topic("t", DISK)
    await threads.engine.append("t", records(1))
    await threads.asleep()
    with threads.disk.hold("datasync", "*/wal-*", times=1) as gate:
        threads.clock.tick(threads.engine.options.disk_sync_ms - 1)
        assert gate.held == 0
        threads.clock.tick(1)
        await asyncio.to_thread(gate.wait_held)
    await threads.asleep()
    assert threads.engine.shards[0].log.dirty_since_ns is None


async def test_a_failed_timer_sync_is_reported_without_further_writes(threads: Threads) -> None:
    told: asyncio.Queue[tuple[int, int | None]] = asyncio.Queue()
    threads.engine.on_shard_failed = lambda shard, number: told.put_nowait((shard, number))
    await threads.engine.put_topic("t", DISK)
    await threads.engine.append("t", records(1))
    await threads.asleep()
    threads.disk.fail("datasync", "*/wal-*", errno=errno.EIO)
    threads.clock.tick(threads.engine.options.disk_sync_ms)
    async with asyncio.timeout(10):
        assert await told.get() == (0, errno.EIO)
    assert isinstance(await outcome(threads.engine.append("t", records(1))), StorageFailed)


async def test_an_idle_writer_makes_no_disk_call(threads: Threads) -> None:
    await threads.engine.put_topic("t", FSYNC)
    await threads.asleep()
    calls = len(threads.disk.calls)
    threads.clock.tick(200)
    await threads.asleep()
    assert len(threads.disk.calls) == calls


async def test_a_failure_fails_all_pending_writes_and_the_thread_ends(threads: Threads) -> None:
    await threads.engine.append("t", records(1), config=FSYNC)
    with threads.disk.hold("datasync", "*/wal-*", times=1) as gate:
        threads.disk.fail("datasync", "*/wal-*", errno=errno.EIO)
        waiting = [asyncio.create_task(outcome(threads.engine.append("t", records(1)))) for _ in range(5)]
        await asyncio.to_thread(gate.wait_held)
        waiting += [asyncio.create_task(outcome(threads.engine.append("t", records(1)))) for _ in range(5)]
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while not all(each.done() for each in waiting):
            threads.clock.tick(1)  # the writer may be waiting for more writes
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*waiting)
    assert len(errors_among(outcomes)) == 10
    assert threads.engine.state("t").head_seq == 1
    assert await seqs(threads.engine, "t") == [1]


async def test_close_completes_queued_work(threads: Threads) -> None:
    await threads.engine.put_topic("t", FSYNC)
    with threads.disk.hold("pwritev", "*/wal-*", times=1) as gate:
        writing = [asyncio.create_task(threads.engine.append("t", records(1))) for _ in range(5)]
        await asyncio.to_thread(gate.wait_held)
        closing = asyncio.create_task(threads.close())
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await closing
        answers = await asyncio.gather(*writing)
    assert [each.first_seq for each in answers] == [1, 2, 3, 4, 5]
