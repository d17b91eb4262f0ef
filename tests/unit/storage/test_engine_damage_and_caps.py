"""Caps and damage: unreadable records do not block writes, and the cap drops no more than it must."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeAlias

import pytest

from storage import Discard, Durability, Engine, ReadQuery, TopicConfig, TopicType
from storage.errors import SegmentUnreadable, TopicFull
from storage.segments.names import SegmentId
from tests.unit.storage.machine import DATA, Machine, log_of, outcome, sized

#: The first of two segments.
FIRST = f"{DATA}/topics/0000000000000001/seg-00000000000000000001"


async def full(machine: Machine, **config: object) -> Engine:
    """Records 1 to 20 of "t", 10 bytes and 100 ms each: those up to 10 in segments of 5, all below the caps."""
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=5)
    settings = TopicConfig(**{"durability": Durability.FSYNC, **config})  # pyright: ignore[reportArgumentType]
    for number in range(1, 21):
        await engine.append("t", [sized(10)], config=settings)
        if number == 10:
            await engine.segment_worker.flush_all()
        await machine.clock.advance(100)
    return engine


def remove(machine: Machine) -> None:
    machine.disk.unlink(f"{FIRST}.data")


def cut(machine: Machine) -> None:
    machine.disk.write_file(f"{FIRST}.idx", machine.disk.read_file(f"{FIRST}.idx")[:50])


def fail(machine: Machine) -> None:
    machine.disk.fail("pread", f"{FIRST}.*", sticky=True)


def fail_data(machine: Machine) -> None:
    machine.disk.fail("pread", f"{FIRST}.data", sticky=True)


DAMAGES = pytest.mark.parametrize("damage", [remove, cut, fail])


def nothing(_: Machine) -> None:
    """Nothing is wrong; it is only not known yet."""


Damage: TypeAlias = Callable[[Machine], None]


def damaged(machine: Machine, engine: Engine, damage: Damage) -> None:
    engine.store.forget(SegmentId(1, 1))
    for segment in log_of(engine, "t").held.manifest.segments:
        segment.details = None
    damage(machine)


async def earliest(engine: Engine, count: int) -> list[int]:
    """Append records one by one; returns the earliest seq after each."""
    found: list[int] = []
    for _ in range(count):
        await engine.append("t", [sized(10)])
        found.append(engine.state("t").earliest_seq)
    return found


def settled(engine: Engine) -> None:
    """Both views of the log contain what its segments and its tail contain."""
    log = log_of(engine, "t")
    floor = log.marks.live_floor
    assert (log.count, log.bytes) == log.held.totals(floor, log.head + 1, floor)
    assert (log.count, log.bytes) == (log.assigned_count, log.assigned_bytes)
    assert engine.catalog.usage.bytes == log.bytes


@DAMAGES
async def test_a_record_cap_evicts_a_damaged_segment_record_by_record(machine: Machine, damage: Damage) -> None:
    engine = await full(machine, cap_records=20)
    damaged(machine, engine, damage)
    assert await earliest(engine, 7) == [2, 3, 4, 5, 6, 7, 8]
    assert (engine.state("t").count, engine.state("t").bytes) == (20, 200)
    settled(engine)
    result = await engine.read("t", ReadQuery(limit=1000))
    assert result.tombstone is not None
    assert (result.tombstone.reason, result.tombstone.gap_to, len(result.records)) == ("cap", 7, 20)


@DAMAGES
async def test_a_byte_cap_evicts_a_damaged_segment_as_a_whole(machine: Machine, damage: Damage) -> None:
    engine = await full(machine, cap_bytes=200)
    damaged(machine, engine, damage)
    assert await earliest(engine, 7) == [6, 6, 6, 6, 6, 7, 8]
    assert (engine.state("t").count, engine.state("t").bytes) == (20, 200)
    settled(engine)


@DAMAGES
async def test_a_lowered_cap_applies_at_once(machine: Machine, damage: Damage) -> None:
    engine = await full(machine)
    damaged(machine, engine, damage)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=17))
    assert (engine.state("t").earliest_seq, engine.state("t").count) == (4, 17)
    settled(engine)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_bytes=165))
    assert (engine.state("t").earliest_seq, engine.state("t").count) == (6, 15)
    settled(engine)


@DAMAGES
async def test_evicted_jobs_are_counted(machine: Machine, damage: Damage) -> None:
    engine = await full(machine, cap_records=20, type=TopicType.QUEUE)
    damaged(machine, engine, damage)
    await earliest(engine, 3)
    assert engine.queues.figures("t").lost == 3


@DAMAGES
async def test_concurrent_writes_keep_the_cap(machine: Machine, damage: Damage) -> None:
    engine = await full(machine, cap_records=20)
    damaged(machine, engine, damage)
    await engine.append("t", [sized(10)] * 2)
    await engine.append("t", [sized(10)] * 6)
    assert (engine.state("t").earliest_seq, engine.state("t").count) == (9, 20)
    settled(engine)


async def test_a_segment_that_is_readable_again_is_counted_exactly(machine: Machine) -> None:
    engine = await full(machine, cap_records=20)
    damaged(machine, engine, fail)
    assert await earliest(engine, 2) == [2, 3]
    machine.disk.clear_faults()
    log_of(engine, "t").held.manifest.segments[0].details = None  # as after a start
    assert await earliest(engine, 1) == [4]
    assert engine.state("t").bytes == 200
    settled(engine)
    assert await earliest(engine, 2) == [5, 6]
    settled(engine)


async def test_the_counts_are_the_same_after_a_start(machine: Machine) -> None:
    engine = await full(machine, cap_records=20)
    damaged(machine, engine, fail)
    await earliest(engine, 2)
    machine.disk.clear_faults()
    engine = await machine.cut_power()
    assert (engine.state("t").earliest_seq, engine.state("t").count, engine.state("t").bytes) == (3, 20, 200)
    settled(engine)


async def test_out_of_descriptors_is_not_counted_as_damage(machine: Machine) -> None:
    engine = await full(machine, cap_bytes=200)
    damaged(machine, engine, nothing)
    machine.disk.fail("pread", f"{FIRST}.*", errno=errno.ENOMEM, sticky=True)
    found = await outcome(engine.append("t", [sized(10)]))
    assert isinstance(found, SegmentUnreadable)
    assert (found.code, found.detail["topic"], found.detail["to_seq"]) == ("storage_failed", "t", 5)
    machine.disk.clear_faults()
    assert await earliest(engine, 2) == [2, 3]
    settled(engine)


# -- ttl, where what is full refuses ---------------------------------------------------------------------------------


REJECTING = {"cap_records": 20, "discard": Discard.REJECT, "ttl_ms": 10_000}


async def test_expired_records_of_a_segment_are_read_off_the_loop(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that reads by itself does so on the loop."""
    engine = await full(machine, **REJECTING)
    damaged(machine, engine, nothing)
    await machine.clock.advance(8250)  # 1 to 3 have expired, which only the details of their segment can show
    monkeypatch.setattr(log_of(engine, "t").held, "access", None)
    await engine.append("t", [sized(10)] * 3)
    assert engine.state("t").earliest_seq == 4
    assert isinstance(await outcome(engine.append("t", [sized(10)])), TopicFull)
    settled(engine)


