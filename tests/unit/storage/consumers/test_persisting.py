"""Cursors after a crash, a clean stop, and a second without reads."""

from __future__ import annotations

import asyncio

import pytest

from storage.errors import StorageFailed
from storage.state.consumers.values import ConsumerConfig
from tests.unit.storage.consumers.consumed import STRICT, add, consumed, cursor, durable, every, known, take, turns
from tests.unit.storage.machine import WAL, Machine, outcome


@pytest.mark.parametrize("persist_every", [1, 2, 3, 7])
@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_crash_repeats_at_most_persist_every_records_and_skips_none(
    machine: Machine, persist_every: int, limit: int
) -> None:
    engine = await consumed(machine, 40, every(persist_every))
    got: list[int] = []
    for _ in range(4):
        for _ in range(3):
            got += await take(engine, limit)
        await turns()
        engine = await machine.cut_power()
        again = got[-1] - cursor(engine)
        assert 0 <= again <= persist_every
        got = got[: len(got) - again]
    assert got == list(range(1, len(got) + 1))


async def test_the_cursor_of_a_silent_reader_is_written_after_a_second(machine: Machine) -> None:
    engine = await consumed(machine, 10)
    await take(engine, 3)
    await machine.clock.advance(900)
    assert durable(engine) == 0
    await machine.clock.advance(600)
    assert durable(engine) == 3
    engine = await machine.cut_power()
    assert await take(engine, 1) == [4]


async def test_the_cursor_of_an_active_reader_is_not_written_for_silence(machine: Machine) -> None:
    engine = await consumed(machine, 100)
    for _ in range(8):
        await take(engine, 1)
        await machine.clock.advance(500)
    assert durable(engine) == 0


async def test_the_cursor_of_a_silent_reader_is_written_once(machine: Machine) -> None:
    engine = await consumed(machine, 10)
    await take(engine, 3)
    await machine.clock.advance(10_000)
    assert engine.consumers.counters.persisted == 1


@pytest.mark.parametrize("config", [None, STRICT])
async def test_a_clean_stop_makes_cursors_durable(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 10, config)
    await take(engine, 3)
    await add(engine, 2, node="me")
    await take(engine, 100, nodes=frozenset([b"me"]))
    assert cursor(engine) == 12
    engine = await machine.restart()
    assert (cursor(engine), durable(engine)) == (12, 12)


async def test_a_clean_stop_waits_for_the_cursor_frame_in_flight(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(4))
    await take(engine, 4)
    reading = asyncio.ensure_future(take(engine, 4))
    await asyncio.sleep(0)
    engine_stops = asyncio.ensure_future(machine.close())
    await engine_stops
    await asyncio.wait([reading])
    engine = await machine.start()
    assert cursor(engine) in (4, 8)
    assert cursor(engine) == (8 if not reading.exception() else 4)


async def test_consumers_survive_a_change_of_the_shard_count(machine: Machine) -> None:
    engine = await consumed(machine, 10, STRICT)
    await engine.consumers.put("a", "d", every(5), start=2)
    await take(engine, 4)
    before = engine.consumers.list("a")
    for shards in (3, 2, 1):
        engine = await machine.restart(wal_shards=shards)
        assert engine.consumers.list("a") == before
    engine = await machine.kill(wal_shards=4)
    assert engine.consumers.list("a") == before
    assert await take(engine, 2) == [5, 6]


async def test_replayed_frames_and_snapshots_restore_the_same_consumers(machine: Machine) -> None:
    engine = await consumed(machine, 10, every(2))
    await take(engine, 2)
    await take(engine, 1)
    await turns()
    await engine.snapshotter.take()
    await engine.consumers.commit("a", "c", 5)
    await engine.consumers.put("a", "d", STRICT, start=1)
    await engine.snapshotter.take()
    engine = await machine.cut_power()
    found = [(each.consumer, each.config, each.cursor_seq) for each in engine.consumers.list("a")]
    assert found == [("c", every(2), 5), ("d", STRICT, 1)]


async def test_a_snapshot_holds_the_durable_cursor(machine: Machine) -> None:
    engine = await consumed(machine, 10)
    await take(engine, 3)
    await engine.snapshotter.take()
    engine = await machine.kill()
    assert cursor(engine) == 0


async def test_reclaim_is_notified_when_the_lowest_durable_cursor_advances(machine: Machine) -> None:
    engine = await consumed(machine, 10, STRICT)
    await engine.consumers.put("a", "d", STRICT)
    told: list[int | None] = []
    engine.catalog.on_consumed = lambda log: told.append(log.consumers.lowest_durable())
    await take(engine, 4)
    assert told == []
    await take(engine, 2, name="d")
    await engine.consumers.commit("a", "d", 9)
    await engine.consumers.seek("a", "d", seq=1)
    await engine.consumers.delete("a", "d")
    await engine.consumers.delete("a", "c")
    assert told == [2, 4, 4, None]


async def test_reads_after_a_failed_sync_are_limited_to_persist_every_records(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(4))
    await take(engine, 2)
    machine.disk.fail("datasync", f"{WAL}/*", sticky=True)
    got = [await outcome(take(engine, 2)) for _ in range(3)]
    assert got[0] == [3, 4]
    assert [type(each) for each in got[1:]] == [StorageFailed, StorageFailed]
    with pytest.raises(StorageFailed):
        await engine.consumers.commit("a", "c", 0)
    with pytest.raises(StorageFailed):
        await engine.consumers.seek("a", "c", seq=0)
    assert await take(engine, 1, checkpoint=False) == [5]


async def test_losses_of_a_log_are_written_before_a_cursor(machine: Machine) -> None:
    engine = await consumed(machine, 4, every(1))
    log = engine.catalog.topics["a"].log
    engine.pending_losses[log.topic_id] = [(5, 6, "crash")]
    log.evict(loss=[(5, 6, "crash")])
    await take(engine, 1)
    await take(engine, 1)
    assert engine.pending_losses == {}
    assert known(engine).durable_seq == 1
    engine = await machine.kill()
    assert engine.state("a").head_seq == 6
