"""Commits of one group raise a log's floor once, after the last of them; no state in between is visible."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage import Appended, Durability, Engine, PlainRecords, TopicConfig, TopicType
from storage.format import control
from storage.log import encode_controls
from storage.state.log import Log
from tests.unit.storage.machine import Machine, log_of, record, records, seqs

CAP, WRITERS, EACH = 30, 20, 4
DATAS = [record(0).data] * EACH


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The live floor after each time that a log's floors were raised."""
    floors: list[int] = []
    evict = Log.evict

    def counted(log: Log, *rest: Any) -> int:
        gone = evict(log, *rest)
        floors.append(log.marks.live_floor)
        return gone

    monkeypatch.setattr(Log, "evict", counted)
    return floors


async def full(machine: Machine, *, in_segments: bool, kind: TopicType = TopicType.LOG) -> Engine:
    """A topic at its cap of CAP records."""
    engine = await machine.start()
    config = TopicConfig(type=kind, cap_records=CAP, durability=Durability.DISK)
    await engine.append("t", records(CAP), config=config)
    if in_segments:
        await engine.segment_worker.flush_all()
    return engine


async def all_at_once(engine: Engine, told: list[Any]) -> None:
    """WRITERS writes of EACH records, in one group."""
    for _ in range(WRITERS):
        assert engine.try_append("t", PlainRecords(DATAS), told.append)
    async with asyncio.timeout(5):
        while len(told) < WRITERS:
            await asyncio.sleep(0)


@pytest.mark.parametrize("in_segments", [False, True])
async def test_a_group_raises_the_floor_once(machine: Machine, raised: list[int], in_segments: bool) -> None:
    engine = await full(machine, in_segments=in_segments)
    told: list[Any] = []
    await all_at_once(engine, told)
    assert raised == [WRITERS * EACH + 1]
    log = log_of(engine, "t")
    assert (log.count, log.assigned_count, log.marks.live_floor) == (CAP, CAP, WRITERS * EACH + 1)
    assert (log.bytes, log.assigned_bytes, log.assigned_floor) == (CAP, CAP, log.marks.live_floor)
    assert engine.catalog.usage.traffic.evicted == {"cap": WRITERS * EACH}
    assert await seqs(engine, "t", from_seq=WRITERS * EACH) == [*range(WRITERS * EACH + 1, CAP + WRITERS * EACH + 1)]


async def test_listeners_and_woken_readers_never_see_more_than_the_cap(machine: Machine) -> None:
    engine = await full(machine, in_segments=False)
    topic_id = log_of(engine, "t").topic_id
    seen: list[int] = []

    def look(_: Appended | Exception | None = None) -> None:
        seen.append(engine.state("t").count)

    engine.publisher.listeners[topic_id] = look
    for _ in range(WRITERS):
        assert engine.try_append("t", PlainRecords(DATAS), look)
    async with asyncio.timeout(5):
        while len(seen) < WRITERS + 1:
            await asyncio.sleep(0)
    assert seen == [CAP] * (WRITERS + 1)


async def test_evicted_jobs_are_counted_as_lost(machine: Machine) -> None:
    engine = await full(machine, in_segments=False, kind=TopicType.QUEUE)
    await all_at_once(engine, [])
    queue = log_of(engine, "t").queue
    assert queue is not None
    assert queue.lost == WRITERS * EACH


async def test_a_deletion_between_two_writes_finds_the_floor_of_the_first_write(
    machine: Machine, raised: list[int]
) -> None:
    """Seqs 1 to 4 go with the first write, 5 and 6 with the deletion of 4 to 6, 7 and 8 with the second write, which
    was planned when 5 to 8 existed."""
    engine = await full(machine, in_segments=False)
    log = log_of(engine, "t")
    told: list[Any] = []
    assert engine.try_append("t", PlainRecords(DATAS), told.append)
    delete = encode_controls([control.Delete(bound_head=CAP, seqs=[4, 5, 6])], log.topic_id, engine.now_ms())
    deleting = engine.submit_controls(log, delete)
    assert engine.try_append("t", PlainRecords(DATAS), told.append)
    async with asyncio.timeout(5):
        assert await deleting == 2
        while len(told) < 2:
            await asyncio.sleep(0)
    assert raised == [5, 9]
    traffic = engine.catalog.usage.traffic
    assert (traffic.evicted, traffic.deleted) == ({"cap": 6}, 2)
    assert log.count == log.assigned_count == len(await seqs(engine, "t", from_seq=8)) == CAP


@pytest.mark.parametrize("crash", ["kill", "cut_power"])
async def test_the_cap_holds_after_a_crash(machine: Machine, crash: str) -> None:
    engine = await full(machine, in_segments=True)
    await all_at_once(engine, [])
    engine = await (machine.kill() if crash == "kill" else machine.cut_power())
    assert engine.state("t").count <= CAP
    if crash == "kill":
        assert engine.state("t").earliest_seq == WRITERS * EACH + 1
