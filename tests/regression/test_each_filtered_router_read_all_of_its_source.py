"""Twenty filtered routers of one source read and matched every record twenty times. They copied 35,000 records a second
while twice as many were written, and fell behind without notice."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.routers import routers as module
from storage.routers import windows as windows_module
from storage.routers.copies import FrameCopies, copies_of
from storage.routers.forwarder import Forwarder
from storage.state.routers.router import Definition
from tests.unit.storage.machine import Machine, record
from tests.unit.storage.queues.jobs import turns

ROUTERS = 20


async def routed(machine: Machine, **options: int) -> Engine:
    engine = await machine.start(**options)
    await engine.put_topic("s", TopicConfig(durability=Durability.FSYNC))
    for number in range(ROUTERS):
        definition = Definition(source="s", dest=f"d{number}", filter=["tag", "Eq", f"t{number}"])
        await engine.routers.put(f"r{number}", definition)
    return engine


async def write(engine: Engine, count: int) -> None:
    await engine.append("s", [record(number, tag=f"t{number % ROUTERS}") for number in range(count)])


async def caught_up(engine: Engine) -> None:
    for _ in range(200):
        await turns()
        if not any(engine.routers.state(f"r{number}").lag for number in range(ROUTERS)):
            return
    raise AssertionError("they do not come up with the source")


async def tags_at(engine: Engine, name: str) -> list[tuple[bytes, int]]:
    result = await engine.read(name, ReadQuery(limit=10_000))
    return [(each.tag, each.value) for each in result.records]


async def test_filtered_routers_of_a_source_share_its_reads(machine: Machine) -> None:
    engine = await routed(machine)
    for _ in range(10):
        await write(engine, 100)
        await caught_up(engine)
    assert engine.routers.windows.reads == 10
    for number in range(ROUTERS):
        wanted = [(f"t{number}".encode(), value) for value in range(100) if value % ROUTERS == number] * 10
        assert await tags_at(engine, f"d{number}") == wanted


async def test_matches_of_a_router_from_many_batches_are_copied_together(machine: Machine) -> None:
    """It was one piece a batch for each router, which was most of the cost of a copy."""
    engine = await routed(machine)
    for _ in range(5):
        await write(engine, 100)
    await caught_up(engine)
    engine.routers.windows.forget()
    definition = Definition(source="s", dest="d1", filter=["tag", "Eq", "t1"])
    query = ReadQuery(from_seq=0, tag=definition.match, routing=True)
    found = (await engine.routers.windows.read(engine.topic("s"), query)).records
    assert [each.value for each in found] == [1, 21, 41, 61, 81] * 5
    copies = copies_of(found, {}, definition, delays=False, keep_delays=False)
    assert isinstance(copies, FrameCopies)
    assert len(copies._frames) == 1
    assert [each.seq for each in found] == [*copies.seqs]


async def test_the_next_window_is_read_ahead(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_module, "WINDOW_RECORDS", 100)
    engine = await routed(machine)
    windows, source = engine.routers.windows, engine.topic("s")
    for _ in range(3):
        await write(engine, 100)
    await caught_up(engine)
    windows.forget()
    before = windows.reads
    query = ReadQuery(
        from_seq=0, tag=Definition(source="s", dest="d", filter=["tag", "Glob", "t*"]).match, routing=True
    )
    assert (await windows.read(source, query)).next_from_seq == 100
    await turns()
    assert windows.reads - before == 2
    for from_seq in (0, 100, 200):  # nothing follows the last one
        query = msgspec.structs.replace(query, from_seq=from_seq)
        assert (await windows.read(source, query)).next_from_seq == from_seq + 100
        await turns()
    assert windows.reads - before == 3


async def test_records_deleted_after_the_window_was_read_are_not_copied(machine: Machine) -> None:
    engine = await routed(machine)
    windows, source = engine.routers.windows, engine.topic("s")
    await write(engine, 100)
    await caught_up(engine)
    query = ReadQuery(from_seq=0, tag=Definition(source="s", dest="d1", filter=["tag", "Eq", "t1"]).match, routing=True)
    before = (await windows.read(source, query)).records
    assert [each.seq for each in before] == [2, 22, 42, 62, 82]
    await engine.delete_records("s", 30)
    assert [each.seq for each in (await windows.read(source, query)).records] == [42, 62, 82]


async def test_a_router_that_starts_at_the_earliest_record_copies_all_matches(machine: Machine) -> None:
    engine = await routed(machine)
    await write(engine, 200)
    await caught_up(engine)
    prefix = Definition.from_map({"source": "s", "dest": "late", "filter": ["tag", "Glob", "t1*"], "from": "earliest"})
    await engine.routers.put("late", prefix)
    await write(engine, 200)
    for _ in range(20):
        await turns()
    assert engine.routers.state("late").lag == 0
    wanted = [value for value in range(200) if str(value % ROUTERS).startswith("1")] * 2
    assert [value for _, value in await tags_at(engine, "late")] == wanted


async def test_reads_with_a_limit_within_a_window_return_every_match(machine: Machine) -> None:
    engine = await routed(machine)
    await write(engine, 100)
    await caught_up(engine)
    match = Definition(source="s", dest="d", filter=["tag", "Glob", "t*"]).match
    found: list[int] = []
    at = 0
    while at < 100:
        query = ReadQuery(from_seq=at, limit=7, max_bytes=100, tag=match, routing=True)
        result = await engine.routers.windows.read(engine.topic("s"), query)
        assert 1 <= len(result.records) <= 7
        found += [each.seq for each in result.records]
        at = result.next_from_seq
    assert found == [*range(1, 101)]


async def test_filtered_routers_resume_after_a_power_cut(machine: Machine) -> None:
    engine = await routed(machine)
    await write(engine, 500)
    await turns(5)
    engine = await machine.cut_power()
    await caught_up(engine)
    for number in range(ROUTERS):
        values = [value for _, value in await tags_at(engine, f"d{number}")]
        assert values == [value for value in range(500) if value % ROUTERS == number]


async def test_a_router_whose_lag_keeps_growing_is_logged_by_name(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEHIND_BY", 10)
    monkeypatch.setattr(Forwarder, "_step", _get_nowhere)
    engine = await routed(machine)
    with capture_logs() as logged:
        for _ in range(4):
            await write(engine, 100)
            await machine.clock.advance(61_000)
            await turns()
    named = [each["lag"] for each in logged if each["event"] == "router_behind" and each["router"] == "r3"]
    assert named == [200, 300, 400]


async def _get_nowhere(self: Forwarder) -> None:
    await asyncio.Event().wait()
