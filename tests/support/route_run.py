"""Runs a router workload until the machine stops, and opens what is left again and again. See `crash_run`.

`examine` opens the directory, lets it forward and holds it to the ledger, has the independent decoder read it, kills
that process and opens it again, stops a third recovery at some call and opens what that leaves; then writes more to
every topic, cuts the power once more, and looks again.
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
from tests.support.crash_view import view
from tests.support.fake_clock import FakeClock
from tests.support.route_check import check
from tests.support.route_session import RouteLedger, RouteSession
from tests.support.sim_disk import Loss, SimDisk, When
from tests.support.spec_decoder import SpecViolation, read_files


@dataclass(frozen=True, slots=True)
class RouteWorkload:
    """What is done, and to what kind of engine."""

    name: str
    body: Callable[[RouteSession], Awaitable[None]]
    options: Options = field(default=SMALL)


@dataclass(slots=True)
class Crashed:
    """A stopped machine."""

    disk: SimDisk
    ledger: RouteLedger
    wall_ms: int
    monotonic_ns: int
    orderly: bool

    def clock(self) -> FakeClock:
        return FakeClock(self.wall_ms, self.monotonic_ns)


def trace(workload: RouteWorkload) -> Crashed:
    """Run it to the end, without a crash (the process is then still alive)."""
    return run(_run_until(workload, None))


def run_until(workload: RouteWorkload, point: CrashPoint) -> Crashed:
    """Run it until the machine stops there."""
    return run(_run_until(workload, point))


def run_with_error(workload: RouteWorkload, index: int, errno: int) -> Crashed:
    """Run it with one call failing (not to the end, when that kept the engine from opening the directory)."""
    return run(_run_with_error(workload, index, errno))


async def _run_until(workload: RouteWorkload, point: CrashPoint | None) -> Crashed:
    disk = SimDisk()
    if point is not None:
        disk.crash_at(point.index, point.when)
    session = RouteSession(disk, workload.options)

    async def work() -> None:
        await session.start()
        await workload.body(session)

    await until_crash(disk, work())
    return _crashed(session, orderly=session.engine.ready and not session.engine.failed_shards)


async def _run_with_error(workload: RouteWorkload, index: int, errno: int) -> Crashed:
    disk = SimDisk()
    disk.fail("*", nth=index + 1, errno=errno)
    session = RouteSession(disk, workload.options)
    try:
        await session.start()
        await workload.body(session)
    except (OSError, StorageError):
        assert not session.engine.ready, "this came out of an engine that runs, and not as a refusal"
    return _crashed(session, orderly=False)


def _crashed(session: RouteSession, *, orderly: bool) -> Crashed:
    ledger = session.ledger
    ledger.restarts.append(len(ledger.sent))
    return Crashed(session.disk, ledger, session.clock.wall_ms(), session.clock.monotonic_ns(), orderly)


def examine(workload: RouteWorkload, crashed: Crashed, cut: Cut) -> list[str]:
    """Everything that can be wrong with what this cut leaves."""
    return run(_examine(workload.options, crashed, cut))


async def _opened(disk: SimDisk, options: Options, crashed: Crashed, ledger: RouteLedger | None = None) -> RouteSession:
    session = RouteSession(disk, options, clock=crashed.clock(), ledger=ledger or crashed.ledger.copy())
    await session.start()
    await session.settle()
    return session


async def _examine(options: Options, crashed: Crashed, cut: Cut) -> list[str]:
    rng = Random(cut.seed)
    ending = Ending(cut.end, crashed.orderly)
    disk = cut.of(crashed.disk)
    session = RouteSession(disk, options, clock=crashed.clock(), ledger=crashed.ledger.copy())
    await session.start()
    calls = len(disk.calls)
    await session.settle()
    problems = await check(session.engine, session.ledger, ending)
    problems += _undecodable(disk) if crashed.orderly else []
    first = await _seen(session)
    found = await _opened(disk.process_kill(), options, crashed, session.ledger)
    again = await _seen(found)
    problems += [
        f"recovered twice: {name}: {first.get(name)} against {again.get(name)}"
        for name in sorted(first.keys() | again.keys())
        if first.get(name) != again.get(name)
    ]
    problems += [f"recovery killed: {each}" for each in await _kill_recovery(options, crashed, cut, ending, calls, rng)]
    found.ledger.restarts.append(len(found.ledger.sent))
    for state in found.engine.topics():
        await found.append(state.topic, 2, tag="x")
    await found.settle()
    problems += [f"gone on: {each}" for each in await check(found.engine, found.ledger, Ending(End.KILL))]
    loss = rng.choice([Loss.DROP, Loss.TORN, Loss.PREFIX])
    found.ledger.restarts.append(len(found.ledger.sent))
    last = await _opened(found.disk.power_cut(loss, rng.randrange(1 << 30)), options, crashed, found.ledger)
    later = await check(last.engine, last.ledger, Ending(End.POWER))
    return problems + [f"crashed again ({loss}): {each}" for each in later]


async def _seen(session: RouteSession) -> dict[str, Any]:
    """All that can be seen of topics and routers. Times of copies differ from one recovery to the next."""
    topics = await view(session.engine)
    seen: dict[str, Any] = {}
    for name, topic in topics.items():
        seen[name] = ([record.body for record in topic.records], topic.state.epoch, topic.state.config)
    for state in session.engine.routers.page(limit=1000):
        seen[f"router {state.name}"] = (state.definition, state.lag)
    return seen


async def _kill_recovery(
    options: Options, crashed: Crashed, cut: Cut, ending: Ending, calls: int, rng: Random
) -> list[str]:
    """Stop the machine somewhere in the recovery, and recover from that."""
    disk = cut.of(crashed.disk)
    disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
    dying = RouteSession(disk, options, clock=crashed.clock())
    await until_crash(disk, dying.start())
    end = rng.choice(list(End))
    found = await _opened(Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk), options, crashed)
    worst = End.POWER if End.POWER in (end, ending.end) else End.KILL
    return await check(found.engine, found.ledger, Ending(worst, orderly=False))


def _undecodable(disk: SimDisk) -> list[str]:
    """The directory as the independent decoder reads it."""
    files = {path.removeprefix(f"{ROOT}/"): data for path, data in disk.content().items() if "/quarantine/" not in path}
    try:
        read_files({path: lambda data=data: data for path, data in files.items()})
    except SpecViolation as error:
        return [f"not as specified: {error}"]
    return []
