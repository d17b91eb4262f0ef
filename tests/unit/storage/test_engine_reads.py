"""Reading: limits, filters, scanned records, and losses announced before records."""

from __future__ import annotations

import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import InvalidRequest, RecordCorrupt, RecordNotFound, TopicNotFound
from storage.log import split
from tests.unit.storage.machine import WAL, Machine, log_of, record, records, seqs, sized

EPHEMERAL = TopicConfig(durability=Durability.EPHEMERAL)
CACHES = pytest.mark.parametrize("tail_cache_bytes", [0, 1 << 20])


@CACHES
async def test_records_are_read_as_sent(machine: Machine, tail_cache_bytes: int) -> None:
    engine = await machine.start(tail_cache_bytes=tail_cache_bytes)
    await engine.append("t", [record({"a": 1}, meta=[2], tag="x", node="n"), record("ü")])
    first, second = (await engine.read("t", ReadQuery())).records
    assert (first.seq, first.node, first.tag) == (1, b"n", b"x")
    assert first.body == b'{"data":{"a":1},"meta":[2]}'
    assert (second.seq, second.node, second.tag, second.body) == (2, b"", b"", b'{"data":"\\u00fc"}')
    assert first.ts == machine.clock.wall_ms()


@CACHES
@pytest.mark.parametrize("limit", [1, 2, 7, 100])
async def test_pages_return_each_record_once(machine: Machine, tail_cache_bytes: int, limit: int) -> None:
    engine = await machine.start(tail_cache_bytes=tail_cache_bytes)
    for n in range(1, 8):
        await engine.append("t", records(n))
    seen: list[int] = []
    while len(seen) < 28:
        result = await engine.read("t", ReadQuery(from_seq=seen[-1] if seen else 0, limit=limit))
        assert 0 < len(result.records) <= limit
        seen += [each.seq for each in result.records]
        assert result.next_from_seq == seen[-1]
    assert seen == list(range(1, 29))
    last = await engine.read("t", ReadQuery(from_seq=28, limit=limit))
    assert (last.records, last.next_from_seq, last.head_seq) == ([], 28, 28)


@CACHES
async def test_a_read_is_limited_by_bytes_and_has_at_least_a_single_record(
    machine: Machine, tail_cache_bytes: int
) -> None:
    engine = await machine.start(tail_cache_bytes=tail_cache_bytes)
    await engine.append("t", [sized(91) for _ in range(6)])  # 100 bytes stored
    taken = []
    for max_bytes in (1, 99, 100, 199, 200, 299, 600, 10_000):
        result = await engine.read("t", ReadQuery(max_bytes=max_bytes))
        taken.append(len(result.records))
        assert result.next_from_seq == taken[-1]
    assert taken == [1, 1, 1, 1, 2, 2, 6, 6]


async def test_a_record_larger_than_the_byte_limit_is_returned(machine: Machine) -> None:
    engine = await machine.start(tail_cache_bytes=0)
    await engine.append("t", [sized(50_000), sized(50_000)])
    assert await seqs(engine, "t", max_bytes=10) == [1]
    assert await seqs(engine, "t", max_bytes=10, from_seq=1) == [2]


@CACHES
async def test_a_tag_filter_selects_records_and_counts_scanned_records(machine: Machine, tail_cache_bytes: int) -> None:
    engine = await machine.start(tail_cache_bytes=tail_cache_bytes)
    tags = ["a", "b", None, "ab", "b", "a", None, None]
    await engine.append("t", [record(tag=tag) for tag in tags])
    result = await engine.read("t", ReadQuery(tag=TagMatch(b"a", True), limit=2))
    assert ([each.seq for each in result.records], result.next_from_seq) == ([1, 4], 4)
    result = await engine.read("t", ReadQuery(tag=TagMatch(b"a", True), limit=2, from_seq=4))
    assert ([each.seq for each in result.records], result.next_from_seq) == ([6], 8)
    result = await engine.read("t", ReadQuery(tag=TagMatch(b"none")))
    assert (result.records, result.next_from_seq, result.records_scanned) == ([], 8, 8)


