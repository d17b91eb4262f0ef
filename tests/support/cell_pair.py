"""Two or more engines of a set of cells on simulated disks, in one event loop. Each may stop at any call to its disk.

    pair = CellPair(Random(7), owners={"jobs": 0, "dead": 1})
    pair.stop_at(1, CrashPoint(17, When.HALF))
    await pair.start()
    await pair.ask(0, lambda engine: engine.append("jobs", {"n": 1}))      # None: refused, or the cell stopped

A cell that has stopped is started again by the next `ask`, on what is left of its disk. The other cell continues
meanwhile. Nothing that the engine of a stopped machine still does in this loop reaches anybody.

The connection between them loses answers, breaks, and delivers calls late, even calls of a process that is gone. It
never delivers a call to the successor of the process that it was sent to. It carries bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

import msgspec

from storage import Engine, Options
from storage.errors import NotMine, StorageError, Unavailable
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, CrashPoint, Cut
from tests.support.crash_session import ROOT
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk

T = TypeVar("T")

#: One call in this many loses its connection. The most turns of the loop that a call is on its way.
FAILS_ONE_IN, MOST_TURNS = 12, 6
#: The steps of time at the end of a life.
REST_STEP_MS = 500.0


class AwayError(Unavailable):
    """The other cell cannot be reached."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome=outcome)
        self.outcome = outcome  # pyright: ignore[reportAttributeAccessIssue]


class AnsweredError(StorageError):
    """The other cell answered with this error."""

    def __init__(self, code: str, message: str, outcome: str) -> None:
        super().__init__(message)
        self.code = code  # pyright: ignore[reportAttributeAccessIssue]
        self.outcome = outcome  # pyright: ignore[reportAttributeAccessIssue]


class Process:
    """One process of a cell: its engine, and its end of the connection."""

    def __init__(self, pair: CellPair, me: int, disk: SimDisk) -> None:
        self.pair = pair
        self.me = me
        self.count = len(pair.disks)
        self.disk = disk
        self.stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        disk.on_crash(lambda: None if loop.is_closed() else self.stopped.set())
        options = msgspec.structs.replace(pair.options, cell=me, cells=pair.count)
        self.engine = Engine(ROOT, options, fs=disk, clock=pair.clock, threaded=False)
        self.engine.admin.check_home = self._check_home
        self.engine.join(self)

    def _check_home(self, name: str) -> None:
        owner = self.owner(name)
        if owner != self.me:
            raise NotMine(name, owner)

    def home(self, name: str) -> int:
        return self.pair.owners.get(name, 0)

    def owner(self, name: str) -> int:
        return self.engine.placing.owner(name)

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = 30.0) -> Any:
        if self.disk.crashed:
            await asyncio.Event().wait()
        other = self.pair.processes[cell]
        if other is None or other.disk.crashed:
            raise AwayError("none")
        rng = self.pair.rng
        delivering = asyncio.ensure_future(other.deliver(method, msgspec.msgpack.encode(argument)))
        self.pair.calls += 1
        ending: list[asyncio.Future[Any]] = [delivering, asyncio.ensure_future(other.stopped.wait())]
        if rng.randrange(FAILS_ONE_IN) == 0:
            ending.append(asyncio.ensure_future(_turns(rng.randrange(4 * MOST_TURNS))))
        await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
        for each in ending[1:]:
            each.cancel()
        if not delivering.done() or other.disk.crashed:
            if rng.randrange(2):
                delivering.cancel()  # the other end has noticed that the connection is gone
            delivering.add_done_callback(_seen)
            raise AwayError("unknown")
        answer = msgspec.msgpack.decode(delivering.result())
        if answer[0]:
            return answer[1]
        raise AnsweredError(*answer[1:])

    async def deliver(self, method: str, argument: bytes) -> bytes:
        """Carry out a call that was sent to this process, and encode the answer."""
        await _turns(self.pair.rng.randrange(MOST_TURNS))
        try:
            result = await self.engine.methods_for_neighbours[method](msgspec.msgpack.decode(argument))
            answer = [True, result]
        except StorageError as error:
            answer = [False, error.code, str(error), error.outcome]
        if self.disk.crashed:
            await asyncio.Event().wait()
        await _turns(self.pair.rng.randrange(MOST_TURNS))
        return msgspec.msgpack.encode(answer)


