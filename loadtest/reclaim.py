"""Measures the disk space of a consumed topic, in-process: how much space is freed, and how soon.

    python -m loadtest.reclaim --megabytes 1000 --behind 100

One task appends; a consumer stays a number of MB behind until everything is appended, and then reads the rest. The
output is the data directory's size (allocated blocks, as `du` counts): the largest on the way, the size when everything
is consumed, and how long after the last commit the size stops shrinking. The same without consumption, for comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time

import msgspec
import uvloop

from loadtest.in_process import batch_of
from storage import Durability, Engine, Options, ReadQuery, Retention, TopicConfig

MB = 1_000_000
BATCH_RECORDS = 100
READ_RECORDS = 1000
#: When nothing was freed for this long, everything is freed.
QUIET_S = 5.0


class Result(msgspec.Struct, kw_only=True):
    """Disk in MB of allocated blocks: of segments, and of everything, log files and reserve included."""

    retention: str
    written_mb: float
    peak_segments_mb: float
    peak_mb: float
    left_segments_mb: float
    left_mb: float
    given_back_after_s: float
    append_mb_per_s: float
    reclaimed_records: int


def allocated(folder: str) -> int:
    """Bytes of the blocks that all files below take."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted meanwhile
    return total


class _Run:
    """One topic, one writer, one consumer."""

    def __init__(self, engine: Engine, retention: Retention, options: argparse.Namespace) -> None:
        self.engine = engine
        self.options = options
        self.config = TopicConfig(durability=Durability.DISK, retention=retention)
        self.records = options.megabytes * MB // options.record_bytes
        self.peak = self.peak_segments = 0
        self.done = asyncio.Event()
        self.append_s = 0.0

    async def measure(self) -> tuple[int, int]:
        """(segments, everything), in bytes, and the peaks."""
        folder = self.engine.path
        segments = await asyncio.to_thread(allocated, os.path.join(folder, "topics"))
        total = await asyncio.to_thread(allocated, folder)
        self.peak_segments, self.peak = max(self.peak_segments, segments), max(self.peak, total)
        return segments, total

    async def append(self) -> None:
        batch = batch_of(BATCH_RECORDS, self.options.record_bytes)
        begin = time.perf_counter()
        for _ in range(self.records // BATCH_RECORDS):
            await self.engine.append("t", batch)
        self.append_s = time.perf_counter() - begin

    async def consume(self, writing: asyncio.Task[None]) -> None:
        behind = self.options.behind * MB // self.options.record_bytes
        while True:
            state = self.engine.consumers.state("t", "c")
            if state.lag > behind or writing.done():
                if not state.lag:
                    return
                await self.engine.consumers.read("t", "c", ReadQuery(limit=READ_RECORDS, max_bytes=8 << 20))
            else:
                await asyncio.sleep(0.001)

    async def watch(self) -> None:
        while not self.done.is_set():
            await self.measure()
            await asyncio.sleep(0.25)

    async def settled(self) -> float:
        """Seconds until the size stops shrinking."""
        begin = last = time.perf_counter()
        least = (await self.measure())[1]
        while time.perf_counter() - last < QUIET_S:
            await asyncio.sleep(0.1)
            now = (await self.measure())[1]
            if now < least:
                least, last = now, time.perf_counter()
        return last - begin

    async def run(self) -> Result:
        engine = self.engine
        await engine.put_topic("t", self.config)
        await engine.consumers.put("t", "c")
        watching = asyncio.create_task(self.watch())
        writing = asyncio.create_task(self.append())
        await self.consume(writing)
        await writing
        await engine.consumers.commit("t", "c", engine.state("t").head_seq)
        after_s = await self.settled()
        self.done.set()
        await watching
        segments, total = await self.measure()
        written = self.records * self.options.record_bytes
        return Result(
            retention=self.config.retention,
            written_mb=written / MB,
            peak_segments_mb=self.peak_segments / MB,
            peak_mb=self.peak / MB,
            left_segments_mb=segments / MB,
            left_mb=total / MB,
            given_back_after_s=after_s,
            append_mb_per_s=written / MB / self.append_s,
            reclaimed_records=engine.reclaim.records,
        )


async def run(options: argparse.Namespace) -> list[Result]:
    """With consumption, then without."""
    results: list[Result] = []
    for retention in (Retention.CONSUMED, Retention.ALL):
        with tempfile.TemporaryDirectory(prefix="topics-reclaim-", dir=options.dir or None) as folder:
            async with Engine.open(folder, Options(wal_shards=1, snapshot_wal_bytes=64 << 20)) as engine:
                results.append(await _Run(engine, retention, options).run())
    return results


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.reclaim", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="how much is appended")
    parser.add_argument("--behind", type=int, default=50, help="MB that the consumer stays behind")
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--dir", default="", help="where the data directories are made")
    for result in uvloop.run(run(parser.parse_args(argv))):
        print(
            f"{result.retention:>8}: {result.written_mb:.0f} MB at {result.append_mb_per_s:.0f} MB/s; "
            f"segments at most {result.peak_segments_mb:.0f}, left {result.left_segments_mb:.1f} MB; "
            f"all files at most {result.peak_mb:.0f}, left {result.left_mb:.0f} MB; "
            f"{result.reclaimed_records} records given back, the last {result.given_back_after_s:.1f} s after the end"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