async def test_records_of_the_own_node_are_skipped_with_dedupe_node(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(node=node) for node in ("me", "you", None, "me")])
    query = ReadQuery(exclude_nodes=frozenset({b"me"}))
    result = await engine.read("t", query)
    assert ([each.seq for each in result.records], result.next_from_seq, result.tombstone) == ([2, 3], 4, None)
    await engine.put_topic("t", TopicConfig(dedupe_node=False))
    assert [each.seq for each in (await engine.read("t", query)).records] == [1, 2, 3, 4]


@CACHES
async def test_a_scan_ends_at_max_scan_records_and_returns_its_position(
    machine: Machine, tail_cache_bytes: int
) -> None:
    engine = await machine.start(max_scan_records=10, tail_cache_bytes=tail_cache_bytes)
    await engine.append("t", [record(tag="x") for _ in range(25)])
    await engine.append("t", [record(tag="y")])
    query = {"tag": TagMatch(b"y")}
    steps = []
    at = 0
    while at < 26:
        result = await engine.read("t", ReadQuery(from_seq=at, **query))
        steps.append((at, [each.seq for each in result.records], result.records_scanned))
        at = result.next_from_seq
    assert steps == [(0, [], 10), (10, [], 10), (20, [26], 6)]


async def test_a_read_from_a_time_begins_at_the_first_record_of_that_time(machine: Machine) -> None:
    engine = await machine.start()
    start = machine.clock.wall_ms()
    for _ in range(4):
        await engine.append("t", records(2))
        await machine.clock.advance(100)
    found = [await seqs(engine, "t", from_ts=start + late) for late in (-5, 0, 1, 100, 300, 301)]
    assert found == [list(range(1, 9)), list(range(1, 9)), [3, 4, 5, 6, 7, 8], [3, 4, 5, 6, 7, 8], [7, 8], []]
    assert await seqs(engine, "t", from_ts=start + 100, from_seq=5) == [6, 7, 8], "the later of the two"
    nothing = await engine.read("t", ReadQuery(from_ts=start + 10**6))
    assert (nothing.next_from_seq, nothing.tombstone) == (8, None)


async def test_a_read_with_another_epoch_gets_a_recreated_tombstone(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3))
    state = engine.state("t")
    for query in (ReadQuery(from_seq=4), ReadQuery(from_seq=2, epoch=state.epoch + 1)):
        result = await engine.read("t", query)
        assert result.tombstone is not None
        told = result.tombstone
        assert (told.gap_from, told.gap_to, told.reason, told.missed_estimate) == (1, 0, "recreated", 0)
        assert [each.seq for each in result.records] == [1, 2, 3]
        assert result.next_from_seq == 3
    for query in (ReadQuery(from_seq=3), ReadQuery(from_seq=2, epoch=state.epoch)):
        assert (await engine.read("t", query)).tombstone is None


async def test_starting_over_begins_at_the_floor(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), config=TopicConfig(cap_records=2))
    result = await engine.read("t", ReadQuery(from_seq=77))
    assert result.tombstone is not None
    assert (result.tombstone.gap_to, result.tombstone.missed_estimate) == (3, 0)
    assert [each.seq for each in result.records] == [4, 5]


async def test_a_read_ends_before_a_loss_and_the_next_read_continues_after_the_loss(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=TopicConfig(durability=Durability.FSYNC))
    await engine.put_topic("t", EPHEMERAL)
    await engine.append("t", records(2))
    engine = await machine.restart()
    await engine.put_topic("t", TopicConfig())
    await engine.append("t", records(2))
    first = await engine.read("t", ReadQuery())
    assert ([each.seq for each in first.records], first.tombstone, first.next_from_seq) == ([1, 2, 3], None, 3)
    second = await engine.read("t", ReadQuery(from_seq=3))
    assert second.tombstone is not None
    assert (second.tombstone.gap_from, second.tombstone.gap_to, second.tombstone.reason) == (4, 5, "crash")
    assert ([each.seq for each in second.records], second.next_from_seq) == ([6, 7], 7)
    inside = await engine.read("t", ReadQuery(from_seq=4))
    assert inside.tombstone is not None
    assert (inside.tombstone.gap_from, inside.tombstone.gap_to) == (5, 5)


