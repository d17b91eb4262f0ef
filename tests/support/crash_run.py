"""Runs a workload until the machine stops, and opens what is left again and again.

    point = CrashPoint(index=17, when=When.HALF)
    crashed = run_until(workload, point)          # the disk at that moment, and what the workload had been told
    problems = examine(workload, crashed, Cut(End.POWER, Loss.TORN, seed=3))

`examine` opens the directory and compares it with the ledger. It kills that process and opens the directory again (the
same state), stops a third recovery at some call and opens what that leaves. Then it writes more, cuts the power once
more, and checks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from storage import Durability, Options, TopicConfig
from storage.errors import StorageError
from tests.support.crash_check import End, Ending, check
from tests.support.crash_consumers import check_reclaimed
from tests.support.crash_ledger import Ledger, Outcome
from tests.support.crash_session import Session
from tests.support.crash_view import TopicView, view
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimCrash, SimDisk, When

T = TypeVar("T")

#: Snapshots and segments are only made when a workload says so.
SMALL = Options(
    wal_shards=1,
    wal_file_bytes=16384,
    wal_reserve_bytes=8192,
    sync_point_bytes=1024,
    snapshot_interval_ms=10**9,
    checkpoint_interval_ms=10**9,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """The steps of a workload, and the options of its engine."""

    name: str
    body: Callable[[Session], Awaitable[None]]
    options: Options = field(default=SMALL)
    #: Makes the machine's empty disk.
    disk: Callable[[], SimDisk] = SimDisk


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The call at which the machine stops."""

    index: int
    when: When


@dataclass(frozen=True, slots=True)
class Cut:
    """What happens to the disk: nothing more is lost (KILL), or what was not synced is lost (POWER)."""

    end: End
    loss: Loss = Loss.KEEP
    seed: int = 0

    def of(self, disk: SimDisk) -> SimDisk:
        return disk.process_kill() if self.end is End.KILL else disk.power_cut(self.loss, self.seed)


@dataclass(slots=True)
class Crashed:
    """A stopped machine."""

    disk: SimDisk
    ledger: Ledger
    clock: FakeClock
    orderly: bool


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own, which does not report tasks that a crash ended."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(_only_what_is_no_crash)
    try:
        return loop.run_until_complete(work)
    finally:
        _let_go(loop)


def _let_go(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()


def _only_what_is_no_crash(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), SimCrash | StorageError):
        loop.default_exception_handler(context)


