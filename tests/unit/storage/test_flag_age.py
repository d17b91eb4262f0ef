"""Deletions wait to be flagged in a segment's files together (Options.flag_age_ms)."""

from __future__ import annotations

from storage.engine import Engine
from storage.records.values import ReadQuery, TagMatch
from tests.unit.storage.machine import Machine, record, records


async def begin(machine: Machine) -> Engine:
    """Ten records in a sealed segment, the odd ones tagged, and one after them."""
    engine = await machine.start(segment_max_events=10, flag_age_ms=10_000)
    await engine.append("t", [record(seq, tag="odd" if seq % 2 else "even") for seq in range(1, 11)])
    await engine.append("t", records(1))
    await engine.segment_worker.flush_all()
    assert engine.flusher.sealed == 1
    return engine


async def test_deletions_are_flagged_after_flag_age_ms() -> None:
    async with Machine() as machine:
        engine = await begin(machine)
        await engine.delete_records("t", match=TagMatch(b"odd"))
        await engine.segment_worker.tick()
        await machine.clock.advance(9_999)
        await engine.segment_worker.tick()
        assert engine.housekeeping.flagged == 0
        await machine.clock.advance(1)
        await engine.segment_worker.tick()
        assert engine.housekeeping.flagged == 5


async def test_a_segment_deleted_as_a_whole_is_removed_without_flagging() -> None:
    async with Machine() as machine:
        engine = await begin(machine)
        await engine.delete_records("t", match=TagMatch(b"odd"))
        await engine.segment_worker.tick()
        await engine.delete_records("t", match=TagMatch(b"even"))
        await engine.segment_worker.tick()
        assert (engine.housekeeping.flagged, engine.housekeeping.dropped) == (0, 1)


async def test_deletions_not_yet_flagged_are_already_effective() -> None:
    async with Machine() as machine:
        engine = await begin(machine)
        await engine.delete_records("t", match=TagMatch(b"odd"))
        await engine.segment_worker.tick()
        for _ in range(3):
            assert [each.seq for each in (await engine.read("t", ReadQuery())).records] == [2, 4, 6, 8, 10, 11]
            engine = await machine.kill(segment_max_events=10, flag_age_ms=10_000)
