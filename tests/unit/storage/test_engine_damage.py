"""Damage larger than a record: segments cut off or missing, log files missing, a disk that returns errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import pytest

from storage import Durability, Engine, ReadQuery, TagMatch, TopicConfig, TopicType
from storage.errors import LogUnreadable, RecordCorrupt, SegmentIncomplete, SegmentUnreadable, Unreadable
from storage.queues.lease_queue import CORRUPT_WAIT_MS
from storage.reads.scan import MAX_CORRUPT
from storage.segments.names import SegmentId
from storage.state.routers.router import Definition, Start
from tests.unit.storage.machine import DATA, WAL, Machine, outcome, record, seqs
from tests.unit.storage.routers.routed import everything, turns

FSYNC = TopicConfig(durability=Durability.FSYNC)
#: The second of three segments.
SECOND = f"{DATA}/topics/0000000000000001/seg-00000000000000000006"


async def written(machine: Machine, config: TopicConfig = FSYNC, absorbed: int = 15, **more: int) -> Engine:
    """Records 1 to 20 of "t", 100 ms apart, one per batch: the first ones in segments of 5, the others in the log."""
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=5, **more)
    for number in range(1, 21):
        tag = "x" if number in (7, 8, 10) else "y" if number > 10 else None
        await engine.append("t", [record(number, tag=tag)], config=config)
        if number == absorbed:
            await engine.segment_worker.flush_all()
        await machine.clock.advance(100)
    return engine


def remove(machine: Machine, engine: Engine, ext: str) -> None:
    machine.disk.unlink(SECOND + ext)
    forget(engine)


def cut(machine: Machine, engine: Engine, ext: str) -> None:
    """Two and a half records are left."""
    machine.disk.write_file(SECOND + ext, machine.disk.read_file(SECOND + ext)[: 50 if ext == ".idx" else 150])
    forget(engine)


def empty(machine: Machine, engine: Engine, ext: str) -> None:
    machine.disk.write_file(SECOND + ext, b"")
    forget(engine)


def forget(engine: Engine) -> None:
    """Close all its files and drop its memory."""
    engine.store.forget(SegmentId(1, 6))
    engine.topic("t").log.held.manifest.segments[1].details = None


Damage: TypeAlias = Callable[[Machine, Engine, str], None]
DAMAGES = pytest.mark.parametrize(("damage", "first"), [(remove, 6), (cut, 8), (empty, 6)])
FILES = pytest.mark.parametrize("ext", [".data", ".idx"])


# -- segments ---------------------------------------------------------------------------------------------------------


@DAMAGES
@FILES
async def test_a_missing_part_of_a_segment_is_reported_once_with_its_range(
    machine: Machine, damage: Damage, first: int, ext: str
) -> None:
    engine = await written(machine)
    damage(machine, engine, ext)
    for query in (ReadQuery(limit=1000), ReadQuery(from_seq=first - 1, limit=1)):
        with pytest.raises(SegmentIncomplete) as caught:
            await engine.read("t", query)
        detail = caught.value.detail
        assert (detail["topic"], detail["seq"], detail["from_seq"], detail["to_seq"]) == ("t", first, first, 10)
        assert SECOND + ext == f"{DATA}/topics/0000000000000001/{detail['file']}"
    assert engine.catalog.usage.corrupt_reads == 2
    assert await seqs(engine, "t", limit=first - 1) == [*range(1, first)]
    result = await engine.read("t", ReadQuery(limit=1000, skip_corrupt=True))
    assert [each.seq for each in result.records] == [*range(1, first), *range(11, 21)]
    assert (result.corrupt_seqs, result.next_from_seq) == ([*range(first, 11)], 20)
    assert engine.catalog.usage.corrupt_reads == 2 + 11 - first
    with pytest.raises(RecordCorrupt):
        await engine.read_one("t", 10)


async def test_deleted_records_of_a_damaged_segment_are_not_listed_as_corrupt(machine: Machine) -> None:
    engine = await written(machine)
    await engine.delete_records("t", match=TagMatch(b"x"))
    remove(machine, engine, ".data")
    result = await engine.read("t", ReadQuery(limit=1000, skip_corrupt=True))
    assert result.corrupt_seqs == [6, 9]


async def test_the_number_of_corrupt_seqs_in_an_answer_is_bounded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_CORRUPT >= 1000  # otherwise a page could be too small for its list
    monkeypatch.setattr("storage.reads.scan.MAX_CORRUPT", 3)
    engine = await written(machine)
    remove(machine, engine, ".idx")
    found: list[int] = []
    at = 0
    while at < 20:
        result = await engine.read("t", ReadQuery(from_seq=at, limit=1000, skip_corrupt=True))
        assert len(result.corrupt_seqs or ()) <= 3
        found += result.corrupt_seqs or ()
        at = result.next_from_seq
    assert found == [6, 7, 8, 9, 10]


@FILES
async def test_a_damaged_segment_does_not_hide_other_segments_of_a_topic_with_a_ttl(machine: Machine, ext: str) -> None:
    engine = await written(machine, TopicConfig(ttl_ms=10_000))
    remove(machine, engine, ext)
    await machine.clock.advance(8750)  # 1 to 7 have expired; 6 and 7 lie in the missing segment
    assert await seqs(engine, "t", from_seq=10) == [*range(11, 21)]
    result = await engine.read("t", ReadQuery(limit=1000, skip_corrupt=True))
    assert result.tombstone is not None
    assert (result.tombstone.gap_to, result.tombstone.reason) == (5, "ttl")
    assert [each.seq for each in result.records] == [*range(11, 21)]
    await machine.clock.advance(250)  # all of them
    result = await engine.read("t", ReadQuery(limit=1000))
    assert result.tombstone is not None
    assert (result.tombstone.gap_to, result.records[0].seq) == (10, 11)


async def test_a_damaged_segment_keeps_no_other_topic_from_expiring(machine: Machine) -> None:
    engine = await written(machine, TopicConfig(ttl_ms=10_000))
    await engine.append("u", [record()], config=TopicConfig(ttl_ms=1000))
    remove(machine, engine, ".data")
    await machine.clock.advance(8750)
    await engine.expiry.tick()
    assert (engine.state("t").earliest_seq, engine.state("u").count) == (6, 0)


async def test_a_read_from_a_time_reports_a_segment_without_readable_times(machine: Machine) -> None:
    engine = await written(machine)
    ts = (await engine.read_one("t", 3)).ts + 500
    empty(machine, engine, ".idx")
    with pytest.raises(SegmentIncomplete) as caught:
        await engine.read("t", ReadQuery(from_ts=ts))
    assert caught.value.detail["seq"] == 6
    result = await engine.read("t", ReadQuery(from_ts=ts, limit=1000, skip_corrupt=True))
    assert ([each.seq for each in result.records], result.corrupt_seqs) == ([*range(11, 21)], [*range(6, 11)])


async def test_jobs_of_a_damaged_segment_are_delayed_and_other_jobs_are_claimed(machine: Machine) -> None:
    engine = await written(machine, TopicConfig(type=TopicType.QUEUE, lease_ms=3_600_000))
    remove(machine, engine, ".data")
    given = [await outcome(engine.queues.claim("t", "n", max=4)) for _ in range(10)]
    found = [job.record.seq for each in given if not isinstance(each, RecordCorrupt) for job in each.jobs]
    assert sorted(found) == [*range(1, 6), *range(11, 21)]
    assert engine.queues.figures("t").delayed == 5


async def test_a_consumer_stops_at_a_damaged_segment_or_skips_it(machine: Machine) -> None:
    engine = await written(machine)
    await engine.consumers.put("t", "c", None)
    remove(machine, engine, ".data")
    assert len((await engine.consumers.read("t", "c", ReadQuery(limit=5))).result.records) == 5
    for _ in range(2):
        found = await outcome(engine.consumers.read("t", "c", ReadQuery()))
        assert isinstance(found, SegmentIncomplete)
        assert (found.detail["from_seq"], found.detail["to_seq"]) == (6, 10)
    read = await engine.consumers.read("t", "c", ReadQuery(limit=1000, skip_corrupt=True))
    assert (read.result.corrupt_seqs, read.cursor_seq) == ([*range(6, 11)], 20)


async def test_an_answer_with_corrupt_seqs_only_is_repeated_for_its_key(machine: Machine) -> None:
    engine = await written(machine)
    await engine.consumers.put("t", "c", None, start=5)
    await engine.delete_records("t", match=TagMatch(b"y"))
    remove(machine, engine, ".data")
    query = ReadQuery(limit=1000, skip_corrupt=True)
    answers = [await engine.consumers.read("t", "c", query, attempt_key="k") for _ in range(2)]
    assert [(each.result.records, each.result.corrupt_seqs) for each in answers] == [([], [*range(6, 11)])] * 2
    assert [each.repeated for each in answers] == [False, True]


async def test_a_router_reports_a_missing_segment_as_a_single_loss(machine: Machine) -> None:
    engine = await written(machine)
    remove(machine, engine, ".data")
    await engine.routers.put("r", Definition(source="t", dest="b", start=Start.EARLIEST))
    found = await everything(engine)
    assert [each if isinstance(each, str) else each.reason for each in found] == [
        *map(str, range(1, 6)),
        "source_trim",
        *map(str, range(11, 21)),
    ]
    assert engine.state("b").head_seq == 16


# -- the log ----------------------------------------------------------------------------------------------------------


async def test_a_read_with_skip_corrupt_skips_a_missing_log_file(machine: Machine) -> None:
    engine = await written(machine, absorbed=0, wal_file_bytes=1 << 10, wal_reserve_bytes=1 << 9)
    files = sorted(name for name in machine.disk.content() if name.startswith(f"{WAL}/wal-"))
    assert len(files) >= 3
    machine.disk.unlink(files[1])
    engine.wal_files.forget(0, 2)
    with pytest.raises(RecordCorrupt) as caught:
        await engine.read("t", ReadQuery(limit=1000))
    assert caught.value.detail["file"] == 2
    assert "the file is missing" in str(caught.value)
    first = caught.value.detail["seq"]
    result = await engine.read("t", ReadQuery(limit=1000, skip_corrupt=True))
    corrupt = result.corrupt_seqs or []
    assert corrupt == [*range(first, corrupt[-1] + 1)]
    assert sorted([*corrupt, *(each.seq for each in result.records)]) == [*range(1, 21)]


# -- a disk that returns errors ---------------------------------------------------------------------------------------


WHERE = pytest.mark.parametrize(
    ("absorbed", "path", "kind"), [(0, f"{WAL}/*", LogUnreadable), (20, "*.data", SegmentUnreadable)]
)


@WHERE
async def test_a_failing_read_is_reported_and_not_counted_as_damage(
    machine: Machine, absorbed: int, path: str, kind: type[Unreadable]
) -> None:
    engine = await written(machine, absorbed=absorbed)
    machine.disk.fail("pread", path, sticky=True)
    for skip in (False, True):
        with pytest.raises(kind) as caught:
            await engine.read("t", ReadQuery(from_seq=2, skip_corrupt=skip))
        assert (caught.value.code, caught.value.outcome) == ("storage_failed", "none")
        assert (caught.value.detail["topic"], caught.value.detail["seq"]) == ("t", 3)
    with pytest.raises(kind):
        await engine.read_one("t", 7)
    assert (engine.catalog.usage.corrupt_reads, engine.catalog.usage.unreadable_reads) == (0, 3)
    machine.disk.clear_faults()
    assert await seqs(engine, "t") == [*range(1, 21)]


@WHERE
async def test_records_before_an_unreadable_record_are_returned_first(
    machine: Machine, absorbed: int, path: str, kind: type[Unreadable]
) -> None:
    engine = await written(machine, absorbed=absorbed)
    real = machine.disk.fail
    real("pread", path, times=1)  # many at once
    real("pread", path, nth=5, sticky=True)
    result = await engine.read("t", ReadQuery(limit=1000, skip_corrupt=True))
    given = [each.seq for each in result.records]
    assert given == [*range(1, given[-1] + 1)]
    assert result.next_from_seq == given[-1] < 20
    with pytest.raises(kind) as caught:
        await engine.read("t", ReadQuery(from_seq=given[-1]))
    assert caught.value.detail["seq"] == given[-1] + 1


async def test_a_read_that_fails_once_is_repeated(machine: Machine) -> None:
    engine = await written(machine, absorbed=0)
    machine.disk.fail("pread", f"{WAL}/*")
    assert await seqs(engine, "t") == [*range(1, 21)]


@WHERE
async def test_jobs_of_an_unreadable_segment_are_delivered_when_it_is_readable(
    machine: Machine, absorbed: int, path: str, kind: type[Unreadable]
) -> None:
    engine = await written(machine, TopicConfig(type=TopicType.QUEUE), absorbed=absorbed)
    machine.disk.fail("pread", path, sticky=True)
    assert isinstance(await outcome(engine.queues.claim("t", "n", max=5)), kind)
    assert (await engine.queues.claim("t", "n", max=5)).jobs == []  # only the postponed work is left
    machine.disk.clear_faults()
    assert (engine.queues.figures("t").ready, engine.queues.figures("t").delayed) == (0, 20)
    assert engine.queues.stats.unreadable == 20
    await machine.clock.advance(CORRUPT_WAIT_MS)
    assert engine.queues.figures("t").ready == 20
    assert [job.record.seq for job in (await engine.queues.claim("t", "n", max=5)).jobs] == [1, 2, 3, 4, 5]


@WHERE
async def test_a_waiting_claim_on_an_unreadable_log_gets_a_new_job(
    machine: Machine, absorbed: int, path: str, kind: type[Unreadable]
) -> None:
    engine = await written(machine, TopicConfig(type=TopicType.QUEUE), absorbed=absorbed)
    machine.disk.fail("pread", path, sticky=True)
    waiting = asyncio.create_task(outcome(engine.queues.claim("t", "n", max=5, wait_ms=30_000)))
    other = asyncio.create_task(outcome(engine.queues.claim("t", "m", max=5, wait_ms=20)))
    await turns()
    assert not waiting.done()
    assert isinstance(await other, kind)
    machine.disk.clear_faults()
    await engine.append("t", [record(21)])
    assert [job.record.seq for job in (await waiting).jobs] == [21]


async def test_unreadable_jobs_are_delayed_and_other_jobs_are_claimed(machine: Machine) -> None:
    engine = await written(machine, TopicConfig(type=TopicType.QUEUE, lease_ms=3_600_000))
    machine.disk.fail("pread", f"{SECOND}.data", sticky=True)
    given = [[job.record.seq for job in (await engine.queues.claim("t", "n", max=4)).jobs] for _ in range(5)]
    assert given == [[1, 2, 3, 4], [5], [11, 12], [13, 14, 15, 16], [17, 18, 19, 20]]
    assert (engine.queues.figures("t").delayed, engine.queues.stats.unreadable) == (5, 5)
    machine.disk.clear_faults()
    await machine.clock.advance(CORRUPT_WAIT_MS)
    assert [job.record.seq for job in (await engine.queues.claim("t", "n", max=9)).jobs] == [6, 7, 8, 9, 10]


async def test_a_claim_skips_an_unreadable_segment_with_few_reads(machine: Machine) -> None:
    engine = await machine.start(tail_cache_bytes=0, segment_max_events=500)
    queue = TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC)
    for _ in range(2):
        await engine.append("t", [record()] * 500, config=queue)
        await engine.segment_worker.flush_all()
    await engine.append("t", [record()])
    first = engine.topic("t").log.held.manifest.segments[0]
    assert first.end_seq == 501
    machine.disk.fail("pread", f"{DATA}/topics/*/seg-00000000000000000001.data", sticky=True)
    given = await engine.queues.claim("t", "n", max=1)
    assert [job.record.seq for job in given.jobs] == [501]
    assert engine.queues.stats.unreadable == 500
    assert engine.catalog.usage.unreadable_reads < 20


async def test_a_claim_on_an_unreadable_log_fails_after_a_bounded_number_of_reads(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.queues.lease_queue.MOST_FAILURES", 3)
    engine = await written(machine, TopicConfig(type=TopicType.QUEUE), absorbed=0)
    machine.disk.fail("pread", f"{WAL}/*", sticky=True)
    assert isinstance(await outcome(engine.queues.claim("t", "n", max=1)), LogUnreadable)
    assert (engine.queues.figures("t").ready, engine.queues.figures("t").delayed) == (17, 3)


async def test_a_repeated_claim_of_unreadable_jobs_fails_and_its_leases_stay_valid(machine: Machine) -> None:
    engine = await written(machine, TopicConfig(type=TopicType.QUEUE, lease_ms=3_600_000), absorbed=0)
    given = await engine.queues.claim("t", "n", max=2, attempt_key="k")
    machine.disk.fail("pread", f"{WAL}/*", sticky=True)
    assert isinstance(await outcome(engine.queues.claim("t", "n", max=2, attempt_key="k")), LogUnreadable)
    machine.disk.clear_faults()
    assert (await engine.queues.claim("t", "n", max=2, attempt_key="k")).jobs == given.jobs


@WHERE
async def test_a_consumer_of_an_unreadable_log_keeps_its_cursor(
    machine: Machine, absorbed: int, path: str, kind: type[Unreadable]
) -> None:
    engine = await written(machine, absorbed=absorbed)
    await engine.consumers.put("t", "c", None)
    machine.disk.fail("pread", path, sticky=True)
    for _ in range(2):  # and takes no turn
        assert isinstance(await outcome(engine.consumers.read("t", "c", ReadQuery())), kind)
    machine.disk.clear_faults()
    assert (await engine.consumers.read("t", "c", ReadQuery())).cursor_seq == 20


@WHERE
async def test_a_router_waits_for_a_failing_disk_and_continues(
    machine: Machine, absorbed: int, path: str, kind: type[Unreadable]
) -> None:
    engine = await written(machine, absorbed=absorbed)
    machine.disk.fail("pread", path, sticky=True)
    await engine.routers.put("r", Definition(source="t", dest="b", start=Start.EARLIEST))
    await turns()
    assert (engine.routers.state("r").blocked, engine.routers.state("r").cursor_seq) == ("storage_failed", 0)
    machine.disk.clear_faults()
    await machine.clock.advance(2000)
    assert engine.routers.state("r").blocked is None
    assert await everything(engine) == [*map(str, range(1, 21))]