async def until_crash(disk: SimDisk, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work, or None if the machine stopped during it."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_only_what_is_no_crash)
    stopped = asyncio.Event()

    def stop() -> None:
        """In the thread that made the call, or much later when the power is cut."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(stopped.set)

    disk.on_crash(stop)
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(stopped.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done() and not disk.crashed:
        waiting.cancel()
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


async def succeed(before: Session, cut: Cut, *, orderly: bool = True, options: Options | None = None) -> Session:
    """The next process on the disk after the cut. It keeps every promise of the one before."""
    asyncio.get_running_loop().set_exception_handler(_only_what_is_no_crash)  # workers of `before` may still wake up
    disk = cut.of(before.disk)
    after = Session(disk, options or before.options, clock=before.clock, ledger=before.ledger)
    await after.start()
    problems = await check(after.engine, after.ledger, Ending(cut.end, orderly))
    assert not problems, "\n".join(problems)
    return after


def trace(workload: Workload) -> Crashed:
    """Run it to the end, without a crash. The process is then still alive."""
    return run(_run_until(workload, None))


def run_until(workload: Workload, point: CrashPoint) -> Crashed:
    """Run it until the machine stops at that call."""
    return run(_run_until(workload, point))


async def _run_until(workload: Workload, point: CrashPoint | None) -> Crashed:
    disk = workload.disk()
    if point is not None:
        disk.crash_at(point.index, point.when)
    session = Session(disk, workload.options)

    async def work() -> None:
        await session.start()
        await workload.body(session)

    await until_crash(disk, work())
    orderly = session.engine.ready and not session.engine.failed_shards
    return Crashed(disk, session.ledger, session.clock, orderly)


def run_with_error(workload: Workload, index: int, errno: int) -> Crashed:
    """Run it with one failing call. It does not reach the end if that kept the engine from opening the directory."""
    return run(_run_with_error(workload, index, errno))


async def _run_with_error(workload: Workload, index: int, errno: int) -> Crashed:
    asyncio.get_running_loop().set_exception_handler(_only_what_is_no_crash)
    disk = workload.disk()
    disk.fail("*", nth=index + 1, errno=errno)
    session = Session(disk, workload.options)
    try:
        await session.start()
        await workload.body(session)
    except (OSError, StorageError):
        assert not session.engine.ready, "this came out of an engine that runs, and not as a refusal"
    return Crashed(disk, session.ledger, session.clock, orderly=False)


def examine(workload: Workload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that is wrong after this cut."""
    return run(_examine(workload.options, crashed, cut))


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    ledger = crashed.ledger.copy()
    ending = Ending(cut.end, crashed.orderly)
    disk = cut.of(crashed.disk)
    session = Session(disk, options, clock=crashed.clock, ledger=ledger)
    await session.start()
    problems = await check(session.engine, ledger, ending)
    first = await view(session.engine)
    calls = len(disk.calls)
    again = await _recovered(disk.process_kill(), options, crashed.clock)
    problems += [f"recovered twice: {each}" for each in differences(first, again)]
    problems += [f"recovery killed: {each}" for each in await _kill_recovery(options, crashed, cut, ending, calls, rng)]
    found = Session(disk.process_kill(), options, clock=crashed.clock, ledger=ledger)
    await found.start()
    problems += [f"not given back: {each}" for each in await check_reclaimed(found)]
    await carry_on(found)
    later = Ending(End.POWER)
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    last = Session(found.disk.power_cut(loss, rng.randrange(1 << 30)), options, clock=crashed.clock, ledger=ledger)
    await last.start()
    problems += [f"crashed again ({loss}): {each}" for each in await check(last.engine, ledger, later)]
    return problems


async def _recovered(disk: SimDisk, options: Options, clock: FakeClock) -> dict[str, TopicView]:
    session = Session(disk, options, clock=clock)
    await session.start()
    return await view(session.engine)


async def _kill_recovery(
    options: Options, crashed: Crashed, cut: Cut, ending: Ending, calls: int, rng: Random
) -> list[str]:
    """Stop the machine somewhere in the recovery, and recover from that."""
    disk = cut.of(crashed.disk)
    disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
    dying = Session(disk, options, clock=crashed.clock)
    await until_crash(disk, dying.start())
    ledger = crashed.ledger.copy()
    end = rng.choice(list(End))
    found = Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk)
    session = Session(found, options, clock=crashed.clock, ledger=ledger)
    await session.start()
    worst = End.POWER if End.POWER in (end, ending.end) else End.KILL
    return await check(session.engine, ledger, Ending(worst, orderly=False))


def differences(first: dict[str, TopicView], second: dict[str, TopicView]) -> list[str]:
    """What two recoveries of one directory disagree about."""
    found = [f"{name} is there only once" for name in sorted(first.keys() ^ second.keys())]
    both = sorted(first.keys() & second.keys())
    return found + [f"{name}: {first[name]} against {second[name]}" for name in both if first[name] != second[name]]


async def carry_on(session: Session) -> None:
    """More of everything on a recovered directory: retries with old keys first, then new records, topics and
    deletions."""
    for life in list(session.ledger.lives):
        if session.ledger.live(life.name) is not life:
            continue
        await _retry_keys(session, life.name)
        await session.append(life.name, 2)
        await session.append(life.name)
    await session.put("afterwards", TopicConfig(durability=Durability.FSYNC))
    await session.append("afterwards", 3, meta=True)
    await session.append("afterwards-disk", 2, config=TopicConfig(durability=Durability.DISK))


async def _retry_keys(session: Session, name: str) -> None:
    """A write that survived is recognised when it is sent again with its key. One that did not survive is written
    now."""
    life = session.ledger.live(name)
    assert life is not None
    for write in [write for write in life.writes if write.key is not None and not write.lost]:
        if write.outcome is Outcome.DONE and not write.safe:
            continue  # it is gone again, and its key may be gone too
        records = [record.new() for record in write.records]
        answer = await session.engine.append(name, records, idempotency_key=write.key)
        if write.outcome is Outcome.DONE:
            assert answer.deduped, f"{name}: write {write.number} is there, its key {write.key} is not known"
            assert answer.first_seq == write.first_seq, f"{name}: key {write.key} leads to {answer.first_seq}"
        elif answer.deduped and session.engine.state(name).config.cap_records:
            continue  # the outcome was unknown: it existed, and has been evicted since
        else:
            assert not answer.deduped, f"{name}: write {write.number} is gone, its key {write.key} is known"
            write.ack(answer.first_seq)
            write.safe = life.durability is Durability.FSYNC
