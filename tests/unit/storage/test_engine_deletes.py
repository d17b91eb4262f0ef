"""Deleting records below a seq, by tag, or both: permanent, without announcement, and bounded by the head at the
call."""

from __future__ import annotations

import asyncio

import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import InvalidRequest, RecordNotFound, TopicNotFound
from tests.unit.storage.machine import Machine, record, records, seqs

CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])
TAGS = ["a", "ab", None, "b", "a", "abc"]


async def a_topic(machine: Machine, durability: Durability = Durability.FSYNC):
    engine = await machine.start()
    await engine.append("t", [record(tag=tag) for tag in TAGS], config=TopicConfig(durability=durability))
    return engine


@CLASSES
@pytest.mark.parametrize(
    ("before_seq", "match", "left"),
    [
        (4, None, [4, 5, 6]),
        (1, None, [1, 2, 3, 4, 5, 6]),
        (0, None, [1, 2, 3, 4, 5, 6]),
        (7, None, []),
        (10**12, None, []),
        (None, TagMatch(b"a"), [2, 3, 4, 6]),
        (None, TagMatch(b"a", True), [3, 4]),
        (None, TagMatch(b"", True), [3]),
        (None, TagMatch(b"nothing"), [1, 2, 3, 4, 5, 6]),
        (5, TagMatch(b"a"), [2, 3, 4, 5, 6]),
        (2, TagMatch(b"ab", True), [1, 2, 3, 4, 5, 6]),
    ],
)
async def test_a_delete_removes_exactly_the_records_that_match_all_predicates(
    machine: Machine, durability: Durability, before_seq: int | None, match: TagMatch | None, left: list[int]
) -> None:
    engine = await a_topic(machine, durability)
    done = await engine.delete_records("t", before_seq=before_seq, match=match)
    assert (done.topic, done.deleted, done.count, done.bytes) == ("t", 6 - len(left), len(left), len(left))
    assert (done.head_seq, done.earliest_seq) == (6, left[0] if left else 7)
    result = await engine.read("t", ReadQuery())
    assert [each.seq for each in result.records] == left
    assert (result.tombstone, result.next_from_seq) == (None, 6), "deletions are silent, and examined"


async def test_a_repeated_delete_deletes_no_record(machine: Machine) -> None:
    engine = await a_topic(machine)
    for match in (None, TagMatch(b"a", True)):
        first = await engine.delete_records("t", before_seq=3, match=match)
        again = await engine.delete_records("t", before_seq=3, match=match)
        assert (again.deleted, again.count) == (0, first.count)


async def test_two_concurrent_deletes_count_each_record_once(machine: Machine) -> None:
    engine = await a_topic(machine)
    done = await asyncio.gather(*(engine.delete_records("t", match=TagMatch(b"a", True)) for _ in range(3)))
    assert sorted(each.deleted for each in done) == [0, 0, 4]


async def test_a_pending_write_is_not_deleted(machine: Machine) -> None:
    engine = await a_topic(machine)
    writing = asyncio.create_task(engine.append("t", [record(tag="a")]))
    await asyncio.sleep(0)
    done = await engine.delete_records("t", before_seq=100, match=TagMatch(b"a"))
    await writing
    assert done.deleted == 2
    assert 7 in await seqs(engine, "t")
    assert (await engine.delete_records("t", before_seq=7)).deleted == 4
    assert await seqs(engine, "t") == [7]


async def test_a_predicate_is_needed(machine: Machine) -> None:
    engine = await a_topic(machine)
    with pytest.raises(InvalidRequest):
        await engine.delete_records("t")
    with pytest.raises(InvalidRequest):
        await engine.delete_records("absent")
    with pytest.raises(TopicNotFound):
        await engine.delete_records("absent", before_seq=1)


@pytest.mark.parametrize(("before_seq", "match"), [(4, None), (None, TagMatch(b"a", True)), (3, TagMatch(b"a"))])
@pytest.mark.parametrize("snapshot", [False, True])
async def test_deleted_records_stay_deleted_after_a_restart(
    machine: Machine, before_seq: int | None, match: TagMatch | None, snapshot: bool
) -> None:
    engine = await a_topic(machine)
    await engine.delete_records("t", before_seq=before_seq, match=match)
    if snapshot:
        await engine.snapshotter.take()
    before = (await seqs(engine, "t"), engine.state("t"))
    engine = await machine.cut_power()
    assert await seqs(engine, "t") == before[0]
    state = engine.state("t")
    assert (state.count, state.bytes, state.earliest_seq) == (
        before[1].count,
        before[1].bytes,
        before[1].earliest_seq,
    )
    await engine.append("t", records(1))
    assert (await seqs(engine, "t"))[-1] == 7


async def test_a_deleted_record_is_named_deleted(machine: Machine) -> None:
    engine = await a_topic(machine)
    await engine.delete_records("t", match=TagMatch(b"a"))
    await engine.delete_records("t", before_seq=3)
    for seq in (1, 2, 5):
        with pytest.raises(RecordNotFound) as caught:
            await engine.read_one("t", seq)
        assert caught.value.detail == {"reason": "deleted", "seq": seq}
    assert (await engine.read_one("t", 3)).seq == 3


async def test_a_delete_waits_for_a_sync_only_in_fsync_topics(machine: Machine) -> None:
    engine = await machine.start()
    syncs = []
    for durability in (Durability.FSYNC, Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL):
        await engine.append(durability, records(2), config=TopicConfig(durability=durability))
        before = engine.shards[0].log.stats.fsyncs
        await engine.delete_records(durability, before_seq=2)
        syncs.append(engine.shards[0].log.stats.fsyncs - before)
    assert syncs[0] == 1
    assert syncs[1:3] == [0, 0]


async def test_tags_are_matched_as_bytes(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(tag="ä"), record(tag="a"), record(tag="äx")])
    assert (await engine.delete_records("t", match=TagMatch("ä".encode(), True))).deleted == 2
    assert await seqs(engine, "t") == [2]
