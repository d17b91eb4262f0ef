"""Topics whose records are deleted once consumed, on a simulated machine: shared helpers of the reclaim tests."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from storage import Durability, Engine, Retention, TopicConfig
from tests.unit.storage.machine import DATA, Machine, log_of, records

CONSUMED = TopicConfig(durability=Durability.FSYNC, retention=Retention.CONSUMED)
#: Segments of four records, made when a test says so.
SEGMENTS = {"segment_max_events": 4, "checkpoint_records": 1, "checkpoint_interval_ms": 10**9}
#: Turns of the loop within which everything is done that can be done at once.
MANY_TURNS = 50


def consumed(**changes: Any) -> TopicConfig:
    return msgspec.structs.replace(CONSUMED, **changes)


async def filled(machine: Machine, count: int, config: TopicConfig = CONSUMED, *readers: str, **options: Any) -> Engine:
    """An engine with this many records in `t`, in segments, and consumers that begin at the first record."""
    engine = await machine.start(**{**SEGMENTS, **options})
    await engine.put_topic("t", config)
    for name in readers:
        await engine.consumers.put("t", name)
    await fill(engine, count)
    return engine


async def fill(engine: Engine, count: int) -> None:
    for _ in range(count):
        await engine.append("t", records(1))
    await engine.segment_worker.flush_all()


async def turns() -> None:
    for _ in range(MANY_TURNS):
        await asyncio.sleep(0)


async def care(engine: Engine) -> None:
    """Run the worker's periodic work; the engine does not wait for it elsewhere."""
    await turns()
    await engine.segment_worker.tick()


def floors(engine: Engine) -> dict[str, int]:
    return dict(log_of(engine, "t").marks.floors)


def files(machine: Machine, ext: str = ".data", root: str = DATA) -> list[int]:
    """First seqs of the segments that are on the disk below `root`."""
    names = [path.rpartition("/")[2] for path in machine.disk.tree() if "/topics/" in path and path.startswith(root)]
    return sorted(int(name.removeprefix("seg-").split(".")[0]) for name in names if name.endswith(ext))
