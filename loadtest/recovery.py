"""Measures how long a killed engine takes until it is ready again.

    python -m loadtest.recovery --records 1000000 --bytes 100

A child process writes a data directory that is log only (no snapshot is taken) and ends without a clean stop. Fresh
processes then open it, one after another, each ending as rudely, so that each finds the same log. Goal: a million
records of 100 bytes in 1.5 s on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
import uvloop

from loadtest.in_process import batch_of
from loadtest.observed import busy_s, cpu_of
from loadtest.report import keep
from storage import Durability, Engine, Options, TopicConfig

ROOT = Path(__file__).resolve().parents[1]
_NEVER = 1 << 40
_IN_FLIGHT = 16


class Opened(msgspec.Struct, kw_only=True):
    """One start: seconds until ready, seconds of recovery itself, processors used by all processes together, and other
    load.
    """

    ready_s: float
    recovery_s: float
    process_s: float
    cpu_s: float
    frames: int
    bytes: int
    records: int
    other_cores: float = 0.0


class Outcome(msgspec.Struct, kw_only=True):
    """Medians over all rounds."""

    records: int
    log_bytes: int
    frames: int
    ready_s: float
    recovery_s: float
    process_s: float
    records_per_s: float
    frames_per_core_s: float
    rounds: list[Opened]


def options(shards: int) -> Options:
    """As by default, but without snapshots and segments."""
    return Options(
        wal_shards=shards,
        snapshot_interval_ms=_NEVER,
        snapshot_wal_bytes=_NEVER,
        checkpoint_interval_ms=_NEVER,
    )


async def write(folder: str, given: argparse.Namespace) -> None:
    """Fill a new directory, then end at once, like a killed process: nothing is closed."""
    engine = Engine(folder, options(given.shards))
    await engine.start()
    records = batch_of(given.batch, given.bytes)
    if given.tags:
        records = [msgspec.structs.replace(record, tag=f"tag-{number % 50}") for number, record in enumerate(records)]
    config = TopicConfig(durability=Durability.DISK)
    for topic in range(given.topics):
        await engine.put_topic(f"topic-{topic}", config)
    # Both sides of a key are in the log as they are from clients that send one.
    todo: Iterator[int] = iter(range(0, given.records, given.batch))

    async def writer() -> None:
        for start in todo:
            left = given.records - start
            key = f"key-{start}" if given.keys else None
            topic = f"topic-{start // given.batch % given.topics}"
            await engine.append(topic, records if left >= given.batch else records[:left], idempotency_key=key)

    await asyncio.gather(*(writer() for _ in range(_IN_FLIGHT)))
    os._exit(0)


async def start(folder: str, shards: int) -> None:
    """Open the directory, say how it went, end at once."""
    begin, cpu = time.perf_counter(), _cpu_s()
    engine = Engine(folder, options(shards))
    await engine.start()
    ready_s, report = time.perf_counter() - begin, engine.report
    found = Opened(
        ready_s=ready_s,
        recovery_s=report.seconds,
        process_s=0.0,
        cpu_s=_cpu_s() - cpu,
        frames=report.frames,
        bytes=report.bytes,
        records=sum(topic.count for topic in engine.topics(limit=1 << 30)),
    )
    print(msgspec.json.encode(found).decode(), flush=True)
    os._exit(0)


def _cpu_s() -> float:
    """Processor time of this process and of children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def drop_cached(folder: Path) -> None:
    """Have the page cache forget the files, so that the next start reads them from the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _child(given: argparse.Namespace, role: str, folder: Path) -> str:
    told = {name: getattr(given, name) for name in ("records", "bytes", "batch", "topics", "shards", "keys", "tags")}
    command = [sys.executable, "-m", "loadtest.recovery", f"--{role}", str(folder), "--told", json.dumps(told)]
    done = subprocess.run(
        command,
        cwd=given.tree,
        env=os.environ | {"PYTHONPATH": f"{given.tree}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def measure(given: argparse.Namespace) -> Outcome:
    """Write once, start `rounds` times."""
    with tempfile.TemporaryDirectory(prefix="topics-recovery-", dir=given.dir or None) as parent:
        folder = Path(parent) / "data"
        _child(given, "write", folder)
        rounds = [_round(given, folder) for _ in range(given.rounds)]
    first = rounds[0]
    recovery_s, ready_s = median(each.recovery_s for each in rounds), median(each.ready_s for each in rounds)
    return Outcome(
        records=first.records,
        log_bytes=first.bytes,
        frames=first.frames,
        ready_s=ready_s,
        recovery_s=recovery_s,
        process_s=median(each.process_s for each in rounds),
        records_per_s=first.records / ready_s,
        frames_per_core_s=first.frames / median(each.cpu_s for each in rounds),
        rounds=rounds,
    )


def _round(given: argparse.Namespace, folder: Path) -> Opened:
    if given.cold:
        drop_cached(folder)
    begin, busy, own = time.perf_counter(), busy_s(), cpu_of(os.getpid()).total_s
    opened = msgspec.json.decode(_child(given, "start", folder), type=Opened)
    opened.process_s = time.perf_counter() - begin
    used = busy_s() - busy - (cpu_of(os.getpid()).total_s - own) - opened.cpu_s
    opened.other_cores = max(0.0, used / opened.process_s)
    if opened.records != given.records:
        raise RuntimeError(f"{given.records} records were acknowledged, {opened.records} are there")
    return opened


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--records", type=int, default=1_000_000)
    add("--bytes", type=int, default=100, help="size of the data of a record")
    add("--batch", type=int, default=100, help="records a write")
    add("--topics", type=int, default=8)
    add("--shards", type=int, default=0, help="0 = as the engine chooses")
    add("--keys", action="store_true", help="give each write an idempotency key")
    add("--tags", action="store_true", help="give each record a tag")
    add("--rounds", type=int, default=5)
    add("--cold", action="store_true", help="have the page cache forget the log before each start")
    add("--tree", type=Path, default=ROOT, help="folder whose storage package is run (default: this checkout)")
    add("--dir", default="", help="where the data directory is made (default: the temporary directory)")
    add("--save", default="", metavar="NAME", help="keep the outcome in loadtest/results/NAME.json")
    add("--json", action="store_true")
    add("--write", default="", help=argparse.SUPPRESS)
    add("--start", default="", help=argparse.SUPPRESS)
    add("--told", default="{}", help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    vars(given).update(json.loads(given.told))
    if given.write:
        uvloop.run(write(given.write, given))
    elif given.start:
        uvloop.run(start(given.start, given.shards))
    outcome = measure(given)
    if given.json:
        print(msgspec.json.encode(outcome).decode())
    else:
        print(
            f"{outcome.records:,} records, {outcome.frames:,} frames, {outcome.log_bytes / 1e6:,.0f} MB of log:"
            f" ready in {outcome.ready_s:.2f} s ({outcome.recovery_s:.2f} s of it recovery;"
            f" {outcome.process_s:.2f} s with the start of Python)\n"
            f"{outcome.records_per_s:,.0f} records/s, {outcome.frames_per_core_s:,.0f} frames/s a core;"
            f" rounds: {', '.join(f'{each.ready_s:.2f}' for each in outcome.rounds)} s"
        )
    if given.save:
        keep(given.save, f"python -m loadtest.recovery {' '.join(arguments or sys.argv[1:])}", outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
