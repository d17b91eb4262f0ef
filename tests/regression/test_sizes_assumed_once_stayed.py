"""The disk could not read a segment for a moment. The size that was assumed for it was treated as measured ever after.

A start that has to measure a segment, or a cap that evicts from it, assumes a size if the segment cannot be read.
Snapshots stored that number without a note that it was assumed, so no later start measured again.
"""

from __future__ import annotations

from typing import Any

import pytest

from storage import Durability, Engine, TopicConfig
from storage.segments.names import SegmentId
from tests.unit.storage.machine import DATA, Machine, log_of, sized

SMALL: dict[str, Any] = {"segment_max_events": 5, "tail_cache_bytes": 0}
FSYNC = TopicConfig(durability=Durability.FSYNC)
#: Bytes of the first segment.
FIRST = f"{DATA}/topics/0000000000000001/seg-00000000000000000001"
#: Bytes of seqs 1 to 8.
SIZES = (10, 20, 30, 40, 50, 60, 70, 80)


async def filled(machine: Machine) -> Engine:
    """Two segments, [1, 6) and [6, 9). The files of the first do not know of a deletion in it."""
    engine = await machine.start(**SMALL)
    for size in SIZES:
        await engine.append("t", [sized(size)], config=FSYNC)
    await engine.segment_worker.flush_all()
    await engine.delete_records("t", 3)
    return engine


def unreadable(machine: Machine) -> None:
    """Fails once: a second read succeeds."""
    machine.disk.fail("pread", f"{FIRST}.data")


def removed(machine: Machine) -> None:
    machine.disk.unlink(f"{FIRST}.data")


async def assumed(machine: Machine, **changes: Any) -> Engine:
    """After a start that could not measure the first segment."""
    await filled(machine)
    machine.before_start = unreadable
    engine = await machine.kill(**SMALL, **changes)
    machine.before_start = None
    assert engine.state("t").bytes > sum(SIZES[2:]), "this is what the test is about"
    return engine


def counted(engine: Engine) -> tuple[int, int]:
    log = log_of(engine, "t")
    assert (log.count, log.bytes) == (log.assigned_count, log.assigned_bytes)
    assert engine.catalog.usage.bytes == log.bytes
    return log.count, log.bytes


@pytest.mark.parametrize("how", ["killed", "power", "stopped"])
async def test_the_next_start_measures_again(how: str) -> None:
    async with Machine() as machine:
        engine = await assumed(machine)
        await engine.snapshotter.take()
        again = {"killed": machine.kill, "power": machine.cut_power, "stopped": machine.restart}[how]
        assert counted(await again(**SMALL)) == (6, sum(SIZES[2:]))
        engine = await machine.restart(**SMALL)
        assert counted(engine) == (6, sum(SIZES[2:]))
        assert not any(each.assumed for each in log_of(engine, "t").held.manifest.segments)


async def test_an_assumed_size_is_measured_after_a_change_of_the_shard_count() -> None:
    async with Machine() as machine:
        await assumed(machine, wal_shards=2)
        assert counted(await machine.cut_power(**SMALL, wal_shards=2)) == (6, sum(SIZES[2:]))


async def test_a_size_assumed_by_a_cap_is_measured_by_the_next_start() -> None:
    async with Machine() as machine:
        engine = await filled(machine)
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=6))
        engine.store.forget(SegmentId(1, 1))
        for segment in log_of(engine, "t").held.manifest.segments:
            segment.details = None
        machine.disk.fail("pread", f"{FIRST}.*", sticky=True)
        await engine.append("t", [sized(90)])
        assert engine.state("t").bytes > sum(SIZES[3:]) + 90, "this is what the test is about"
        machine.disk.clear_faults()
        await engine.snapshotter.take()
        assert counted(await machine.cut_power(**SMALL)) == (6, sum(SIZES[3:]) + 90)


async def test_a_start_after_a_clean_stop_succeeds_when_the_size_cannot_be_measured() -> None:
    async with Machine() as machine:
        engine = await assumed(machine)
        told = counted(engine)
        await machine.close()
        removed(machine)
        assert counted(await machine.start(**SMALL)) == told


async def test_an_assumed_size_includes_records_added_after_an_eviction() -> None:
    """During a replay. Otherwise the topic's bytes would be too low."""
    async with Machine() as machine:
        engine = await machine.start(segment_max_events=100)
        for size in SIZES[:4]:
            await engine.append("t", [sized(size)], config=FSYNC)
        await engine.segment_worker.flush_all()
        await engine.snapshotter.take()
        await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=3))
        await engine.put_topic("t", FSYNC)
        for size in SIZES[4:]:
            await engine.append("t", [sized(size)])
        await engine.segment_worker.flush_all()
        machine.before_start = unreadable
        engine = await machine.kill()
        count, size = counted(engine)
        assert count == 7
        assert size >= sum(SIZES[1:])
