"""Measures the engine as a library: append_batch under every fsync schedule, then read_batch by a consumer.

    python -m loadtest.embedded
    python -m loadtest.embedded --cores 1 --blocking

Each of `--topics` topics has a writer that appends batch after batch of `--batch` entries of `--record-bytes` raw
bytes, each waiting for its acknowledgement: without fsync (class memory), synced by a timer (disk), synced each
(fsync). Then a consumer a topic reads what is there, first from memory and disk as it comes, then, after a restart,
from disk alone; every record is asked for its bytes. `--floor` prints what a process pays at least on this machine: a
call of the checksum a record, the joins of a batch, and writing it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import uvloop
from xxhash import xxh3_64_digest

from storage import BlockingEngine, Durability, Engine, Options, TopicConfig


class Result(msgspec.Struct, kw_only=True):
    """Rates per second of wall time; processor time of the whole process, µs a record."""

    name: str
    records_per_s: float
    mb_per_s: float
    cpu_us_per_record: float
    cores: float
    p50_ms: float
    p99_ms: float


class Run:
    """One measurement: it begins when it is made."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._wall, self._cpu = time.perf_counter(), _cpu_s()
        self.records = 0
        self.latencies: list[float] = []

    @property
    def goes_on(self) -> bool:
        return time.perf_counter() - self._wall < self._options.seconds

    def result(self, name: str) -> Result:
        wall, cpu = time.perf_counter() - self._wall, _cpu_s() - self._cpu
        ordered = sorted(self.latencies) or [0.0]
        return Result(
            name=name,
            records_per_s=self.records / wall,
            mb_per_s=self.records * self._options.record_bytes / wall / 1e6,
            cpu_us_per_record=1e6 * cpu / max(1, self.records),
            cores=cpu / wall,
            p50_ms=1000 * ordered[len(ordered) // 2],
            p99_ms=1000 * ordered[int(0.99 * len(ordered))],
        )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def entries_of(options: argparse.Namespace) -> list[bytes]:
    return [os.urandom(options.record_bytes) for _ in range(options.batch)]


def topics_of(durability: Durability, options: argparse.Namespace) -> list[str]:
    return [f"{durability}-{number}" for number in range(options.topics)]


async def append(engine: Engine, durability: Durability, options: argparse.Namespace) -> Result:
    entries, names = entries_of(options), topics_of(durability, options)
    for name in names:
        await engine.put_topic(name, TopicConfig(durability=durability))
        await engine.append_batch(name, entries)
    run = Run(options)

    async def write(name: str) -> None:
        while run.goes_on:
            begin = time.perf_counter()
            await engine.append_batch(name, entries)
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(entries)

    await asyncio.gather(*map(write, names))
    return run.result(f"append_batch {SCHEDULES[durability]} ({durability})")


async def read(engine: Engine, durability: Durability, consumer: str, options: argparse.Namespace) -> Result:
    names = topics_of(durability, options)
    for name in names:
        await engine.put_consumer(name, consumer, persist_every=10 * options.batch)
    run = Run(options)

    async def consume(name: str) -> None:
        while run.goes_on:
            begin = time.perf_counter()
            batch = await engine.read_batch(name, consumer, 8 << 20, max_records=options.batch)
            if not batch:
                return
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(batch.data())

    await asyncio.gather(*map(consume, names))
    return run.result(f"read_batch, {consumer}")


async def measure(folder: str, options: argparse.Namespace) -> list[Result]:
    async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
        results = [await append(engine, Durability(name), options) for name in options.durability]
        results.append(await read(engine, Durability(options.durability[0]), "as-it-lies", options))
    async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
        results.append(await read(engine, Durability(options.durability[0]), "after-a-restart", options))
    return results


def measure_blocking(folder: str, options: argparse.Namespace) -> list[Result]:
    """The same without an event loop of ours: a thread a topic."""
    with BlockingEngine.open(folder, Options(wal_shards=options.shards)) as engine:
        results = [_append_blocking(engine, Durability(name), options) for name in options.durability]
        return [*results, _read_blocking(engine, Durability(options.durability[0]), options)]


def _append_blocking(engine: BlockingEngine, durability: Durability, options: argparse.Namespace) -> Result:
    entries, names = entries_of(options), topics_of(durability, options)
    for name in names:
        engine.put_topic(name, TopicConfig(durability=durability))
    run = Run(options)

    def write(name: str) -> None:
        while run.goes_on:
            begin = time.perf_counter()
            engine.append_batch(name, entries)
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(entries)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(write, names))
    return run.result(f"append_batch {SCHEDULES[durability]}, blocking")


def _read_blocking(engine: BlockingEngine, durability: Durability, options: argparse.Namespace) -> Result:
    names = topics_of(durability, options)
    run = Run(options)

    def consume(name: str) -> None:
        while run.goes_on and (batch := engine.read_batch(name, "c", 8 << 20, max_records=options.batch)):
            run.records += len(batch.data())

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(consume, names))
    return run.result("read_batch, blocking")


def floor(folder: str, options: argparse.Namespace) -> list[Result]:
    """What nothing in Python can go below: each step alone, with nothing else."""
    frames = [os.urandom(options.record_bytes + 50) for _ in range(options.batch)]
    joined = b"".join(frames)
    with open(os.path.join(folder, "floor"), "wb", buffering=0) as file:
        file.write(bytes(64 << 20))

        def write() -> None:
            if file.tell() + len(joined) > 64 << 20:
                file.seek(0)
            file.write(joined)

        steps: list[tuple[str, Callable[[], object]]] = [
            ("floor: xxh3 a record", lambda: list(map(xxh3_64_digest, frames))),
            ("floor: join", lambda: b"".join(frames)),
            ("floor: write, no sync", write),
        ]
        results: list[Result] = []
        for name, step in steps:
            run = Run(options)
            until = time.perf_counter() + min(0.5, options.seconds)
            while time.perf_counter() < until:
                step()
                run.records += options.batch
            results.append(run.result(name))
    return results


SCHEDULES = {
    Durability.EPHEMERAL: "in memory only",
    Durability.MEMORY: "no fsync",
    Durability.DISK: "interval",
    Durability.FSYNC: "each",
}


def _line(each: Result) -> str:
    return (
        f"{each.name:34} {each.records_per_s:11,.0f} records/s {each.mb_per_s:7,.0f} MB/s"
        f"   cpu {each.cpu_us_per_record:5.2f} µs/record, {each.cores:4.2f} cores"
        f"   p50 {each.p50_ms:7.2f} p99 {each.p99_ms:7.2f} ms"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--record-bytes", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--shards", type=int, default=0, help="0 = as the engine chooses")
    parser.add_argument("--cores", type=int, default=0, help="run on so many; 0 = all there are")
    parser.add_argument("--blocking", action="store_true", help="through BlockingEngine, a thread a topic")
    parser.add_argument("--floor", action="store_true", help="only what the machine takes at least")
    parser.add_argument("--durability", nargs="+", default=["memory", "disk", "fsync"], choices=list(SCHEDULES))
    parser.add_argument("--dir", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    with tempfile.TemporaryDirectory(prefix="topics-embedded-", dir=options.dir or None) as folder:
        if options.floor:
            results = floor(folder, options)
        elif options.blocking:
            results = measure_blocking(folder, options)
        else:
            results = uvloop.run(measure(folder, options))
    if options.json:
        print(msgspec.json.encode(results).decode())
        return 0
    for each in results:
        print(_line(each))
    return 0


if __name__ == "__main__":
    sys.exit(main())
