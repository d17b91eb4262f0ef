"""On a real file system with real threads, the blocks of consumed records are freed, including log files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage import Durability, Engine, Options, ReadQuery, Retention, TopicConfig
from storage.state.consumers.values import ConsumerConfig
from tests.support.disk_use import allocated
from tests.unit.storage.machine import sized

RECORDS, RECORD_BYTES, BATCH = 4000, 2000, 100
WRITTEN = RECORDS * RECORD_BYTES
#: How long to wait for it, and how often to look.
PATIENCE_S, STEP_S = 30.0, 0.05
OPTIONS = Options(
    wal_shards=1,
    wal_file_bytes=1 << 20,
    wal_reserve_bytes=1 << 16,
    segment_max_bytes=1 << 19,
    checkpoint_interval_ms=50,
    checkpoint_records=BATCH,
    snapshot_interval_ms=100,
    snapshot_wal_bytes=1 << 20,
)


async def shrinks(folder: Path, most_bytes: int) -> bool:
    """Whether the folder soon takes no more than that."""
    for _ in range(int(PATIENCE_S / STEP_S)):
        if await asyncio.to_thread(allocated, folder) <= most_bytes:
            return True
        await asyncio.sleep(STEP_S)
    return False


async def written(engine: Engine, retention: Retention) -> None:
    await engine.put_topic("t", TopicConfig(durability=Durability.DISK, retention=retention))
    await engine.consumers.put("t", "c", ConsumerConfig(persist_every=BATCH))
    await engine.consumers.put("t", "other")
    for _ in range(RECORDS // BATCH):
        await engine.append("t", [sized(RECORD_BYTES)] * BATCH)


async def read_all(engine: Engine, consumer: str) -> int:
    count = 0
    while engine.consumers.state("t", consumer).lag:
        count += len((await engine.consumers.read("t", consumer, ReadQuery(limit=1000))).result.records)
    return count


@pytest.mark.timeout(120)
async def test_the_disk_is_given_back_as_the_slowest_gets_on(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, OPTIONS) as engine:
        await written(engine, Retention.CONSUMED)
        assert await read_all(engine, "c") == RECORDS
        await engine.segment_worker.flush_all()
        held = allocated(tmp_path / "topics")
        assert held >= WRITTEN  # for the other one
        await engine.consumers.commit("t", "other", RECORDS // 2)
        assert await shrinks(tmp_path / "topics", held // 2 + 3 * OPTIONS.segment_max_bytes)
        assert allocated(tmp_path / "topics") >= WRITTEN // 2
        await engine.consumers.commit("t", "other", RECORDS)
        assert await shrinks(tmp_path / "topics", OPTIONS.segment_max_bytes)
        # What is left is what a broker without records needs, and a segment.
        log_files = 3 * OPTIONS.wal_file_bytes + OPTIONS.wal_reserve_bytes
        assert await shrinks(tmp_path, log_files + 2 * OPTIONS.segment_max_bytes)
    assert allocated(tmp_path / "topics") <= OPTIONS.segment_max_bytes


@pytest.mark.timeout(120)
async def test_blocks_stay_allocated_with_retention_all(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, OPTIONS) as engine:
        await written(engine, Retention.ALL)
        assert await read_all(engine, "c") == await read_all(engine, "other") == RECORDS
        await engine.segment_worker.flush_all()
        await asyncio.sleep(10 * STEP_S)
        assert allocated(tmp_path / "topics") >= WRITTEN