async def test_a_single_record_is_read_by_its_seq(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=TopicConfig(cap_records=2))
    assert (await engine.read_one("t", 2)).seq == 2
    for seq, reason in ((1, "evicted"), (4, "future"), (10**15, "future")):
        with pytest.raises(RecordNotFound) as caught:
            await engine.read_one("t", seq)
        assert caught.value.detail == {"reason": reason, "seq": seq}
    for seq in (0, -1):
        with pytest.raises(InvalidRequest):
            await engine.read_one("t", seq)
    with pytest.raises(TopicNotFound):
        await engine.read_one("absent", 1)


async def test_a_record_of_a_loss_range_is_lost(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=TopicConfig(durability=Durability.FSYNC))
    await engine.put_topic("t", EPHEMERAL)
    await engine.append("t", records(2))
    engine = await machine.restart()
    with pytest.raises(RecordNotFound) as caught:
        await engine.read_one("t", 5)
    assert caught.value.detail["reason"] == "lost"


async def test_reading_notes_the_time(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(1))
    await machine.clock.advance(55)
    await engine.read("t", ReadQuery())
    assert engine.state("t").last_read_ts == machine.clock.wall_ms()


# -- damage ------------------------------------------------------------------------------------------------------


async def damaged(machine: Machine, seq: int):
    """An engine whose record `seq` of ten has a flipped byte on disk, and an empty tail cache."""
    engine = await machine.start(tail_cache_bytes=0)
    await engine.append("t", [record(n) for n in range(5)])
    await engine.append("t", [record(n) for n in range(5, 10)])
    (span,) = log_of(engine, "t").tail.slices(seq, seq + 1)
    file, offset = split(span.lsn)
    handle = machine.disk.open(f"{WAL}/wal-{file:016d}.log")
    at = offset + span.offset + 45
    handle.pwritev([bytes([handle.pread(1, at)[0] ^ 1])], at)
    return engine, file, offset + span.offset


@pytest.mark.parametrize("seq", [1, 3, 10])
async def test_a_damaged_record_is_never_served_nor_passed_over(machine: Machine, seq: int) -> None:
    engine, file, offset = await damaged(machine, seq)
    with pytest.raises(RecordCorrupt) as caught:
        await engine.read("t", ReadQuery())
    assert caught.value.detail == {"topic": "t", "seq": seq, "file": file, "offset": offset}
    assert caught.value.code == "segment_corrupt"
    with pytest.raises(RecordCorrupt):
        await engine.read_one("t", seq)
    assert engine.catalog.usage.corrupt_reads == 2


@pytest.mark.parametrize("seq", [1, 3, 10])
async def test_a_corrupt_record_is_listed_with_skip_corrupt(machine: Machine, seq: int) -> None:
    engine, _, _ = await damaged(machine, seq)
    result = await engine.read("t", ReadQuery(skip_corrupt=True))
    assert result.corrupt_seqs == [seq]
    assert [each.seq for each in result.records] == [each for each in range(1, 11) if each != seq]
    assert result.next_from_seq == 10


async def test_a_read_that_ends_before_a_corrupt_record_succeeds(machine: Machine) -> None:
    engine, _, _ = await damaged(machine, 5)
    assert await seqs(engine, "t", limit=4) == [1, 2, 3, 4]
    assert await seqs(engine, "t", from_seq=5) == [6, 7, 8, 9, 10]


async def test_a_deleted_record_may_be_damaged(machine: Machine) -> None:
    engine, _, _ = await damaged(machine, 3)
    await engine.delete_records("t", before_seq=4)
    assert await seqs(engine, "t") == [4, 5, 6, 7, 8, 9, 10]
