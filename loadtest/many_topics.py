"""Measures how a great number of unused topics affects the used ones: how late the event loop's timers are.

    python -m loadtest.many_topics --topics 100000

A directory is made with one record in each topic, all of them in segments. That takes some syncs per topic, so keep the
directory with --folder to measure again. Then an engine runs only its periodic work, while a task checks every ms how
late its own timer is.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from storage import Durability, Engine, NewRecord, TopicConfig

_AT_ONCE = 2000
_SETTLE_S = 3.0


async def fill(folder: str, topics: int) -> None:
    """One record a topic, all in segments."""
    config, record = TopicConfig(durability=Durability.DISK), NewRecord(msgspec.Raw(b'"x"'))
    async with Engine.open(folder) as engine:
        for first in range(0, topics, _AT_ONCE):
            numbers = range(first, min(topics, first + _AT_ONCE))
            await asyncio.gather(*(engine.append(f"t-{number}", [record], config=config) for number in numbers))
        await engine.segment_worker.flush_all()


async def watch(folder: str, seconds: float) -> None:
    """Print how late the loop was, and how much of the delay each worker's round took."""
    async with Engine.open(folder) as engine:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # as a broker does
        await asyncio.sleep(_SETTLE_S)
        late: list[float] = []
        begin, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() < begin + seconds:
            asked = time.perf_counter()
            await asyncio.sleep(0.001)
            late.append((time.perf_counter() - asked - 0.001) * 1000)
        busy = (time.thread_time() - cpu) / (time.perf_counter() - begin)
        late.sort()
        shown = ", ".join(f"{name} {late[int(q * (len(late) - 1))]:.1f}" for name, q in _QUANTILES.items())
        print(f"{len(engine.catalog.topics):,} topics: the loop was late by {shown} ms, and busy for {busy:.0%}")
        works = (("flusher", engine.flusher.work), ("housekeeping", engine.housekeeping.work))
        for name, work in (*works, ("expiry", engine.expiry.tick)):
            used = time.thread_time()
            await work()
            print(f"a round of {name}: {(time.thread_time() - used) * 1000:.0f} ms of the loop")


_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m loadtest.many_topics", description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--folder", default="", help="a directory to keep and to measure again")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="topics-many-") as thrown_away:
        folder = given.folder or thrown_away
        if not (Path(folder) / "FORMAT").exists():
            uvloop.run(fill(folder, given.topics))
        uvloop.run(watch(folder, given.seconds))


if __name__ == "__main__":
    main()
