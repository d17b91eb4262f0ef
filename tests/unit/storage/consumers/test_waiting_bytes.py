"""consumed_max_bytes: unread bytes are bounded exactly like a cap, and dropped records are announced."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Discard, Durability, ReadQuery, Retention, TopicConfig, TopicType
from storage.errors import RecordTooLarge, TopicFull
from tests.unit.storage.machine import Machine, errors_among, outcome, seqs, sized

CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])


def waiting(most_bytes: int, **more: object) -> TopicConfig:
    return TopicConfig(retention=Retention.CONSUMED, consumed_max_bytes=most_bytes, **more)  # pyright: ignore


@CLASSES
async def test_consumed_max_bytes_evicts_the_oldest_records(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", [sized(10)] * 3, config=waiting(40, durability=durability))
    await engine.append("t", [sized(10)] * 3)
    state = engine.state("t")
    assert (state.count, state.bytes, state.earliest_seq, state.evict_floor, state.head_seq) == (4, 40, 3, 3, 6)


async def test_a_read_of_records_evicted_by_the_bound_gets_a_cap_tombstone(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [sized(10)] * 10, config=waiting(40))
    told = (await engine.read("t", ReadQuery(from_seq=2))).tombstone
    assert told is not None
    assert (told.gap_from, told.gap_to, told.reason) == (3, 6, "cap")
    assert (await engine.read("t", ReadQuery(from_seq=6))).tombstone is None


async def test_consumed_max_bytes_is_ignored_with_retention_all(machine: Machine) -> None:
    engine = await machine.start()
    config = TopicConfig(retention=Retention.ALL, consumed_max_bytes=20)
    await engine.append("t", [sized(10)] * 3, config=config)
    await engine.append("t", [sized(100)])
    assert engine.state("t").bytes == 130
    assert await seqs(engine, "t") == [1, 2, 3, 4]


async def test_a_record_larger_than_the_bound_is_refused_with_the_name_of_the_bound(machine: Machine) -> None:
    engine = await machine.start()
    with pytest.raises(RecordTooLarge, match="consumed_max_bytes 20") as refused:
        await engine.append("t", [sized(10), sized(21)], config=waiting(20))
    assert refused.value.detail["max"] == 20
    assert engine.topics() == []
    await engine.append("t", [sized(15)] * 3, config=waiting(20))
    assert await seqs(engine, "t", from_seq=2) == [3]


@pytest.mark.parametrize(("cap", "bound", "kept"), [(30, 50, 30), (50, 30, 30), (0, 30, 30)])
async def test_the_lower_of_cap_and_bound_applies(machine: Machine, cap: int, bound: int, kept: int) -> None:
    engine = await machine.start()
    await engine.append("t", [sized(10)] * 7, config=waiting(bound, cap_bytes=cap))
    assert engine.state("t").bytes == kept


async def test_consumed_max_bytes_evicts_in_a_topic_that_rejects_at_its_cap(machine: Machine) -> None:
    engine = await machine.start()
    config = waiting(30, cap_records=4, cap_bytes=100, discard=Discard.REJECT)
    await engine.append("t", [sized(10)] * 3, config=config)
    await engine.append("t", [sized(20)])
    assert await seqs(engine, "t", from_seq=2) == [3, 4]
    await engine.append("t", [sized(2)] * 2)
    assert await seqs(engine, "t", from_seq=2) == [4, 5, 6]
    with pytest.raises(TopicFull):
        await engine.append("t", [sized(2)] * 2)
    with pytest.raises(RecordTooLarge, match="cap_bytes 100"):
        await engine.append("t", [sized(26)] * 4)


async def test_a_bound_set_later_applies_at_once(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [sized(10)] * 8)
    await engine.put_topic("t", TopicConfig(consumed_max_bytes=30))
    assert engine.state("t").count == 8
    await engine.put_topic("t", waiting(30))
    assert engine.state("t").count == 3
    await engine.put_topic("t", TopicConfig())
    await engine.append("t", [sized(10)] * 8)
    state = engine.state("t")
    assert (state.count, state.evict_floor) == (11, 6)


async def test_records_evicted_by_the_bound_stay_evicted_after_a_crash(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [sized(10)] * 6, config=waiting(25, durability=Durability.FSYNC))
    engine = await machine.cut_power()
    told = (await engine.read("t", ReadQuery())).tombstone
    assert told is not None
    assert (told.gap_to, told.reason) == (4, "cap")
    await engine.append("t", [sized(10)])
    assert engine.state("t").bytes == 20


async def test_jobs_evicted_by_the_bound_are_counted_as_lost(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("q", [sized(10)] * 5, config=waiting(30, type=TopicType.QUEUE))
    figures = engine.state("q").queue
    assert figures is not None
    assert figures.lost == 2


async def test_racing_writers_never_pass_the_bound(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", waiting(55))
    outcomes = await asyncio.gather(*(outcome(engine.append("t", [sized(10)] * 2)) for _ in range(9)))
    assert errors_among(outcomes) == []
    assert (engine.state("t").bytes, engine.state("t").head_seq) == (50, 18)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=5), min_size=1, max_size=12), st.integers(40, 120))
def test_never_more_than_the_bound_and_never_less_than_fits(batches: list[list[int]], bound: int) -> None:
    async def run() -> None:
        async with Machine() as machine:
            engine = await machine.start(segment_max_events=4, checkpoint_records=1)
            await engine.put_topic("t", waiting(bound))
            sent: list[int] = []
            for sizes in batches:
                await engine.append("t", [sized(size) for size in sizes])
                sent += sizes
                await engine.segment_worker.flush_all()
                kept = len(await seqs(engine, "t", from_seq=engine.state("t").evict_floor - 1))
                fitting = 0
                while fitting < len(sent) and sum(sent[len(sent) - fitting - 1 :]) <= bound:
                    fitting += 1
                assert kept == fitting
                assert engine.state("t").bytes == sum(sent[len(sent) - kept :])

    asyncio.run(run())
