"""Runs a workload of any kind of session until the machine stops: what the runs of routers and consumers share.

DRIVE = Drive(RouteSession, _examine)
crashed = DRIVE.run_until(workload, CrashPoint(index=17, when=When.HALF))
problems = DRIVE.examine(workload, crashed, Cut(End.POWER, Loss.TORN, seed=3))
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from storage import Engine, Options
from storage.errors import StorageError
from tests.support.crash_run import SMALL, CrashPoint, Cut, run, until_crash
from tests.support.crash_session import ROOT
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk
from tests.support.spec_decoder import SpecViolation, read_files


class Driven(Protocol):
    """One process on a simulated disk, with a ledger of what it answered."""

    engine: Engine
    disk: SimDisk
    clock: FakeClock
    ledger: Any

    async def start(self) -> None: ...

    def stopped(self) -> None:
        """The machine has stopped, or is about to be looked at."""


S = TypeVar("S", bound=Driven)


@dataclass(frozen=True)
class DriveWorkload(Generic[S]):
    """What is done, and to what kind of engine."""

    name: str
    body: Callable[[S], Awaitable[None]]
    options: Options = field(default=SMALL)


@dataclass(slots=True)
class Stopped:
    """A stopped machine."""

    disk: SimDisk
    ledger: Any
    wall_ms: int
    monotonic_ns: int
    orderly: bool

    def clock(self) -> FakeClock:
        return FakeClock(self.wall_ms, self.monotonic_ns)


class Drive(Generic[S]):
    """Runs workloads of one kind of session; `judge` opens what is left and says what is wrong with it."""

    def __init__(
        self,
        make: Callable[[SimDisk, Options], S],
        judge: Callable[[Options, Stopped, Cut], Awaitable[list[str]]],
    ) -> None:
        self._make = make
        self._judge = judge

    def trace(self, workload: DriveWorkload[S]) -> Stopped:
        """Run it to the end, without a crash (the process is then still alive)."""
        return run(self._run_until(workload, None))

    def run_until(self, workload: DriveWorkload[S], point: CrashPoint) -> Stopped:
        """Run it until the machine stops there."""
        return run(self._run_until(workload, point))

    def run_with_error(self, workload: DriveWorkload[S], index: int, errno: int) -> Stopped:
        """Run it with one call failing (not to the end, when that kept the engine from opening the directory)."""
        return run(self._run_with_error(workload, index, errno))

    def examine(self, workload: DriveWorkload[S], crashed: Stopped, cut: Cut) -> list[str]:
        """Everything that can be wrong with what this cut leaves."""
        return run(self._examined(workload.options, crashed, cut))

    async def _examined(self, options: Options, crashed: Stopped, cut: Cut) -> list[str]:
        return await self._judge(options, crashed, cut)

    async def _run_until(self, workload: DriveWorkload[S], point: CrashPoint | None) -> Stopped:
        disk = SimDisk()
        if point is not None:
            disk.crash_at(point.index, point.when)
        session = self._make(disk, workload.options)

        async def work() -> None:
            await session.start()
            await workload.body(session)

        await until_crash(disk, work())
        return _stopped(session, orderly=session.engine.ready and not session.engine.failed_shards)

    async def _run_with_error(self, workload: DriveWorkload[S], index: int, errno: int) -> Stopped:
        disk = SimDisk()
        disk.fail("*", nth=index + 1, errno=errno)
        session = self._make(disk, workload.options)
        try:
            await session.start()
            await workload.body(session)
        except (OSError, StorageError):
            assert not session.engine.ready, "this came out of an engine that runs, and not as a refusal"
        return _stopped(session, orderly=False)


def _stopped(session: Driven, *, orderly: bool) -> Stopped:
    session.stopped()
    return Stopped(session.disk, session.ledger, session.clock.wall_ms(), session.clock.monotonic_ns(), orderly)


def undecodable(disk: SimDisk) -> list[str]:
    """What the independent decoder has to say against the directory."""
    files = {path.removeprefix(f"{ROOT}/"): data for path, data in disk.content().items() if "/quarantine/" not in path}
    try:
        read_files({path: lambda data=data: data for path, data in files.items()})
    except SpecViolation as error:
        return [f"not as specified: {error}"]
    return []
