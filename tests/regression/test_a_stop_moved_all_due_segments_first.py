"""A stop waited until every segment that was due had been moved to the cold tier. Nothing told the relocator to begin
no further segment."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from storage import Durability, Engine, TopicConfig
from storage.platform.posix import PosixFileSystem
from storage.segments.tiering.directory import DirectoryStore
from storage.state.manifest import COLD, HOT
from tests.support.slow_store import SlowStore
from tests.unit.storage.machine import options, record, seqs

OPTIONS = options(segment_max_events=10, checkpoint_records=1, hot_retain_segments=1, checkpoint_interval_ms=10**9)


async def test_a_stop_begins_no_further_segment(tmp_path: Path) -> None:
    asked, may_continue = threading.Event(), threading.Event()

    def wait(_: float) -> None:
        asked.set()
        may_continue.wait(60)

    store = SlowStore(DirectoryStore(PosixFileSystem(), str(tmp_path / "cold")), 0, wait)
    engine = Engine(tmp_path / "data", OPTIONS, cold=store)
    await engine.start()
    for number in range(45):
        await engine.append("t", [record(number)], config=TopicConfig(durability=Durability.FSYNC))
    await engine.segment_worker.flush_all()
    store.delay_ms = 1
    moving = asyncio.create_task(engine.relocator.tick())
    while not await asyncio.to_thread(asked.wait, 0.05):
        if moving.done():  # put off, because the machine is busy
            moving = asyncio.create_task(engine.relocator.tick())
    closing = asyncio.create_task(engine.close())
    while not engine.closing:
        await asyncio.sleep(0)
    may_continue.set()
    await closing
    await asyncio.gather(moving, return_exceptions=True)
    assert engine.relocator.relocated < 3
    async with Engine.open(tmp_path / "data", OPTIONS, cold=store) as again:
        await again.relocator.work()
        assert [each.tier for each in again.catalog.topics["t"].log.held.manifest.segments] == [COLD] * 3 + [HOT] * 2
        assert await seqs(again, "t") == list(range(1, 46))