class CellPair:
    """See the module."""

    def __init__(
        self,
        rng: Random,
        owners: Mapping[str, int],
        options: Options = SMALL,
        count: int = 2,
        disk: type[SimDisk] = SimDisk,
    ) -> None:
        """`owners`: the home cell of each topic; `count`: how many cells there are; `disk`: what they are on."""
        self.rng = rng
        self.owners = owners
        self.options = options
        self.clock = FakeClock(threads=False)
        self.count = count
        self.disks = [disk() for _ in range(count)]
        self.processes: list[Process | None] = [None] * count
        #: Calls between the cells, and ends of processes.
        self.calls = 0
        self.ends = 0
        #: How much time a life gets at its end to come to rest, at a time.
        self.rest_ms = 40_000.0

    def stop_at(self, cell: int, point: CrashPoint) -> None:
        self.disks[cell].crash_at(point.index, point.when)

    async def start(self) -> None:
        for cell in range(self.count):
            await self.up(cell)

    async def up(self, cell: int) -> Process:
        """The cell's process. If the one before has stopped, a new one is started on what is left."""
        while True:
            process = self.processes[cell]
            if process is None:
                process = Process(self, cell, self.disks[cell])
                starting = asyncio.ensure_future(process.engine.start())
                await self._until_stopped(process, starting)
                if not process.disk.crashed:
                    starting.result()
                    self.processes[cell] = process
            if not process.disk.crashed:
                return process
            self.disks[cell] = self._cut().of(process.disk)
            self.processes[cell] = None
            self.ends += 1
            self.clock.tick(1)

    def _cut(self) -> Cut:
        if self.rng.randrange(2):
            return Cut(End.KILL)
        return Cut(End.POWER, self.rng.choice(list(Loss)), self.rng.randrange(1 << 30))

    def cut_power(self, cell: int) -> None:
        """End the process at that call, whatever it does."""
        process = self.processes[cell]
        if process is not None:
            process.disk.process_kill()

    async def ask(self, cell: int, operation: Callable[[Engine], Awaitable[T]]) -> T | None:
        """The answer. None if the request was refused, or the machine stopped before the answer."""
        process = await self.up(cell)
        asking = asyncio.ensure_future(operation(process.engine))
        await self._until_stopped(process, asking)
        if process.disk.crashed:
            return None
        with suppress(StorageError):
            return asking.result()
        return None

    async def _until_stopped(self, process: Process, work: asyncio.Future[Any]) -> None:
        stopped = asyncio.ensure_future(process.stopped.wait())
        while not work.done() and not stopped.done():
            # Work that waits for the other cell continues only with time, and work that waits for a stopped one never
            # does.
            await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED, timeout=0)
            await _turns(50)
            if not work.done() and not stopped.done():
                for cell in range(self.count):
                    if self.processes[cell] is not None:
                        await self.up(cell)
                await self.clock.advance(20)
        stopped.cancel()
        if not work.done():
            work.cancel()
        work.add_done_callback(_seen)

    async def pass_time(self, ms: float) -> None:
        """Start stopped cells again, so that both run."""
        for _ in range(10):
            for cell in range(self.count):
                await self.up(cell)
            await self.clock.advance(ms / 10)

    async def rest(self) -> None:
        """Let time pass in large steps, with stopped cells started again, so that work that is left is done."""
        for _ in range(round(self.rest_ms / REST_STEP_MS)):
            for cell in range(self.count):
                await self.up(cell)
            await self.clock.jump(REST_STEP_MS)

    async def settle(self, turns: int = 60) -> None:
        """Let both continue while time stands still."""
        await _turns(turns)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _seen(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
