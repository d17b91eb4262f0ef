"""Jobs are read from files ahead of their claims: fewer reads, and never a job that no longer exists."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from storage import NewRecord, ReadQuery
from storage.errors import SegmentUnreadable, TopicNotFound
from storage.queues import read_ahead
from storage.reads.reader import Reader
from storage.records.values import ReadResult, TagMatch
from storage.state.queues.values import JobState
from tests.unit.storage.machine import Machine, outcome, sized
from tests.unit.storage.queues.jobs import add, claim_seqs, config, flushed, kept, states, turns

DURABLE = pytest.mark.parametrize("leases_durable", [False, True])
#: Whether the records are only in the log and no longer in memory. Otherwise they are in segments.
IN_LOG = pytest.mark.parametrize("in_log", [False, True])


class Reads:
    """Every read of records. Reads can be held up before they begin, or when they have ended."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.before = asyncio.Event()
        self.after = asyncio.Event()
        self.before.set()
        self.after.set()

    async def read(self, read: Any, reader: Reader, topic: Any, query: ReadQuery) -> ReadResult:
        self.asked.append(query.from_seq)
        await self.before.wait()
        result = await read(reader, topic, query)
        await self.after.wait()
        return result


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    reads, read = Reads(), Reader.read

    async def noted(reader: Reader, topic: Any, query: ReadQuery) -> ReadResult:
        return await reads.read(read, reader, topic, query)

    monkeypatch.setattr(Reader, "read", noted)
    return reads


@IN_LOG
@DURABLE
async def test_successive_claims_share_a_single_read(
    machine: Machine, reads: Reads, leases_durable: bool, in_log: bool
) -> None:
    engine = await flushed(machine, 50, in_log=in_log, leases_durable=leases_durable)
    for first in range(1, 51, 5):
        claimed = await engine.queues.claim("q", "n", max=5)
        assert [job.record.seq for job in claimed.jobs] == [*range(first, first + 5)]
        assert [job.record.body for job in claimed.jobs] == [
            b'{"data":%d}' % (seq - 1) for seq in range(first, first + 5)
        ]
    assert reads.asked == [0]
    assert [*map(len, kept(engine).values())] == [0]


@IN_LOG
@DURABLE
async def test_concurrent_claims_share_a_single_read(
    machine: Machine, reads: Reads, leases_durable: bool, in_log: bool
) -> None:
    engine = await flushed(machine, 50, in_log=in_log, leases_durable=leases_durable)
    reads.before.clear()
    claims = [asyncio.create_task(claim_seqs(engine, 5, node)) for node in "abcd"]
    await turns()
    assert reads.asked == [0]
    reads.before.set()
    assert sorted([await claim for claim in claims]) == [[*range(first, first + 5)] for first in (1, 6, 11, 16)]
    assert reads.asked == [0]


# -- the next jobs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten records are read at once."""
    monkeypatch.setattr(read_ahead, "RECORDS", 10)


@IN_LOG
@DURABLE
@pytest.mark.usefixtures("few")
async def test_the_next_jobs_are_read_ahead(machine: Machine, reads: Reads, leases_durable: bool, in_log: bool) -> None:
    engine = await flushed(machine, 60, in_log=in_log, leases_durable=leases_durable)
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    assert await claim_seqs(engine, 5) == [6, 7, 8, 9, 10]
    await turns()
    assert reads.asked == [0, 10], "less than two reads' worth was left"
    reads.before.clear()
    assert await claim_seqs(engine, 5) == [11, 12, 13, 14, 15], "no read is waited for"
    assert await claim_seqs(engine, 5) == [16, 17, 18, 19, 20]
    claims = [asyncio.create_task(claim_seqs(engine, 5, node)) for node in "ab"]
    await turns()
    assert reads.asked == [0, 10, 20]
    reads.before.set()
    assert [await claim for claim in claims] == [[21, 22, 23, 24, 25], [26, 27, 28, 29, 30]]
    assert reads.asked == [0, 10, 20], "they waited for the read that was under way"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("every", [2, 5, 20])
