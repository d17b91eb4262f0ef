"""Caps are never exceeded: the oldest record goes or the new one is refused, exactly, also with concurrent writes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage import Discard, Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import RecordTooLarge, TopicFull
from tests.unit.storage.machine import Machine, errors_among, log_of, outcome, record, records, seqs, sized

CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])


def reject(**caps: int) -> TopicConfig:
    return TopicConfig(discard=Discard.REJECT, **caps)


@CLASSES
async def test_the_oldest_records_are_evicted(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=TopicConfig(cap_records=4, durability=durability))
    await engine.append("t", records(3))
    state = engine.state("t")
    assert (state.count, state.earliest_seq, state.evict_floor, state.head_seq) == (4, 3, 3, 6)
    assert await seqs(engine, "t", from_seq=2) == [3, 4, 5, 6]


async def test_a_read_of_evicted_records_gets_a_cap_tombstone(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(10), config=TopicConfig(cap_records=4))
    result = await engine.read("t", ReadQuery(from_seq=2))
    assert result.tombstone is not None
    told = result.tombstone
    assert (told.gap_from, told.gap_to, told.reason, told.missed_estimate) == (3, 6, "cap", 4)
    assert (told.earliest_seq, told.head_seq) == (7, 10)
    assert [each.seq for each in result.records] == [7, 8, 9, 10]
    assert (await engine.read("t", ReadQuery(from_seq=6))).tombstone is None


async def test_the_cap_that_is_reached_first_applies(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(cap_records=3, cap_bytes=100))
    kept = []
    for sizes in ((10, 10), (10, 10), (90,), (5, 5)):
        await engine.append("t", [sized(size) for size in sizes])
        state = engine.state("t")
        kept.append((state.count, state.bytes))
    assert kept == [(2, 20), (3, 30), (2, 100), (3, 100)]


async def test_a_batch_over_the_cap_retains_its_last_records(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2), config=TopicConfig(cap_records=3))
    answer = await engine.append("t", records(10))
    assert (answer.first_seq, answer.last_seq, answer.count) == (3, 12, 10)
    assert await seqs(engine, "t", from_seq=9) == [10, 11, 12]


async def test_byte_caps_count_data_and_meta_as_sent(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record("é", meta={"k": 1}, tag="tag", node="node")])
    assert engine.state("t").bytes == len('"\\u00e9"') + len('{"k":1}')


async def test_deleted_records_do_not_count(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(tag="x"), record(), record(tag="x")], config=TopicConfig(cap_records=3))
    await engine.delete_records("t", match=TagMatch(b"x"))
    await engine.append("t", records(2))
    assert await seqs(engine, "t") == [2, 4, 5]
    await engine.append("t", records(1))
    assert await seqs(engine, "t", from_seq=2) == [4, 5, 6]


async def test_evicted_records_stay_evicted_after_a_crash(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=TopicConfig(cap_records=4, durability=Durability.FSYNC))
    await engine.append("t", records(3))
    before = engine.state("t")
    engine = await machine.cut_power()
    assert engine.state("t") == before


# -- discard reject ----------------------------------------------------------------------------------------------


async def test_an_append_to_a_full_topic_is_refused_with_topic_full(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=reject(cap_records=4))
    with pytest.raises(TopicFull) as caught:
        await engine.append("t", records(2))
    assert caught.value.detail == {"count": 3, "bytes": 3, "cap_records": 4, "cap_bytes": 0}
    assert (await engine.append("t", records(1))).last_seq == 4
    with pytest.raises(TopicFull):
        await engine.append("t", records(1))


async def test_a_batch_larger_than_the_cap_is_refused_with_record_too_large(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", reject(cap_records=2, cap_bytes=100))
    for batch in (records(3), [sized(60), sized(41)]):
        with pytest.raises(RecordTooLarge):
            await engine.append("t", batch)
    await engine.append("t", [sized(60), sized(40)])
    await engine.put_topic("u", TopicConfig(cap_bytes=100))
    with pytest.raises(RecordTooLarge):
        await engine.append("u", [sized(101)])
    await engine.append("u", [sized(100), sized(100)])
    assert engine.state("u").count == 1


@CLASSES
async def test_of_many_writers_exactly_as_many_get_in_as_fit(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    config = TopicConfig(discard=Discard.REJECT, cap_records=7, durability=durability)
    outcomes = await asyncio.gather(*(outcome(engine.append("t", records(2), config=config)) for _ in range(20)))
    refused = errors_among(outcomes)
    assert len(refused) == 17
    assert all(isinstance(each, TopicFull) for each in refused)
    assert (engine.state("t").count, engine.state("t").head_seq) == (6, 6)
    await engine.append("t", records(1))
    assert engine.state("t").count == 7


async def test_room_made_by_a_deletion_is_used_at_once(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(tag="x"), record()], config=reject(cap_records=2))
    await engine.delete_records("t", match=TagMatch(b"x"))
    await engine.append("t", records(1))
    with pytest.raises(TopicFull):
        await engine.append("t", records(1))
    await engine.delete_records("t", before_seq=4)
    await engine.append("t", records(2))
    assert engine.state("t").count == 2


# -- changed caps ------------------------------------------------------------------------------------------------


@CLASSES
@pytest.mark.parametrize("discard", list(Discard))
async def test_a_tightened_cap_applies_at_once(machine: Machine, durability: Durability, discard: Discard) -> None:
    engine = await machine.start()
    config = TopicConfig(durability=durability, discard=discard)
    await engine.append("t", [sized(10) for _ in range(10)], config=config)
    state, created = await engine.put_topic("t", TopicConfig(durability=durability, discard=discard, cap_records=6))
    assert (created, state.count, state.evict_floor) == (False, 6, 5)
    state, _ = await engine.put_topic("t", TopicConfig(durability=durability, discard=discard, cap_bytes=25))
    assert (state.count, state.bytes, state.evict_floor) == (2, 20, 9)


async def test_a_tightened_cap_holds_with_pending_writes(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(10))
    await asyncio.gather(
        engine.append("t", records(5)),
        engine.put_topic("t", TopicConfig(cap_records=4)),
        engine.append("t", records(5)),
    )
    state = engine.state("t")
    assert (state.count, state.head_seq, state.earliest_seq) == (4, 20, 17)


async def test_a_loosened_cap_restores_no_record(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(10), config=TopicConfig(cap_records=2))
    state, _ = await engine.put_topic("t", TopicConfig())
    assert (state.count, state.evict_floor) == (2, 9)


@given(
    st.lists(st.lists(st.integers(2, 40), min_size=1, max_size=5), min_size=1, max_size=20),
    st.integers(0, 9),
    st.integers(0, 120),
    st.sampled_from([Durability.DISK, Durability.EPHEMERAL]),
)
@settings(max_examples=25)
async def test_writers_at_once_never_overstep_a_cap(
    batches: list[list[int]], cap_records: int, cap_bytes: int, durability: Durability
) -> None:
    config = TopicConfig(cap_records=cap_records, cap_bytes=cap_bytes, discard=Discard.REJECT, durability=durability)
    async with Machine() as machine:
        engine = await machine.start()
        await engine.put_topic("t", config)
        outcomes = await asyncio.gather(
            *(outcome(engine.append("t", [sized(size) for size in sizes])) for sizes in batches)
        )
        state = engine.state("t")
        assert not cap_records or state.count <= cap_records
        assert not cap_bytes or state.bytes <= cap_bytes
        held = [sizes for sizes, each in zip(batches, outcomes, strict=True) if not errors_among([each])]
        assert (state.count, state.bytes) == (sum(map(len, held)), sum(map(sum, held)))
        for sizes, each in zip(batches, outcomes, strict=True):
            if isinstance(each, TopicFull):
                over_records = cap_records and state.count + len(sizes) > cap_records
                over_bytes = cap_bytes and state.bytes + sum(sizes) > cap_bytes
                assert over_records or over_bytes, "what was refused would not fit now either"
        assert log_of(engine, "t").assigned_count == state.count
