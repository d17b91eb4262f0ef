"""Runs workloads of any kind of session until the machine stops: the common part of `job_run` and `route_run`.

    DRIVER = Driver(JobSession)
    crashed = DRIVER.run_until(workload, CrashPoint(index=17, when=When.HALF))
    session = await DRIVER.opened(cut.of(crashed.disk), workload.options, crashed)

A new kind needs a session (see `Process`) and an `examine`, which says what is wrong after a cut.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, Protocol, Self, TypeVar

from storage import Engine, Options
from storage.errors import StorageError
from tests.support.crash_check import End, Ending
from tests.support.crash_run import SMALL, CrashPoint, Cut, run, until_crash
from tests.support.crash_session import ROOT
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk, When
from tests.support.spec_decoder import SpecViolation, read_files


class Ledger(Protocol):
    """What was requested and answered."""

    def copy(self) -> Self: ...


L = TypeVar("L", bound=Ledger)
L_co = TypeVar("L_co", bound=Ledger, covariant=True)


class Process(Protocol[L_co]):
    """One process on a simulated disk, and the ledger of its answers."""

    disk: SimDisk
    clock: FakeClock
    engine: Engine

    @property
    def ledger(self) -> L_co: ...

    async def start(self) -> None: ...


S = TypeVar("S", bound=Process[Any])


@dataclass(frozen=True)
class Workload(Generic[S]):
    """The steps of a workload, and the options of its engine."""

    name: str
    body: Callable[[S], Awaitable[None]]
    options: Options = field(default=SMALL)
    #: Makes the machine's empty disk.
    disk: Callable[[], SimDisk] = SimDisk


@dataclass(slots=True)
class Crashed(Generic[L]):
    """A stopped machine. A process that examines it has a clock of its own, which continues from there."""

    disk: SimDisk
    ledger: L
    wall_ms: int
    monotonic_ns: int
    orderly: bool

    def clock(self) -> FakeClock:
        return FakeClock(self.wall_ms, self.monotonic_ns)


class SessionFactory(Protocol[S, L]):
    """Creates a session."""

    def __call__(
        self, disk: SimDisk, options: Options, *, clock: FakeClock | None = None, ledger: L | None = None
    ) -> S: ...


class Driver(Generic[S, L]):
    """For one kind of session. `stopped` is called with the ledger when the machine has stopped."""

    def __init__(self, makes: SessionFactory[S, L], *, stopped: Callable[[L], None] = lambda _: None) -> None:
        self._makes = makes
        self._stopped = stopped

    # -- until it stops ----------------------------------------------------------------------------------------------

    def trace(self, workload: Workload[S]) -> Crashed[L]:
        """Run it to the end, without a crash. The process is then still alive."""
        return run(self._run_until(workload, None))

    def run_until(self, workload: Workload[S], point: CrashPoint) -> Crashed[L]:
        """Run it until the machine stops at that call."""
        return run(self._run_until(workload, point))

    def run_with_error(self, workload: Workload[S], index: int, errno: int) -> Crashed[L]:
        """Run it with one failing call. It does not reach the end if that kept the engine from opening the
        directory."""
        return run(self._run_with_error(workload, index, errno))

    async def _run_until(self, workload: Workload[S], point: CrashPoint | None) -> Crashed[L]:
        disk = workload.disk()
        if point is not None:
            disk.crash_at(point.index, point.when)
        session = self._makes(disk, workload.options)

        async def work() -> None:
            await session.start()
            await workload.body(session)

        await until_crash(disk, work())
        return self._crashed(session, orderly=session.engine.ready and not session.engine.failed_shards)

    async def _run_with_error(self, workload: Workload[S], index: int, errno: int) -> Crashed[L]:
        disk = workload.disk()
        disk.fail("*", nth=index + 1, errno=errno)
        session = self._makes(disk, workload.options)
        try:
            await session.start()
            await workload.body(session)
        except (OSError, StorageError):
            assert not session.engine.ready, "this came out of an engine that runs, and not as a refusal"
        return self._crashed(session, orderly=False)

    def _crashed(self, session: S, *, orderly: bool) -> Crashed[L]:
        self._stopped(session.ledger)
        clock = session.clock
        return Crashed(session.disk, session.ledger, clock.wall_ms(), clock.monotonic_ns(), orderly)

    # -- what is left ------------------------------------------------------------------------------------------------

    async def opened(
        self,
        disk: SimDisk,
        options: Options,
        crashed: Crashed[L],
        ledger: L | None = None,
        *,
        clock: FakeClock | None = None,
    ) -> S:
        """The next process on this disk, with a copy of the ledger and a clock of its own unless others are given."""
        session = self._makes(disk, options, clock=clock or crashed.clock(), ledger=ledger or crashed.ledger.copy())
        await session.start()
        return session

    async def opened_behind_killed_recovery(
        self, options: Options, crashed: Crashed[L], cut: Cut, calls: int, rng: Random
    ) -> tuple[S, Ending]:
        """Stop the machine at one of the `calls` of the recovery, and recover from that. Returns how that ended."""
        disk = cut.of(crashed.disk)
        disk.crash_at(rng.randrange(calls), rng.choice(list(When)))
        dying = self._makes(disk, options, clock=crashed.clock())
        await until_crash(disk, dying.start())
        end = rng.choice(list(End))
        found = Cut(end, rng.choice(list(Loss)), rng.randrange(1 << 30)).of(disk)
        session = await self.opened(found, options, crashed)
        return session, Ending(End.POWER if End.POWER in (end, cut.end) else End.KILL, orderly=False)


def undecodable(disk: SimDisk) -> list[str]:
    """The directory as the independent decoder reads it, which knows of no other bases than snapshots."""
    if disk.make_base is not None:
        return []
    files = {path.removeprefix(f"{ROOT}/"): data for path, data in disk.content().items() if "/quarantine/" not in path}
    try:
        read_files({path: lambda data=data: data for path, data in files.items()})
    except SpecViolation as error:
        return [f"not as specified: {error}"]
    return []


def recovered_differently(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The names of what two recoveries of one directory disagree about."""
    return [
        f"recovered twice: {name}: {first.get(name)} against {second.get(name)}"
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]
