"""Appends of one record in one turn of the loop are coalesced: one submission, and a result for each append."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from storage import Discard, Durability, Engine, TopicConfig, TopicType
from storage.errors import RecordCorrupt, ShuttingDown, StorageError, StorageFailed
from storage.log.append import MAX_COALESCED
from storage.records.values import Appended, PlainRecords
from tests.support.spec_control import APPEND
from tests.support.spec_wal import decode_wal_file
from tests.unit.storage.machine import Machine, data, log_of, raw, record, sized

FSYNC = TopicConfig(durability=Durability.FSYNC)
CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.MEMORY])


class CoalescedWriters:
    """Submits writes to be coalesced, and records the outcome of each by number; LEFT: the engine declined the write.

    A first write is in flight from the beginning, because a write is only coalesced while another is pending.
    """

    LEFT = "left"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.outcomes: dict[int, Any] = {}
        self.submitted = 0
        self.lead()

    def lead(self) -> None:
        """Puts a write in flight."""
        assert self._engine.try_append("lead", PlainRecords([raw(0)]), lambda _: None)

    def add(self, name: str, value: Any, *, node: str | None = None) -> None:
        number = self.submitted
        self.submitted += 1

        def report(outcome: Any) -> None:
            assert number not in self.outcomes, "an outcome is reported once"
            self.outcomes[number] = outcome

        try:
            if not self._engine.try_append_coalesced(name, raw(value), report, lambda: report(self.LEFT), node=node):
                report(self.LEFT)
        except StorageError:
            report(self.LEFT)  # as if declined, but at once

    async def all(self) -> list[Any]:
        for _ in range(2000):
            if len(self.outcomes) == self.submitted:
                break
            await asyncio.sleep(0)
        return [self.outcomes[number] for number in range(self.submitted)]


async def started(machine: Machine, **changes: Any) -> Engine:
    engine = await machine.start(**changes)
    await engine.put_topic("lead", FSYNC)
    return engine


def submissions(engine: Engine) -> list[int]:
    """From now on, how many writes each submission to the log has."""
    counts: list[int] = []
    for shard in engine.shards:
        enqueue = shard.enqueue

        def counted(each: Any, outcome: Any, go: Callable[[Any, Any], None] = enqueue) -> None:
            counts.append(each.writers)
            go(each, outcome)

        shard.enqueue = counted
    return counts


def appends(machine: Machine, shard: str) -> list[Any]:
    """The Append frames of the log, each as a unit, read by a decoder made from the specification."""
    found: list[Any] = []
    for name in sorted(machine.disk.listdir(shard)):
        if match := re.fullmatch(r"wal-(\d+)\.log", name):
            whole = decode_wal_file(machine.disk.read_file(f"{shard}/{name}"), number=int(match[1]), name=name)
            found += [batch for batch in whole.batches if any(frame.type == APPEND for frame in batch.frames)]
    assert all(batch.head is None and len(batch.frames) == 1 for batch in found)
    return [(frame.flags, frame.seq, frame.data) for batch in found for frame in batch.frames]


@CLASSES
async def test_coalesced_writes_share_a_submission_and_get_consecutive_seqs(
    machine: Machine, durability: Durability
) -> None:
    engine = await started(machine)
    await engine.put_topic("t", TopicConfig(durability=durability))
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for value in range(5):
        writers.add("t", value)
    assert writers.outcomes == {}, "no outcome before the next round of the loop"
    outcomes = await writers.all()
    assert counts == [5]
    assert [(each.topic, each.first_seq, each.last_seq, each.count) for each in outcomes] == [
        ("t", seq, seq, 1) for seq in range(1, 6)
    ]
    assert {each.head_seq for each in outcomes} == {5}
    assert await data(engine, "t") == list(range(5))
    again = await machine.restart()
    assert await data(again, "t") == list(range(5))


async def test_topics_and_nodes_are_coalesced_separately(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("a", FSYNC)
    await engine.put_topic("b", FSYNC)
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for name, node in (("a", None), ("b", None), ("a", "n"), ("a", None), ("b", None), ("a", "n")):
        writers.add(name, writers.submitted, node=node)
    outcomes = await writers.all()
    assert counts == [2, 2, 2]
    assert [each.topic for each in outcomes] == ["a", "b", "a", "a", "b", "a"]
    assert await data(engine, "a") == [0, 3, 2, 5]
    assert await data(engine, "b") == [1, 4]


async def test_coalesced_writes_have_the_frames_of_single_writes(machine: Machine) -> None:
    sizes = (10, 10, 400, 10, 3)
    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    for size in sizes:
        writers.add("t", "x" * size)
    await writers.all()
    together = appends(machine, engine.wal_directory(0))
    async with Machine() as other:
        lone = await started(other)
        await lone.put_topic("t", FSYNC)
        await lone.append("lead", record())
        for size in sizes:
            await lone.append("t", record("x" * size))
        assert together == appends(other, lone.wal_directory(0))
    assert len(together) == 1 + len(sizes)


async def test_coalesced_writes_are_read_from_log_and_segments(machine: Machine) -> None:
    engine = await started(machine, tail_cache_bytes=0, segment_max_events=4)
    await engine.put_topic("t", FSYNC)
    values = ["x" * size for size in (10, 10, 400, 10, 3, 700)]
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for value in values:
        writers.add("t", value)
    await writers.all()
    assert counts == [len(values)]
    for _ in ("the log", "segments"):
        assert await data(engine, "t") == values
        assert [(await engine.read_one("t", seq)).seq for seq in range(1, 7)] == list(range(1, 7))
        assert await data(engine, "t", from_seq=3) == values[3:]
        await engine.segment_worker.flush_all()
    assert log_of(engine, "t").held.flushed == len(values)
    assert await data(await machine.cut_power(), "t") == values


async def test_a_damaged_coalesced_write_is_not_served_and_the_rest_is_served(machine: Machine) -> None:
    engine = await started(machine, tail_cache_bytes=0)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    for value in ("before", "damaged", "behind"):
        writers.add("t", value)
    await writers.all()
    [path] = [
        path
        for name in machine.disk.listdir(engine.wal_directory(0))
        if b"damaged" in machine.disk.read_file(path := f"{engine.wal_directory(0)}/{name}")
    ]
    machine.disk.flip_byte(path, machine.disk.read_file(path).index(b"damaged"))
    with pytest.raises(RecordCorrupt):
        await engine.read_one("t", 2)
    assert [json.loads((await engine.read_one("t", seq)).body)["data"] for seq in (1, 3)] == ["before", "behind"]


async def test_a_coalesced_group_is_at_most_a_batch(machine: Machine) -> None:
    engine = await started(machine, max_batch_records=3)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for value in range(7):
        writers.add("t", value)
    assert [each.first_seq for each in await writers.all()] == list(range(1, 8))
    assert counts == [3, 3, 1]


async def test_more_writes_than_a_batch_allows_form_several_groups(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    await engine.append("t", sized(10))
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for value in range(MAX_COALESCED + 2):
        writers.add("t", value)
    outcomes = await writers.all()
    assert [each.first_seq for each in outcomes] == list(range(2, MAX_COALESCED + 4))
    assert counts == [MAX_COALESCED, 2]


async def test_coalesced_writes_within_the_cap_are_accepted_one_by_one(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=3, discard=Discard.REJECT))
    writers = CoalescedWriters(engine)
    for value in range(5):
        writers.add("t", value)
    outcomes = await writers.all()
    assert [each if each == CoalescedWriters.LEFT else each.first_seq for each in outcomes] == [
        1,
        2,
        3,
        CoalescedWriters.LEFT,
        CoalescedWriters.LEFT,
    ]
    assert await data(engine, "t") == [0, 1, 2]


async def test_an_eviction_for_a_coalesced_write_is_in_the_same_submission(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=3))
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for value in range(5):
        writers.add("t", value)
    outcomes = await writers.all()
    assert [each.first_seq for each in outcomes] == [1, 2, 3, 4, 5]
    assert counts == [5]  # one unit: what is removed and what is added, all or nothing
    assert await data(engine, "t") == [2, 3, 4]
    assert await data(await machine.kill(), "t") == [2, 3, 4]


async def test_a_refused_write_does_not_fail_the_coalesced_writes_around(machine: Machine) -> None:
    engine = await started(machine, max_record_bytes=1000)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    writers.add("t", 1)
    writers.add("t", "x" * 2000)
    writers.add("t", 2)
    outcomes = await writers.all()
    assert [each if each == CoalescedWriters.LEFT else each.first_seq for each in outcomes] == [
        1,
        CoalescedWriters.LEFT,
        2,
    ]
    assert await data(engine, "t") == [1, 2]


@pytest.mark.parametrize("name", ["none", "not a name", "e"])
async def test_writes_that_cannot_be_coalesced_are_left_without_effect(machine: Machine, name: str) -> None:
    engine = await started(machine)
    await engine.put_topic("e", TopicConfig(durability=Durability.EPHEMERAL))
    writers = CoalescedWriters(engine)
    writers.add(name, 1)
    writers.add(name, 2)
    assert await writers.all() == [CoalescedWriters.LEFT] * 2
    assert engine.state("e").head_seq == 0
    assert [state.topic for state in engine.topics()] == ["e", "lead"]


async def test_coalesced_writes_are_left_when_the_engine_closes(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    writers.add("t", 1)
    closing = asyncio.ensure_future(engine.close())
    outcomes = await writers.all()
    await closing
    again = await machine.restart()
    if outcomes == [CoalescedWriters.LEFT]:
        assert await data(again, "t") == []
    else:
        assert [each.first_seq for each in outcomes] == [1]
        assert await data(again, "t") == [1]
    with pytest.raises(ShuttingDown):
        engine.try_append_coalesced("t", raw(1), lambda _: None, lambda: None)


async def test_a_failed_sync_fails_all_coalesced_writes_and_stops_the_shard(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    machine.disk.fail("datasync", "*/wal-*", nth=2, errno=errno.EIO)
    writers = CoalescedWriters(engine)
    for value in range(3):
        writers.add("t", value)
    outcomes = await writers.all()
    assert [type(each) for each in outcomes] == [StorageFailed] * 3
    log = log_of(engine, "t")
    assert (log.assigned_head, log.head, log.assigned_bytes) == (0, 0, 0), "their seqs are taken back"


async def test_a_defect_fails_all_coalesced_writes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> Appended:
        raise RuntimeError("a defect")

    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    monkeypatch.setattr("storage.log.append.encoded", broken)
    for value in range(3):
        writers.add("t", value)
    outcomes = await writers.all()
    assert [str(each) for each in outcomes] == ["a defect"] * 3


async def test_writes_of_the_next_loop_turn_form_another_submission(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    writers = CoalescedWriters(engine)
    counts = submissions(engine)
    for _ in range(3):
        writers.add("t", 1)
        writers.add("t", 2)
        await writers.all()
        writers.lead()
    assert [each.first_seq for each in await writers.all()] == list(range(1, 7))
    assert counts == [2, 1, 2, 1, 2, 1]


async def test_a_single_write_is_submitted_at_once(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("t", FSYNC)
    counts = submissions(engine)
    outcomes: list[Any] = []
    assert engine.try_append_coalesced("t", raw(1), outcomes.append, lambda: outcomes.append(CoalescedWriters.LEFT))
    assert counts == [1], "on its way before the loop has turned"
    assert not engine.try_append_coalesced(
        "none", raw(1), outcomes.append, lambda: outcomes.append(CoalescedWriters.LEFT)
    )
    assert outcomes == []
    while not outcomes:
        await asyncio.sleep(0)
    assert [each.first_seq for each in outcomes] == [1]


async def test_jobs_of_coalesced_writes_are_claimable(machine: Machine) -> None:
    engine = await started(machine)
    await engine.put_topic("q", TopicConfig(type=TopicType.QUEUE, durability=Durability.FSYNC))
    writers = CoalescedWriters(engine)
    for value in range(3):
        writers.add("q", value)
    await writers.all()
    claimed = await engine.queues.claim("q", "w", max=5)
    assert [each.record.seq for each in claimed.jobs] == [1, 2, 3]
