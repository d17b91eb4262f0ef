"""Measures the cost of keeping many records: memory during the writes and after a restart, and the speed.

    python -m loadtest.retained --records 10000000 --bytes 200 --topics 10

A child process appends records as fast as it can, each with a different tag and with all workers running, and stops
cleanly when the records are in segments. Another process opens the directory and reads. Memory is RssAnon: memory that
the kernel cannot drop, unlike the page cache. Goal: at most 250 MB, and no more for twice as many records.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from storage import Durability, Engine, NewRecord, ReadQuery, TopicConfig

ROOT = Path(__file__).resolve().parents[1]
_BATCH = 1000
_WATCH_S = 0.5


def rss_anon_mb() -> float:
    """Anonymous memory of this process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1000
    return 0.0


async def write(folder: str, given: argparse.Namespace) -> None:
    """Fill a new directory; say how much memory that took at most, and how much when all is in segments."""
    data = msgspec.Raw(b'"' + b"x" * (given.bytes - 22) + b'"')
    config = TopicConfig(durability=Durability.DISK)
    begin, peak = time.perf_counter(), 0.0
    async with Engine.open(folder) as engine:

        async def writer(topic: int) -> None:
            for first in range(0, given.records // given.topics, _BATCH):
                batch = [NewRecord(data, tag=f"tag-{topic:02d}-{first + n:012d}") for n in range(_BATCH)]
                await engine.append(f"topic-{topic}", batch, config=config)

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, rss_anon_mb())
                await asyncio.sleep(_WATCH_S)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*(writer(topic) for topic in range(given.topics)))
        written_s = time.perf_counter() - begin
        await engine.segment_worker.flush_all()
        await engine.snapshotter.take()
        watching.cancel()
        total = sum(state.count for state in engine.topics(limit=given.topics))
        print(f"{total:,} records written in {written_s:.1f} s, {total / written_s:,.0f} records/s")
        print(f"RssAnon {peak:.0f} MB at most while writing, {rss_anon_mb():.0f} MB when all are in segments")


async def restart(folder: str, given: argparse.Namespace) -> None:
    """Open the directory and read from the middle of each topic."""
    begin = time.perf_counter()
    async with Engine.open(folder) as engine:
        ready_s = time.perf_counter() - begin
        ready_mb, reads = rss_anon_mb(), 0.0
        for topic in range(given.topics):
            at = time.perf_counter()
            middle = given.records // given.topics // 2
            found = await engine.read(f"topic-{topic}", ReadQuery(from_seq=middle, limit=1000))
            reads += time.perf_counter() - at
            assert [record.seq for record in found.records] == list(range(middle + 1, middle + 1001))
        print(f"restart: ready in {ready_s:.2f} s, RssAnon {ready_mb:.0f} MB; {rss_anon_mb():.0f} MB after reading")
        print(f"1000 records from the middle of a topic: {reads / given.topics * 1000:.1f} ms")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.retained", description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--bytes", type=int, default=200, help="data and tag of a record together")
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--dir", help="where to make the directory; it is removed")
    parser.add_argument("--do", choices=["write", "restart"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    given = parse(arguments)
    if given.do:
        uvloop.run((write if given.do == "write" else restart)(given.folder, given))
        return
    with tempfile.TemporaryDirectory(prefix="topics-retained-", dir=given.dir) as folder:
        for step in ("write", "restart"):
            command = [sys.executable, "-m", "loadtest.retained", "--do", step, "--folder", folder]
            command += [f"--{name}={getattr(given, name)}" for name in ("records", "bytes", "topics")]
            subprocess.run(command, check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
