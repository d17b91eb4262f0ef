"""No seq is ever used twice: reservations are durable first, renewed ahead, and returned at a clean stop."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Durability, ReadQuery, TopicConfig
from storage.format.wal_frame import FrameType
from storage.log.reader import FrameStream
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import WAL, Machine, log_of, records

WEAK = pytest.mark.parametrize("durability", [Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL])


def watermarks_written(machine: Machine) -> int:
    file = machine.disk.open(f"{WAL}/wal-0000000000000001.log", write=False)
    frames = [frame for chunk in FrameStream(file).chunks() for frame in chunk.frames]
    return sum(frame[8] == FrameType.HEAD_WATERMARK for frame in frames)


@WEAK
async def test_an_acked_and_lost_seq_is_not_assigned_again(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=TopicConfig(durability=durability))
    await engine.append("t", records(5))
    engine = await machine.cut_power(Loss.DROP)
    head = engine.state("t").head_seq
    assert head >= 10
    assert (await engine.append("t", records(1))).first_seq == head + 1


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 7])
@WEAK
async def test_no_seq_beyond_a_durable_reservation_is_acked(
    machine: Machine, durability: Durability, writes: int
) -> None:
    engine = await machine.start()
    await engine.append("t", records(1), config=TopicConfig(durability=durability))
    for _ in range(writes):
        answer = await engine.append("t", records(100))
    engine = await machine.cut_power(Loss.DROP)
    assert engine.state("t").head_seq >= answer.last_seq == 100 * writes + 1


async def test_a_reservation_is_renewed_before_its_end(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(1), config=TopicConfig(durability=Durability.DISK))
    log = log_of(engine, "t")
    waited = 0
    for _ in range(2000):
        short = log.assigned_head + 1 > log.reserved
        waited += short
        await engine.append("t", records(1))
        await asyncio.sleep(0)
    assert waited == 0
    assert log.reserved >= log.head


async def test_an_append_larger_than_the_reservation_waits_for_a_larger_reservation(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(1), config=TopicConfig(durability=Durability.DISK))
    assert (await engine.append("t", records(5000))).last_seq == 5001
    assert log_of(engine, "t").reserved >= 5001


async def test_reservation_steps_grow_and_shrink_with_the_write_rate(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(1), config=TopicConfig(durability=Durability.DISK))
    log = log_of(engine, "t")

    async def ahead_after(turns: int, ms: int) -> int:
        for _ in range(turns):
            await engine.append("t", records(500))
            machine.clock.tick(ms)
        return log.reserved - log.head

    hurried = await ahead_after(30, 10)
    calm = await ahead_after(60, 5000)
    assert hurried > 2000
    assert 0 <= calm <= 1500


async def test_the_fsync_class_needs_no_reservation(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    for _ in range(5):
        await engine.append("t", records(100))
    assert watermarks_written(machine) == 0
    engine = await machine.cut_power(Loss.DROP)
    assert engine.state("t").head_seq == 500


@WEAK
async def test_a_clean_stop_returns_unused_reserved_seqs(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=TopicConfig(durability=durability))
    for _ in range(3):
        engine = await machine.restart()
        head = engine.state("t").head_seq
        assert (await engine.append("t", records(1))).first_seq == head + 1
    assert engine.state("t").head_seq == 8


async def test_a_killed_process_loses_no_seqs_where_the_page_cache_is_trusted(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=TopicConfig(durability=Durability.DISK))
    engine = await machine.kill()
    assert engine.state("t").head_seq == 5
    engine = await machine.kill(trust_page_cache=False)
    assert engine.state("t").head_seq > 5


@given(
    st.lists(st.tuples(st.integers(1, 400), st.sampled_from([0, 3, 60, 200]), st.booleans()), min_size=1, max_size=12),
    st.sampled_from([Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL]),
    st.sampled_from(list(Loss)),
    st.integers(0, 100),
)
@settings(max_examples=30)
async def test_seqs_of_lost_records_are_announced_and_not_reused(
    steps: list[tuple[int, int, bool]], durability: Durability, loss: Loss, seed: int
) -> None:
    async with Machine() as machine:
        engine = await machine.start()
        await engine.put_topic("t", TopicConfig(durability=durability))
        acked = 0
        for count, pause_ms, cut in steps:
            answer = await engine.append("t", records(count))
            assert answer.first_seq > acked
            acked = answer.last_seq
            await machine.clock.advance(pause_ms)
            if cut:
                engine = await machine.cut_power(loss, seed)
                assert engine.state("t").head_seq >= acked
        seen: set[int] = set()
        at = 0
        while at < engine.state("t").head_seq:
            result = await engine.read("t", ReadQuery(from_seq=at, limit=1000))
            if result.tombstone is not None:
                seen |= set(range(result.tombstone.gap_from, result.tombstone.gap_to + 1))
            seen |= {each.seq for each in result.records}
            at = result.next_from_seq
        assert seen == set(range(1, at + 1)), "every seq is either there or told to be lost"
