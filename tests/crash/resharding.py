"""Directories whose shard count changes, and starts that end somewhere during the change."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from storage import CompressionType, Durability, Options, TopicConfig
from tests.crash.cold_view import MOUNT
from tests.crash.workloads import DISK, EPHEMERAL, FSYNC, MEMORY, with_class
from tests.support.crash_check import End, Ending, check
from tests.support.crash_run import SMALL, Crashed, CrashPoint, Cut, carry_on, run, until_crash
from tests.support.crash_session import ROOT, Body, Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk, When
from tests.support.spec_decoder import Decoded, read_files

OPTIONS = msgspec.structs.replace(
    SMALL,
    wal_file_bytes=4096,
    wal_reserve_bytes=2048,
    sync_point_bytes=256,
    segment_max_events=4,
    segment_pack_bytes=1,
    checkpoint_records=1,
)
#: The count before and after. If both are above 1, they share folders.
CHANGES = [
    pytest.param(1, 3),
    pytest.param(4, 2),
    pytest.param(3, 1, marks=pytest.mark.slow),
    pytest.param(2, 4, marks=pytest.mark.slow),
]


def shards(count: int, options: Options = OPTIONS) -> Options:
    return msgspec.structs.replace(options, wal_shards=count)


async def some_of_everything(s: Session) -> None:
    """Classes, keys, tags, deletions in segments (also packed ones) and outside, configs, deleted topics, names used
    again, losses."""
    await s.append("f", 3, tag="x", config=FSYNC)
    await s.append("f", 2, tag="y", key="k1")
    await s.append("d", 6, config=DISK, tag="x")
    await s.append("z", 9, size=300, tag="x", config=with_class(FSYNC, compression_type=CompressionType.ZSTD))
    await s.append("e", 2, config=DISK)
    await s.put("e", EPHEMERAL)
    await s.append("e", 3)
    await s.append("gone", 2, config=FSYNC)
    await s.append("again", 2, config=FSYNC)
    await s.mark_flushed()
    await s.snapshot()
    await s.drop("gone")
    await s.drop("again")
    await s.append("again", 3, config=DISK)
    await s.append("m", 5, config=MEMORY)
    await s.append("f", 7, meta=True, key="k2")
    await s.remove("f", tag="x")
    await s.append("f", 2, tag="x")
    await s.remove("z", before_seq=4, tag="x")
    await s.append("z", 2, size=300)
    await s.remove("d", before_seq=3)
    await s.put("c", with_class(FSYNC, cap_records=3))
    for _ in range(4):
        await s.append("c", 2, size=300)
    await s.append("empty", 2, tag="z", config=FSYNC)
    await s.remove("empty", tag="z")
    await s.put("bare", TopicConfig(durability=Durability.FSYNC, ttl_ms=10**8))
    await s.append("d", 4, size=600)


async def filled(count: int, options: Options = OPTIONS, body: Body = some_of_everything) -> Session:
    """A process that has run the workload with this number of shards."""
    session = Session(SimDisk(), shards(count, options))
    await session.start()
    await body(session)
    return session


def crashed_with(count: int, options: Options = OPTIONS, body: Body = some_of_everything) -> Crashed:
    """The files after the process is killed."""

    async def work() -> Crashed:
        session = await filled(count, options, body)
        session.disk.process_kill()
        return Crashed(session.disk, session.ledger, session.clock, orderly=True)

    return run(work())


def log_folders(disk: SimDisk) -> dict[str, list[str]]:
    """Log files by folder."""
    found: dict[str, list[str]] = {}
    for path in disk.tree():
        folder, _, name = path.removeprefix(f"{ROOT}/").rpartition("/")
        if folder.startswith("wal") and name.endswith(".log"):
            found.setdefault(folder, []).append(name)
    return found


def segment_files(disk: SimDisk) -> dict[str, int]:
    """Bytes by path."""
    return {path: len(data) for path, data in disk.content().items() if path.startswith(f"{ROOT}/topics/")}


def decoded(disk: SimDisk) -> Decoded:
    """The directory as the independent decoder reads it. Raises if it is not as the format says."""
    content = disk.content()
    files = {path: data for path, data in content.items() if "/quarantine/" not in path}
    return read_files(_below(ROOT, files), _below(MOUNT, content) if f"{MOUNT}/" in disk.tree() else None)


def _below(folder: str, content: dict[str, bytes]) -> dict[str, Callable[[], bytes]]:
    found = {path.removeprefix(f"{folder}/"): data for path, data in content.items() if path.startswith(f"{folder}/")}
    return {path: lambda data=data: data for path, data in found.items()}


async def examine(
    found: SimDisk, crashed: Crashed, count: int, ending: Ending, seed: int, options: Options = OPTIONS
) -> list[str]:
    """Start with the given shard count after an interrupted change, twice; write; cut the power; start with any
    count."""
    rng = Random(seed)
    ledger = crashed.ledger.copy()
    session = Session(found.process_kill(), shards(count, options), clock=crashed.clock, ledger=ledger)
    await session.start()
    problems = await check(session.engine, ledger, ending)
    first = await view(session.engine)
    again = Session(session.disk.process_kill(), shards(count, options), clock=crashed.clock, ledger=ledger)
    await again.start()
    if await view(again.engine) != first:
        problems.append("recovered twice, it is not the same")
    await carry_on(again)
    last = Session(
        again.disk.power_cut(rng.choice(list(Loss)), rng.randrange(1 << 30)),
        shards(rng.choice([0, 1, 2, 3]), options),
        clock=crashed.clock,
        ledger=ledger,
    )
    await last.start()
    return problems + [f"crashed again: {each}" for each in await check(last.engine, ledger, Ending(End.POWER))]


async def stopped(disk: SimDisk, count: int, crashed: Crashed, options: Options = OPTIONS) -> SimDisk:
    """A start with this count, up to the call at which the disk stops."""
    await until_crash(disk, Session(disk, shards(count, options), clock=crashed.clock).start())
    return disk


def points_of(crashed: Crashed, after: int, options: Options = OPTIONS) -> list[CrashPoint]:
    """Every call at which such a start can be stopped."""
    disk = crashed.disk.process_kill()
    run(stopped(disk, after, crashed, options))
    return [CrashPoint(index, when) for index in disk.crash_points() for when in When]


def cut_by(rng: Random) -> Cut:
    if rng.random() < 0.3:
        return Cut(End.KILL, seed=rng.randrange(1 << 30))
    return Cut(End.POWER, rng.choice(list(Loss)), rng.randrange(1 << 30))
