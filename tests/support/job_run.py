"""Runs a queue workload until the machine stops, and opens what is left again and again. See `crash_run`.

`examine` opens the directory and holds it to the ledger, has the independent decoder read it, kills that process and
opens it again (the same state), stops a third recovery at some call and opens what that leaves; then takes all jobs
out, cuts the power once more, and looks whether any of them is back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from storage import Options
from storage.errors import StorageError
from tests.support.crash_check import End, Ending
from tests.support.crash_run import SMALL, CrashPoint, Cut, run, until_crash
from tests.support.crash_session import ROOT
from tests.support.crash_view import TopicView, view
from tests.support.fake_clock import FakeClock
from tests.support.job_check import check, listing
from tests.support.job_drain import drain
from tests.support.job_ledger import JobLedger
from tests.support.job_session import JobSession
from tests.support.sim_disk import Loss, SimDisk, When
from tests.support.spec_decoder import SpecViolation, read_files

#: Turns of the loop in which open moves have come to their end.
SETTLING_TURNS = 200


@dataclass(frozen=True, slots=True)
class JobWorkload:
    """What is done, and to what kind of engine."""

    name: str
    body: Callable[[JobSession], Awaitable[None]]
    options: Options = field(default=SMALL)


@dataclass(slots=True)
class Crashed:
    """A stopped machine. Who looks at it has a clock of his own, that goes on from there."""

    disk: SimDisk
    ledger: JobLedger
    wall_ms: int
    monotonic_ns: int
    orderly: bool

    def clock(self) -> FakeClock:
        return FakeClock(self.wall_ms, self.monotonic_ns)


def trace(workload: JobWorkload) -> Crashed:
    """Run it to the end, without a crash (the process is then still alive)."""
    return run(_run_until(workload, None))


def run_until(workload: JobWorkload, point: CrashPoint) -> Crashed:
    """Run it until the machine stops there."""
    return run(_run_until(workload, point))


def run_with_error(workload: JobWorkload, index: int, errno: int) -> Crashed:
    """Run it with one call failing (not to the end, when that kept the engine from opening the directory)."""
    return run(_run_with_error(workload, index, errno))


async def _run_until(workload: JobWorkload, point: CrashPoint | None) -> Crashed:
    disk = SimDisk()
    if point is not None:
        disk.crash_at(point.index, point.when)
    session = JobSession(disk, workload.options)

    async def work() -> None:
        await session.start()
        await workload.body(session)

    await until_crash(disk, work())
    return _crashed(session, orderly=session.engine.ready and not session.engine.failed_shards)


async def _run_with_error(workload: JobWorkload, index: int, errno: int) -> Crashed:
    disk = SimDisk()
    disk.fail("*", nth=index + 1, errno=errno)
    session = JobSession(disk, workload.options)
    try:
        await session.start()
        await workload.body(session)
    except (OSError, StorageError):
        assert not session.engine.ready, "this came out of an engine that runs, and not as a refusal"
    return _crashed(session, orderly=False)


def _crashed(session: JobSession, *, orderly: bool) -> Crashed:
    clock = session.clock
    return Crashed(session.disk, session.ledger, clock.wall_ms(), clock.monotonic_ns(), orderly)


def examine(workload: JobWorkload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that can be wrong with what this cut leaves."""
    return run(_examine(workload.options, crashed, cut))


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    ending = Ending(cut.end, crashed.orderly)
    disk = cut.of(crashed.disk)
    session = JobSession(disk, options, clock=crashed.clock(), ledger=crashed.ledger.copy())
    await session.start()
    calls = len(disk.calls)
    problems = await check(session.engine, session.ledger, ending)
    first = await _seen(session, crashed)
    problems += _undecodable(disk) if crashed.orderly else []
    problems += await _recovered_again(disk, options, crashed, first)
    problems += [f"recovery killed: {each}" for each in await _kill_recovery(options, crashed, cut, ending, calls, rng)]
    found = JobSession(disk.process_kill(), options, clock=crashed.clock(), ledger=session.ledger)
    await found.start()
    problems += await check(found.engine, found.ledger, Ending(End.KILL))
    problems += [f"drained: {each}" for each in await drain(found)]
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    cut_again = found.disk.power_cut(loss, rng.randrange(1 << 30))
    last = JobSession(cut_again, options, clock=found.clock, ledger=found.ledger)
    await last.start()
    later = await check(last.engine, last.ledger, Ending(End.POWER))
    return problems + [f"crashed again ({loss}): {each}" for each in later]


Seen = tuple[dict[str, TopicView], dict[str, Any]]


async def _seen(session: JobSession, crashed: Crashed) -> Seen:
    """All that can be seen of topics and queues.

    Leases that came through a clean stop and are not durable are left out: the next recovery, behind a crash, is right
    to have them no more.
    """
    await session.settle(SETTLING_TURNS)
    topics = await view(session.engine)
    queues: dict[str, Any] = {}
    for name, queue in session.ledger.queues.items():
        if queue.holds_dead or name not in topics:
            continue
        if queue.config.leases_durable or not crashed.ledger.perhaps_clean:
            queues[name] = listing(session.engine, name)
        else:
            topics[name].state.queue = None
    return topics, queues


async def _recovered_again(disk: SimDisk, options: Options, crashed: Crashed, first: Seen) -> list[str]:
    """What two recoveries of one directory disagree about."""
    session = JobSession(disk.process_kill(), options, clock=crashed.clock(), ledger=crashed.ledger.copy())
    await session.start()
    again = await _seen(session, crashed)
    return [
        f"recovered twice: {name}: {one.get(name)} against {two.get(name)}"
        for one, two in zip(first, again, strict=True)
        for name in sorted(one.keys() | two.keys())
        if one.get(name) != two.get(name)
    ]


async def _kill_recovery(
    options: Options, crashed: Crashed, cut: Cut, ending: Ending, calls: int, rng: Random
) -> list[str]:
    """Stop the machine somewhere in the recovery, and recover from that."""
    disk = cut.of(crashed.disk)
    disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
    dying = JobSession(disk, options, clock=crashed.clock())
    await until_crash(disk, dying.start())
    end = rng.choice(list(End))
    found = Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk)
    session = JobSession(found, options, clock=crashed.clock(), ledger=crashed.ledger.copy())
    await session.start()
    worst = End.POWER if End.POWER in (end, ending.end) else End.KILL
    return await check(session.engine, session.ledger, Ending(worst, orderly=False))


def _undecodable(disk: SimDisk) -> list[str]:
    """The directory as the independent decoder reads it."""
    files = {path.removeprefix(f"{ROOT}/"): data for path, data in disk.content().items() if "/quarantine/" not in path}
    try:
        read_files({path: lambda data=data: data for path, data in files.items()})
    except SpecViolation as error:
        return [f"not as specified: {error}"]
    return []
