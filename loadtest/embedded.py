"""Measures the engine as a library: append_batch under every fsync schedule, then read_batch by a consumer.

    python -m loadtest.embedded
    python -m loadtest.embedded --cores 1 --blocking

Each of `--topics` topics has a writer. It appends batches of `--batch` entries of `--record-bytes` raw bytes and waits
for the acknowledgement of each: without fsync (class memory), synced by a timer (disk), or synced each time (fsync).
Then one consumer per topic reads everything: first from memory and disk, then, after a restart, from disk only; the
bytes of every record are fetched. `--floor` prints the least time that any such process needs on this machine: a
checksum call per record, the joins of a batch, writing the batch over existing bytes of a file, and the full path of
the bytes: written to a new file (the log), read from it, written to another new file (a segment), and the first file
deleted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
import uvloop
from xxhash import xxh3_64_digest

from loadtest.in_process import Clocks, Figures, add_common_options, line
from storage import BlockingEngine, Durability, Engine, Options, TopicConfig

#: Bytes of records of one ephemeral topic.
_MOST_IN_MEMORY = 16 << 20


def entries_of(options: argparse.Namespace) -> list[bytes]:
    return [os.urandom(options.record_bytes) for _ in range(options.batch)]


def settings_of(durability: Durability) -> TopicConfig:
    """Memory-only topics get a cap on their bytes: the newest records stay."""
    return TopicConfig(durability=durability, cap_bytes=_MOST_IN_MEMORY if durability is Durability.EPHEMERAL else 0)


def topics_of(durability: Durability, options: argparse.Namespace) -> list[str]:
    return [f"{durability}-{number}" for number in range(options.topics)]


async def append(engine: Engine, durability: Durability, options: argparse.Namespace) -> Figures:
    entries, names = entries_of(options), topics_of(durability, options)
    for name in names:
        await engine.put_topic(name, settings_of(durability))
        await engine.append_batch(name, entries)
    run = Clocks()

    async def write(name: str) -> None:
        while run.wall_s < options.seconds:
            begin = time.perf_counter()
            await engine.append_batch(name, entries)
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(entries)

    await asyncio.gather(*map(write, names))
    return run.figures(f"append_batch {SCHEDULES[durability]} ({durability})", options.record_bytes)


async def read(engine: Engine, durability: Durability, consumer: str, options: argparse.Namespace) -> Figures:
    names = topics_of(durability, options)
    for name in names:
        await engine.put_consumer(name, consumer, persist_every=10 * options.batch)
    run = Clocks()

    async def consume(name: str) -> None:
        while run.wall_s < options.seconds:
            begin = time.perf_counter()
            batch = await engine.read_batch(name, consumer, 8 << 20, max_records=options.batch)
            if not batch:
                return
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(batch.data())

    await asyncio.gather(*map(consume, names))
    return run.figures(f"read_batch, {consumer}", options.record_bytes)


async def measure(folder: str, options: argparse.Namespace) -> list[Figures]:
    async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
        results = [await append(engine, Durability(name), options) for name in options.durability]
        readable = _read_of(options)
        if readable is None:
            return results
        results.append(await read(engine, readable, "as-it-lies", options))
    async with Engine.open(folder, Options(wal_shards=options.shards)) as engine:
        results.append(await read(engine, readable, "after-a-restart", options))
    return results


def _read_of(options: argparse.Namespace) -> Durability | None:
    """Whose topics are read: the first class that consumers may have."""
    return next((Durability(name) for name in options.durability if name != Durability.EPHEMERAL), None)


def measure_blocking(folder: str, options: argparse.Namespace) -> list[Figures]:
    """The same without an event loop of ours: a thread a topic."""
    with BlockingEngine.open(folder, Options(wal_shards=options.shards)) as engine:
        results = [_append_blocking(engine, Durability(name), options) for name in options.durability]
        readable = _read_of(options)
        return results if readable is None else [*results, _read_blocking(engine, readable, options)]


def _append_blocking(engine: BlockingEngine, durability: Durability, options: argparse.Namespace) -> Figures:
    entries, names = entries_of(options), topics_of(durability, options)
    for name in names:
        engine.put_topic(name, settings_of(durability))
    run = Clocks()

    def write(name: str) -> None:
        while run.wall_s < options.seconds:
            begin = time.perf_counter()
            engine.append_batch(name, entries)
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(entries)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(write, names))
    return run.figures(f"append_batch {SCHEDULES[durability]}, blocking", options.record_bytes)


def _read_blocking(engine: BlockingEngine, durability: Durability, options: argparse.Namespace) -> Figures:
    names = topics_of(durability, options)
    run = Clocks()

    def consume(name: str) -> None:
        while run.wall_s < options.seconds:
            begin = time.perf_counter()
            batch = engine.read_batch(name, "c", 8 << 20, max_records=options.batch)
            if not batch:
                return
            run.latencies.append(time.perf_counter() - begin)
            run.records += len(batch.data())

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(consume, names))
    return run.figures("read_batch, blocking", options.record_bytes)


def floor(folder: str, options: argparse.Namespace) -> list[Figures]:
    """The least time Python needs: each step measured alone."""
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
            ("floor: log and segment, no sync", partial(_written_twice, folder, joined)),
        ]
        results: list[Figures] = []
        for name, step in steps:
            run = Clocks()
            while run.wall_s < min(0.5, options.seconds):
                step()
                run.records += options.batch
            results.append(run.figures(name, options.record_bytes))
    return results


def _written_twice(folder: str, batch: bytes) -> None:
    """The path of a batch's bytes through two new files."""
    log, segment = os.path.join(folder, "log"), os.path.join(folder, "segment")
    with open(log, "w+b", buffering=0) as written, open(segment, "wb", buffering=0) as copied:
        written.write(batch)
        written.seek(0)
        copied.write(written.read(len(batch)))
    os.unlink(log)


SCHEDULES = {
    Durability.EPHEMERAL: "in memory only",
    Durability.MEMORY: "no fsync",
    Durability.DISK: "interval",
    Durability.FSYNC: "each",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.embedded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10)
    add_common_options(parser, batch=1000, record_bytes=500, seconds=3.0)
    parser.add_argument("--cores", type=int, default=0, help="run on so many; 0 = all there are")
    parser.add_argument("--blocking", action="store_true", help="through BlockingEngine, a thread a topic")
    parser.add_argument("--floor", action="store_true", help="only what the machine takes at least")
    parser.add_argument("--durability", nargs="+", default=["memory", "disk", "fsync"], choices=list(SCHEDULES))
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
        print(line(each))
    return 0


if __name__ == "__main__":
    sys.exit(main())