@pytest.mark.parametrize("damage", [remove, cut])
async def test_damage_in_expired_records_leaves_the_topic_full(machine: Machine, damage: Damage) -> None:
    engine = await full(machine, **REJECTING)
    damaged(machine, engine, damage)
    await machine.clock.advance(8250)
    for _ in range(2):
        assert isinstance(await outcome(engine.append("t", [sized(10)])), TopicFull)
    await machine.clock.advance(250)  # all of the segment has expired
    await engine.append("t", [sized(10)])
    assert engine.state("t").earliest_seq == 6


async def test_an_append_to_a_full_topic_fails_when_expired_records_cannot_be_read(machine: Machine) -> None:
    engine = await full(machine, **REJECTING)
    damaged(machine, engine, fail)
    await machine.clock.advance(8250)
    assert isinstance(await outcome(engine.append("t", [sized(10)])), SegmentUnreadable)
    machine.disk.clear_faults()
    await engine.append("t", [sized(10)])
    assert engine.state("t").earliest_seq == 4


async def test_a_start_recounts_a_damaged_segment_that_a_cap_evicted_partly(machine: Machine) -> None:
    """The rest of the segment is counted again, including the sizes of unreadable records."""
    engine = await full(machine, cap_records=20)
    damaged(machine, engine, fail_data)
    assert await earliest(engine, 2) == [2, 3]
    machine.before_start = fail_data
    for _ in range(2):
        engine = await machine.cut_power()
        assert (engine.state("t").earliest_seq, engine.state("t").count) == (3, 20)
        settled(engine)
    assert isinstance(await outcome(engine.read("t", ReadQuery(from_seq=2))), SegmentUnreadable)
    assert await earliest(engine, 4) == [4, 5, 6, 7]
    assert (engine.state("t").count, engine.state("t").bytes) == (20, 200)
    settled(engine)
