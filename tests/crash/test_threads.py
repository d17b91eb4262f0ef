"""Real writer threads: many writers at once, crashes and failures under load, and stops under load."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from storage import Durability, Engine, Options, TopicConfig
from tests.support.crash_chaos import Chaos, trouble
from tests.support.crash_check import End, Ending, check
from tests.support.crash_ledger import Ledger
from tests.support.crash_run import SMALL, Cut, carry_on, succeed, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk, quiet_crashes

WRITERS = 16
OPTIONS = msgspec.structs.replace(SMALL, wal_shards=2, wal_file_bytes=65536, io_threads=2, gc_max_us=1000)
LOSSES = [Cut(End.KILL), *(Cut(End.POWER, loss, seed=5) for loss in Loss)]


@pytest.fixture(autouse=True)
def _threads_may_die() -> Iterator[None]:
    with quiet_crashes():
        yield
        assert [each.name for each in threading.enumerate() if each.name.startswith("wal-")] == []


def threaded(disk: SimDisk, options: Options = OPTIONS) -> Session:
    """A process with real writer threads, on a simulated disk."""
    return Session(disk, options, make=lambda: Engine(ROOT, options, fs=disk))


@asynccontextmanager
async def stopped_after(session: Session) -> AsyncIterator[Session]:
    """A started engine. Its threads have ended when this ends, whether its machine stopped or not.

    A writer that outlived its test would fail on its stopped disk or its closed loop during the next test, which pytest
    would then blame.
    """
    await session.start()
    engine = session.engine
    pool = engine.runtime._pool
    assert pool is not None
    try:
        yield session
    finally:
        await engine.supervisor.stop()
        writers = [shard._thread for shard in engine.shards if shard._thread is not None]
        for shard in engine.shards:
            with shard._condition:
                shard._stopping = True
                shard._condition.notify()
        for writer in writers:
            await asyncio.to_thread(writer.join)
        await asyncio.to_thread(pool.shutdown, wait=True, cancel_futures=True)


async def write(session: Session, name: str, rounds: int, acks: list[int], rng: Random) -> None:
    """One writer; its acks go into the list of its topic, in the order in which they come."""
    for _ in range(rounds):
        answer = await session.append(name, rng.randint(1, 4), size=rng.choice([20, 200, 900]))
        if answer is None:
            return
        acks.append(answer.first_seq)


async def load(session: Session, rounds: int, seed: int = 0) -> dict[str, list[int]]:
    """Sixteen writers per class, each class in a separate topic."""
    rng = Random(seed)
    acks: dict[str, list[int]] = {str(each): [] for each in Durability}
    for each in Durability:
        await session.put(str(each), TopicConfig(durability=each))
    await asyncio.gather(
        *(write(session, name, rounds, acks[name], rng) for name in acks for _ in range(WRITERS)),
    )
    return acks


def in_order(session: Session, acks: dict[str, list[int]]) -> None:
    """Seqs have no gaps, and no write is answered before one with a lower seq."""
    for name, seqs in acks.items():
        assert seqs == sorted(seqs), name
        life = session.ledger.live(name)
        assert life is not None
        acked = sorted(seq for seq, _, _ in life.acked())
        assert acked == list(range(1, len(acked) + 1)), name


@pytest.mark.parametrize("cut", LOSSES, ids=str)
async def test_sixteen_writers_per_class_survive_a_power_cut(cut: Cut) -> None:
    async with stopped_after(threaded(SimDisk())) as session:
        acks = await load(session, rounds=3)
        in_order(session, acks)
        await session.snapshot()
        in_order(session, await load_more(session))
        await succeed(session, cut)


async def load_more(session: Session) -> dict[str, list[int]]:
    acks: dict[str, list[int]] = {str(each): [] for each in Durability}
    await asyncio.gather(*(write(session, name, 2, acks[name], Random(1)) for name in acks for _ in range(4)))
    return acks


async def test_sixteen_writers_per_class_survive_on_the_real_disk(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    ledger = Ledger()
    session = Session(SimDisk(), OPTIONS, ledger=ledger, make=lambda: Engine(data, OPTIONS))
    async with stopped_after(session):
        in_order(session, await load(session, rounds=4))
        await session.snapshot()
        in_order(session, await load_more(session))
        shutil.copytree(data, copy)  # what a process finds whose predecessor was killed at this moment
        await session.engine.close()
    after = Engine(copy, OPTIONS)
    await after.start()
    assert await check(after, ledger, Ending(End.KILL)) == []
    await after.close()


@pytest.mark.parametrize("seed", range(8))
async def test_acked_writes_survive_a_crash_under_load(seed: int) -> None:
    rng = Random(seed)
    disk = SimDisk()
    op = rng.choice(["datasync", "pwritev"])
    async with stopped_after(threaded(disk)) as session:
        disk.crash_on(op, "*/wal-*.log", nth=rng.randint(8, 40), when=rng.choice(["before", "half", "after"]))
        loop = asyncio.get_running_loop()
        await _until_stopped(loop, disk, session, seed)
        assert disk.crashed
        for cut in LOSSES:
            await succeed(Session(disk, OPTIONS, ledger=session.ledger.copy()), cut)


async def _until_stopped(loop: asyncio.AbstractEventLoop, disk: SimDisk, session: Session, seed: int) -> None:
    work = asyncio.ensure_future(load(session, rounds=40, seed=seed))
    disk.on_crash(lambda: loop.call_soon_threadsafe(work.cancel))
    await asyncio.wait([work])


@pytest.mark.parametrize("op", ["datasync", "pwritev"])
async def test_writes_acked_under_load_on_a_failing_disk_survive(op: str) -> None:
    disk = SimDisk()
    async with stopped_after(threaded(disk)) as session:
        disk.fail(op, "*shard-00/wal-*", nth=12, torn=True)
        await load(session, rounds=12)
        assert [shard for shard, _ in session.engine.failed_shards] == [0]
        for cut in LOSSES:
            await succeed(Session(disk, OPTIONS, ledger=session.ledger.copy()), cut, orderly=False)


async def test_a_disk_that_fills_up_under_load_refuses_writes_until_there_is_space() -> None:
    disk = SimDisk()
    async with stopped_after(threaded(disk)) as session:
        await session.append("f", config=TopicConfig(durability=Durability.FSYNC))
        disk.capacity_bytes = disk.used_bytes + 2 * OPTIONS.wal_file_bytes
        await load(session, rounds=40)
        assert {error.code for error in session.refusals} == {"storage_full"}
        disk.capacity_bytes = None
        await asyncio.to_thread(_until_resumed, session)
        in_order(session, await load_more(session))
        await succeed(session, Cut(End.POWER, Loss.DROP))


def _until_resumed(session: Session) -> None:
    while any(shard.log.full for shard in session.engine.shards):
        time.sleep(0.02)


async def test_a_stop_under_load_answers_all_writes_and_keeps_acked_writes() -> None:
    disk = SimDisk()
    session = threaded(disk)
    await session.start()
    work = asyncio.ensure_future(load(session, rounds=1000))
    busy = asyncio.Event()
    session.engine.publisher.on_commit = lambda log: busy.set() if log.head > 20 else None
    await busy.wait()
    await session.engine.close()
    await asyncio.wait_for(work, 20)
    assert {error.code for error in session.refusals} == {"shutting_down"}
    for cut in LOSSES:
        await succeed(Session(disk, OPTIONS, ledger=session.ledger.copy()), cut)


async def test_a_snapshot_between_the_acks_of_a_group_loses_no_write_of_the_group() -> None:
    """A disk-class write is acked before the sync that an earlier fsync-class write waits for."""
    disk = SimDisk()
    options = msgspec.structs.replace(SMALL, sync_point_ms=1 << 30, disk_sync_ms=1 << 30)
    async with stopped_after(threaded(disk, options)) as session:
        await session.append("d", config=TopicConfig(durability=Durability.DISK))
        await session.remove("d", before_seq=2)
        await session.append("f", config=TopicConfig(durability=Durability.FSYNC))
        await session.remove("f", before_seq=2)
        first, second = disk.hold("datasync", times=1), disk.hold("datasync", nth=2, times=1)
        held = asyncio.ensure_future(session.append("f"))
        await asyncio.to_thread(first.wait_held)
        made = asyncio.ensure_future(session.append("new", 2, config=TopicConfig(durability=Durability.FSYNC)))
        acked = asyncio.ensure_future(session.append("d", 2))
        await asyncio.sleep(0)
        first.open()
        await asyncio.to_thread(second.wait_held)
        await acked
        assert not made.done()
        snapshot = asyncio.ensure_future(session.snapshot())
        await asyncio.sleep(0.01)
        second.open()
        await asyncio.gather(held, made, snapshot)
        await succeed(session, Cut(End.POWER, Loss.DROP))


async def chaos(seed: int) -> None:
    """Anything goes wrong under any load. Then every kind of end is checked."""
    rng = Random(seed)
    disk = SimDisk()
    options = msgspec.structs.replace(OPTIONS, wal_shards=rng.randint(1, 3), wal_file_bytes=rng.choice([4096, 16384]))
    async with stopped_after(threaded(disk, options)) as session:
        kind = trouble(session, rng)
        work = asyncio.ensure_future(Chaos(session, seed).run(steps=12))
        loop = asyncio.get_running_loop()
        disk.on_crash(lambda: loop.is_closed() or loop.call_soon_threadsafe(work.cancel))
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()
        for cut in LOSSES:
            found = Session(disk, options, ledger=session.ledger.copy())
            after = await succeed(found, cut, orderly=kind in ("stop", "none"))
            after.disk.capacity_bytes = None
            await after.pass_time(600)
            await carry_on(after)
            await succeed(after, Cut(End.POWER, Loss.TORN, seed))


@pytest.mark.parametrize("number", range(6))
async def test_concurrent_random_operations_keep_every_promise(number: int) -> None:
    await chaos(random.getrandbits(32) + number)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(400))
async def test_concurrent_random_operations_keep_every_promise_many_times(number: int) -> None:
    await chaos(random.getrandbits(32) + number)


async def test_until_crash_also_ends_a_start_in_a_busy_thread() -> None:
    disk = SimDisk()
    disk.crash_on("sync", "*FORMAT*")
    session = threaded(disk)
    await until_crash(disk, session.start())
    assert disk.crashed
    assert not session.engine.ready
