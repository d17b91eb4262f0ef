"""A simulated machine with an engine: the basis of the engine tests.

    async with Machine() as machine:
        engine = await machine.start(max_topics=3)
        ...
        engine = await machine.kill()          # the process dies and starts again
        engine = await machine.cut_power()     # the machine stops and loses everything not synced

Everything runs inline on the test's loop, time stands still until the test moves it, and the disk is in memory.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from types import TracebackType
from typing import Any

import msgspec

from storage import Engine, NewRecord, Options, ReadQuery
from storage.errors import StorageError
from storage.state.log import Log
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import Loss, SimDisk

DATA = "/data"
WAL = "/data/wal"


def options(**changes: Any) -> Options:
    """Small files and one shard, so that a test sees rotations and needs no luck with hashes."""
    small = {"wal_shards": 1, "wal_file_bytes": 1 << 17, "wal_reserve_bytes": 1 << 13}
    return Options(**{**small, **changes})


def record(data: Any = 0, *, meta: Any = None, **more: Any) -> NewRecord:
    """A record of JSON-able values."""
    return NewRecord(raw(data), None if meta is None else raw(meta), **more)


def records(count: int, **more: Any) -> list[NewRecord]:
    return [record(0, **more) for _ in range(count)]


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value, separators=(",", ":")).encode())


def sized(size: int) -> NewRecord:
    """A record whose data has this many bytes of JSON (2 at least)."""
    return NewRecord(msgspec.Raw(b'"' + b"x" * (size - 2) + b'"'))


class Machine:
    """A disk and a clock, and the engines started on them. The last engine is closed with the machine."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.clock = FakeClock()
        self._engine: Engine | None = None
        #: A change to the disk before the next start after a crash.
        self.before_start: Callable[[Machine], None] | None = None

    async def __aenter__(self) -> Machine:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disk.clear_faults()
        self.disk.capacity_bytes = None
        await self.close()

    async def start(self, **changes: Any) -> Engine:
        """A new engine on the current disk. The previous engine must have ended."""
        engine = Engine(DATA, options(**changes), fs=self.disk, clock=self.clock, threaded=False)
        await engine.start()
        self._engine = engine
        return engine

    async def close(self) -> None:
        """A clean stop."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

    async def restart(self, **changes: Any) -> Engine:
        """A clean stop and a new start."""
        await self.close()
        return await self.start(**changes)

    async def kill(self, **changes: Any) -> Engine:
        """The process dies, and a new one starts on its files."""
        return await self._again(self.disk.process_kill(), changes)

    async def cut_power(self, loss: Loss = Loss.DROP, seed: int = 0, **changes: Any) -> Engine:
        """The machine stops, loses everything not synced, and starts again."""
        return await self._again(self.disk.power_cut(loss, seed), changes)

    async def _again(self, found: SimDisk, changes: dict[str, Any]) -> Engine:
        if self._engine is not None:
            await self._engine.supervisor.stop()  # its tasks die with the process
            self._engine = None
        self.disk = found
        if self.before_start is not None:
            self.before_start(self)
        return await self.start(**changes)


def log_of(engine: Engine, name: str) -> Log:
    """The log of a topic, for tests of seqs that are assigned and not yet published."""
    return engine.catalog.topics[name].log


async def seqs(engine: Engine, name: str, **query: Any) -> list[int]:
    """The seqs that one read returns."""
    result = await engine.read(name, ReadQuery(**{"limit": 1000, **query}))
    return [each.seq for each in result.records]


async def data(engine: Engine, name: str, **query: Any) -> list[Any]:
    """The data of one read, decoded."""
    result = await engine.read(name, ReadQuery(**{"limit": 1000, **query}))
    return [json.loads(each.body)["data"] for each in result.records]


async def outcome(work: Awaitable[Any]) -> Any:
    """The result of a call, or its storage error."""
    try:
        return await work
    except StorageError as error:
        return error


def errors_among(outcomes: Iterable[Any]) -> list[StorageError]:
    return [each for each in outcomes if isinstance(each, StorageError)]