async def test_jobs_far_apart_in_a_file_are_read_once(machine: Machine, reads: Reads, every: int) -> None:
    engine = await machine.start(segment_max_events=1000, checkpoint_records=1)
    await engine.put_topic("q", config())
    for seq in range(1, 801):
        await engine.append("q", [NewRecord(msgspec.Raw(b"0"), tag="kept" if seq % every == 0 else "gone")])
    await engine.segment_worker.flush_all()
    await engine.delete_records("q", match=TagMatch(b"gone"))
    given = [seq for _ in range(800 // every // 5) for seq in await claim_seqs(engine, 5)]
    assert given == [*range(every, 801, every)]
    assert len(reads.asked) <= 800 // every // 10 + 2


async def test_read_ahead_jobs_of_the_least_recently_claimed_queue_are_dropped(machine: Machine, reads: Reads) -> None:
    engine = await machine.start(segment_max_events=1000, checkpoint_records=1)
    for number in range(read_ahead.QUEUES + 4):
        await engine.put_topic(f"q{number}", config())
        await engine.append(f"q{number}", [sized(5)] * 50)
    await engine.segment_worker.flush_all()
    for number in range(1, read_ahead.QUEUES + 4):
        for name in ("q0", f"q{number}"):
            await engine.queues.claim(name, "n")
    assert len(reads.asked) == read_ahead.QUEUES + 4


@IN_LOG
@pytest.mark.usefixtures("few")
async def test_jobs_in_memory_are_not_read_ahead(machine: Machine, reads: Reads, in_log: bool) -> None:
    engine = await flushed(machine, 20, in_log=in_log)
    engine.cache.max_bytes = 1 << 20
    await add(engine, 20)
    for at in range(1, 41, 5):
        assert await claim_seqs(engine, 5) == [*range(at, at + 5)]
        await turns()
    assert reads.asked == [0, 10]


@pytest.mark.usefixtures("few")
async def test_a_failed_read_ahead_fails_no_claim(machine: Machine, reads: Reads) -> None:
    engine = await flushed(machine, 30)
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    machine.disk.fail("pread", "*.data", sticky=True)
    assert await claim_seqs(engine, 5) == [6, 7, 8, 9, 10]
    await turns()
    assert reads.asked == [0, 10]
    assert engine.topic("q").log.usage.unreadable_reads == 1
    machine.disk.clear_faults()
    assert [await claim_seqs(engine, 5) for _ in range(4)] == [[*range(at, at + 5)] for at in range(11, 31, 5)]
    assert engine.queues.stats.unreadable == 0


@pytest.mark.usefixtures("few")
async def test_a_read_ahead_does_not_hold_up_the_end(machine: Machine, reads: Reads) -> None:
    engine = await flushed(machine, 30)
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    reads.before.clear()
    assert await claim_seqs(engine, 5) == [6, 7, 8, 9, 10]
    await turns()
    assert reads.asked == [0, 10]
    await engine.close()


# -- records that are no longer jobs ----------------------------------------------------------------------------------


@IN_LOG
@DURABLE
async def test_jobs_deleted_after_the_read_ahead_are_not_claimed(
    machine: Machine, reads: Reads, leases_durable: bool, in_log: bool
) -> None:
    engine = await flushed(machine, 50, in_log=in_log, leases_durable=leases_durable)
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    await engine.delete_records("q", before_seq=13)
    assert await claim_seqs(engine, 5) == [13, 14, 15, 16, 17]
    assert await engine.queues.purge("q") == 33
    assert await claim_seqs(engine, 5) == []
    assert reads.asked[0] == 0


@IN_LOG
async def test_jobs_evicted_after_the_read_ahead_are_not_claimed(machine: Machine, in_log: bool) -> None:
    engine = await flushed(machine, 50, in_log=in_log, cap_records=50)
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    await add(engine, 12)
    assert await claim_seqs(engine, 5) == [13, 14, 15, 16, 17]


async def test_jobs_expired_after_the_read_ahead_are_not_claimed(machine: Machine) -> None:
    engine = await flushed(machine, 20, ttl_ms=10_000)
    await machine.clock.advance(5000)
    await add(engine, 10)
    await engine.segment_worker.flush_all()
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    await machine.clock.advance(5001)
    assert await claim_seqs(engine, 5) == [21, 22, 23, 24, 25]


@IN_LOG
@DURABLE
@pytest.mark.parametrize("when", ["before", "after"])
async def test_jobs_deleted_during_their_read_are_omitted(
    machine: Machine, reads: Reads, when: str, leases_durable: bool, in_log: bool
) -> None:
    engine = await flushed(machine, 50, in_log=in_log, leases_durable=leases_durable)
    gate = reads.before if when == "before" else reads.after
    gate.clear()
    one, other = (asyncio.create_task(claim_seqs(engine, 5, node)) for node in "ab")
    await turns()
    await engine.delete_records("q", before_seq=3)
    gate.set()
    assert (await one, await other) == ([3, 4, 5], [6, 7, 8, 9, 10])
    assert engine.queues.figures("q").in_flight == 8


@IN_LOG
@DURABLE
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_claim_whose_jobs_were_all_deleted_gets_later_jobs(
    machine: Machine, reads: Reads, when: str, leases_durable: bool, in_log: bool
) -> None:
    engine = await flushed(machine, 50, in_log=in_log, leases_durable=leases_durable)
    gate = reads.before if when == "before" else reads.after
    gate.clear()
    claim = asyncio.create_task(claim_seqs(engine, 5))
    await turns()
    await engine.delete_records("q", before_seq=9)
    gate.set()
    assert await claim == [9, 10, 11, 12, 13]
    assert engine.queues.figures("q").in_flight == 5


@DURABLE
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_queue_deleted_during_a_read_drops_its_read_ahead_jobs(
    machine: Machine, reads: Reads, when: str, leases_durable: bool
) -> None:
    engine = await flushed(machine, 50, leases_durable=leases_durable)
    settings = engine.state("q").config
    gate = reads.before if when == "before" else reads.after
    gate.clear()
    claims = [asyncio.create_task(claim_seqs(engine, 5, node)) for node in "ab"]
    await turns()
    await engine.delete_topic("q")
    gate.set()
    outcomes = [await outcome(claim) for claim in claims]
    if leases_durable:
        assert [type(each) for each in outcomes] == [TopicNotFound, TopicNotFound]
    else:  # as if they had arrived just before the deletion
        assert outcomes == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    assert kept(engine) == {}
    await engine.put_topic("q", settings)
    await add(engine, 3)
    await engine.segment_worker.flush_all()
    assert await claim_seqs(engine, 5) == [1, 2, 3]


@IN_LOG
async def test_deleting_a_queue_drops_its_read_ahead_jobs(machine: Machine, in_log: bool) -> None:
    engine = await flushed(machine, 50, in_log=in_log)
    assert await claim_seqs(engine) == [1]
    assert [*map(len, kept(engine).values())] == [49]
    await engine.delete_topic("q")
    assert kept(engine) == {}


# -- unreadable records -----------------------------------------------------------------------------------------------


def damage(machine: Machine, content: bytes) -> None:
    """Change a byte of the only record with this content, in its segment or else in the log."""
    found = [path for path, data in machine.disk.content().items() if content in data]
    path = max(found, key=lambda path: path.endswith(".data"))
    data = machine.disk.read_file(path)
    at = data.index(content)
    machine.disk.write_file(path, data[:at] + b"?" + data[at + 1 :])


@IN_LOG
@DURABLE
async def test_a_damaged_record_is_delayed_and_delays_no_other_job(
    machine: Machine, leases_durable: bool, in_log: bool
) -> None:
    engine = await flushed(machine, 30, in_log=in_log, leases_durable=leases_durable, lease_ms=3_600_000)
    damage(machine, b'{"data":16}')
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
    given = [seq for _ in range(5) for seq in await claim_seqs(engine, 5)]
    assert sorted(given) == [seq for seq in range(6, 31) if seq != 17]
    assert states(engine)[17] is JobState.DELAYED
    assert engine.queues.stats.unreadable == 1
    await machine.clock.advance(60_000)
    assert await outcome(claim_seqs(engine, 5)) != [17]
    assert engine.queues.stats.unreadable == 2


async def test_an_unreadable_disk_fails_the_claim_and_loses_no_job(machine: Machine) -> None:
    engine = await flushed(machine, 30)
    machine.disk.fail("pread", "*.data", sticky=True)
    assert isinstance(await outcome(claim_seqs(engine, 5)), SegmentUnreadable)
    machine.disk.clear_faults()
    assert (engine.queues.figures("q").ready, engine.queues.figures("q").delayed) == (0, 30)
    await machine.clock.advance(60_000)
    assert engine.queues.figures("q").ready == 30
    assert await claim_seqs(engine, 5) == [1, 2, 3, 4, 5]
