"""retention "consumed": a sealed segment is deleted when every consumer's durable cursor has passed it, never
before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from storage import Discard, Durability, Engine, ReadQuery, TopicConfig
from storage.consumers import reclaim
from storage.errors import RecordNotFound, StorageFull
from storage.format.control import EvictWatermark
from storage.log.encode import EncodedUnit
from storage.log.submission import ControlStep
from storage.state.consumers.progress import reclaimable_floor
from storage.state.consumers.values import Consistency, ConsumerConfig
from storage.state.log import Log
from tests.support.sim_disk import Loss
from tests.unit.storage.consumers.reclaimed import (
    CONSUMED,
    SEGMENTS,
    care,
    consumed,
    files,
    fill,
    filled,
    floors,
    turns,
)
from tests.unit.storage.machine import Machine, log_of, outcome, record, records, seqs, sized
from tests.unit.storage.routers.routed import everything, route


def intercept(
    engine: Engine, floor: Callable[[Callable[[], asyncio.Future[int | None]]], asyncio.Future[int | None]]
) -> None:
    """From now on `floor` decides whether and when a floor is written. It gets the function that writes it."""
    submit = engine.submit_controls

    def decide(log: Log, encoded: EncodedUnit, **more: Any) -> asyncio.Future[int | None]:
        step = encoded.unit.steps[0]
        if isinstance(step, ControlStep) and isinstance(step.value, EvictWatermark):
            return floor(lambda: submit(log, encoded, **more))
        return submit(log, encoded, **more)

    engine.logs.submit_controls = decide


async def test_segments_behind_the_slowest_consumer_are_deleted_one_by_one(machine: Machine) -> None:
    engine = await filled(machine, 12, CONSUMED, "fast", "slow")
    await engine.consumers.commit("t", "fast", 12)
    await care(engine)
    assert (files(machine), floors(engine)) == ([1, 5, 9], {})
    for done, left, floor in ((3, [1, 5, 9], None), (4, [5, 9], 5), (7, [5, 9], 5), (12, [], 13)):
        await engine.consumers.commit("t", "slow", done)
        await care(engine)
        assert files(machine) == files(machine, ".idx") == left
        assert floors(engine) == ({"consumed": floor} if floor else {})
    state = engine.state("t")
    assert (state.count, state.bytes, state.earliest_seq, state.evict_floor, state.head_seq) == (0, 0, 13, 1, 12)
    assert engine.reclaim.records == 12


async def test_reclaimed_records_leave_no_tombstone(machine: Machine) -> None:
    engine = await filled(machine, 10, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 6)
    await care(engine)
    result = await engine.read("t", ReadQuery())
    assert result.tombstone is None
    assert [each.seq for each in result.records] == [5, 6, 7, 8, 9, 10]
    with pytest.raises(RecordNotFound) as gone:
        await engine.read_one("t", 2)
    assert gone.value.detail["reason"] == "deleted"


async def test_the_floor_is_durable_before_a_file_is_deleted(machine: Machine) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 8)
    await turns()
    assert floors(engine) == {"consumed": 9}
    assert files(machine) == [1, 5]
    engine = await machine.cut_power(Loss.DROP)
    assert await seqs(engine, "t") == []
    await care(engine)
    assert files(machine) == []


async def test_an_unpersisted_cursor_reclaims_no_segment(machine: Machine) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    await engine.consumers.read("t", "c")
    await care(engine)
    assert engine.consumers.state("t", "c").cursor_seq == 8
    assert files(machine) == [1, 5]
    await machine.clock.advance(2000)
    await care(engine)
    assert (engine.consumers.state("t", "c").durable_seq, files(machine)) == (8, [])


async def test_a_strict_read_reclaims_without_a_commit(machine: Machine) -> None:
    engine = await filled(machine, 8)
    await engine.consumers.put("t", "c", ConsumerConfig(consistency=Consistency.STRICTLY_AT_ONCE))
    await engine.consumers.read("t", "c", ReadQuery(limit=5))
    await care(engine)
    assert files(machine) == [5]


async def test_a_topic_without_consumers_reclaims_no_segment(machine: Machine) -> None:
    engine = await filled(machine, 8)
    await care(engine)
    assert files(machine) == [1, 5]
    await engine.consumers.put("t", "c")
    await engine.consumers.commit("t", "c", 4)
    await care(engine)
    assert files(machine) == [5]
    assert await engine.consumers.delete("t", "c")
    await fill(engine, 4)
    assert files(machine) == [5, 9]
    await machine.kill()
    await machine.clock.advance(5000)
    assert files(machine) == [5, 9]


async def test_deleting_the_slowest_consumer_reclaims_its_segments(machine: Machine) -> None:
    engine = await filled(machine, 12, CONSUMED, "fast", "slow")
    await engine.consumers.commit("t", "fast", 9)
    assert await engine.consumers.delete("t", "slow")
    await care(engine)
    assert files(machine) == [9]


async def test_a_later_consumer_starts_at_the_remaining_records(machine: Machine) -> None:
    engine = await filled(machine, 10, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 10)
    await care(engine)
    await engine.consumers.delete("t", "c")
    state, created = await engine.consumers.put("t", "later")
    assert (created, state.unread) == (True, 2)
    read = await engine.consumers.read("t", "later")
    assert ([each.seq for each in read.result.records], read.result.tombstone) == ([9, 10], None)


@pytest.mark.parametrize("to", [0, 3])
async def test_a_cursor_set_below_the_floor_moves_to_the_first_live_record(machine: Machine, to: int) -> None:
    engine = await filled(machine, 12, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 9)
    await care(engine)
    await engine.consumers.seek("t", "c", seq=to)
    read = await engine.consumers.read("t", "c")
    assert ([each.seq for each in read.result.records], read.result.tombstone) == ([9, 10, 11, 12], None)


async def test_a_cursor_moved_back_retains_the_remaining_segments(machine: Machine) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 3)
    await engine.consumers.seek("t", "c", seq=1)
    await fill(engine, 2)
    assert files(machine) == [1, 5, 9]


async def test_an_active_segment_consumed_early_is_reclaimed_when_sealed(machine: Machine) -> None:
    engine = await filled(machine, 3, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 3)
    await care(engine)
    assert (files(machine), floors(engine)) == ([1], {})
    await engine.append("t", records(1))
    await engine.consumers.commit("t", "c", 4)
    await engine.segment_worker.flush_all()
    assert files(machine) == []


async def test_an_idle_topic_reclaims_its_consumed_segment_by_age(machine: Machine) -> None:
    idle = {"segment_max_age_ms": 60_000, "checkpoint_interval_ms": 1000, "checkpoint_age_ms": 5000}
    engine = await filled(machine, 2, CONSUMED, "c", **idle, checkpoint_records=1000)
    await engine.append("t", records(1))
    await engine.consumers.commit("t", "c", 3)
    await machine.clock.advance(30_000)
    assert files(machine) == [1]
    assert log_of(engine, "t").wal_needed_from() is None
    await machine.clock.advance(45_000)
    assert files(machine) == []


async def test_switching_to_retention_consumed_reclaims_consumed_segments_at_once(machine: Machine) -> None:
    engine = await filled(machine, 8, TopicConfig(durability=Durability.FSYNC), "c")
    await engine.consumers.commit("t", "c", 6)
    await care(engine)
    assert files(machine) == [1, 5]
    await engine.put_topic("t", CONSUMED)
    await care(engine)
    assert files(machine) == [5]


async def test_switching_off_retention_consumed_reclaims_no_more_segments(machine: Machine) -> None:
    engine = await filled(machine, 12, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 4)
    await care(engine)
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    await engine.consumers.commit("t", "c", 12)
    await care(engine)
    assert files(machine) == [5, 9]
    engine = await machine.kill()
    await care(engine)
    assert files(machine) == [5, 9]
    assert await seqs(engine, "t") == [5, 6, 7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK])
async def test_a_start_reclaims_segments_consumed_before_the_crash(
    machine: Machine, durability: Durability, power: bool
) -> None:
    engine = await filled(machine, 8, consumed(durability=durability), "c")
    engine.catalog.on_consumed = None  # it dies before it looks
    await engine.consumers.commit("t", "c", 8)
    assert floors(engine) == {}
    engine = await (machine.cut_power(Loss.DROP) if power else machine.kill())
    await machine.clock.advance(3000)
    assert (floors(engine), files(machine)) == ({"consumed": 9}, [])


async def test_a_clean_restart_knows_the_floor(machine: Machine) -> None:
    engine = await filled(machine, 10, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 5)
    await care(engine)
    engine = await machine.restart()
    assert (floors(engine), await seqs(engine, "t")) == ({"consumed": 5}, [5, 6, 7, 8, 9, 10])
    await engine.consumers.commit("t", "c", 10)
    await engine.segment_worker.tick()
    assert files(machine) == [9]


async def test_segments_behind_cursors_written_by_a_clean_stop_are_reclaimed_by_the_next_start(
    machine: Machine,
) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    await engine.consumers.read("t", "c")
    engine = await machine.restart()
    assert (engine.report.frames, floors(engine), files(machine)) == (0, {}, [1, 5])
    await machine.clock.advance(3000)
    assert files(machine) == []


async def test_deletions_do_not_hold_a_segment(machine: Machine) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    await engine.delete_records("t", before_seq=3)
    await engine.consumers.commit("t", "c", 4)
    await care(engine)
    assert (files(machine), engine.reclaim.records) == ([5], 2)


async def test_reclaim_frees_space_on_a_full_disk(machine: Machine) -> None:
    engine = await filled(machine, 16, CONSUMED, "c")
    machine.disk.capacity_bytes = machine.disk.used_bytes
    for _ in range(6):
        refused = await outcome(engine.append("t", [sized(60_000)]))
    assert isinstance(refused, StorageFull)
    await engine.consumers.commit("t", "c", 16)
    await care(engine)
    assert (engine.shards[0].log.full, [each for each in files(machine) if each <= 13]) == (True, [])


async def test_a_failed_floor_write_is_repeated_later(machine: Machine) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    refusals = [StorageFull()]

    def refuse(write: Callable[[], asyncio.Future[int | None]]) -> asyncio.Future[int | None]:
        if not refusals:
            return write()
        done: asyncio.Future[int | None] = engine.loop.create_future()
        done.set_exception(refusals.pop())
        return done

    intercept(engine, refuse)
    await engine.consumers.commit("t", "c", 8)
    await turns()
    assert (engine.reclaim.failures, floors(engine)) == (1, {})
    await care(engine)
    assert files(machine) == []


async def test_commits_during_a_pending_floor_write_are_reclaimed_afterwards(machine: Machine) -> None:
    engine = await filled(machine, 12, CONSUMED, "c")
    held = [asyncio.Event()]

    def hold(write: Callable[[], asyncio.Future[int | None]]) -> asyncio.Future[int | None]:
        async def later(event: asyncio.Event) -> int | None:
            await event.wait()
            return await write()

        return asyncio.ensure_future(later(held.pop())) if held else write()

    release = held[0]
    intercept(engine, hold)
    await engine.consumers.commit("t", "c", 4)
    await turns()
    await engine.consumers.commit("t", "c", 12)
    await turns()
    assert floors(engine) == {}
    release.set()
    await turns()
    assert floors(engine) == {"consumed": 13}


async def test_a_topic_can_be_deleted_during_a_pending_floor_write(machine: Machine) -> None:
    engine = await filled(machine, 8, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 8)
    await engine.delete_topic("t")
    await care(engine)
    assert files(machine) == []
    await engine.put_topic("t", CONSUMED)
    await fill(engine, 4)
    assert await seqs(engine, "t") == [1, 2, 3, 4]


async def test_only_changed_topics_are_checked_for_reclaim(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await filled(machine, 8, CONSUMED, "c", checkpoint_records=1000)
    for number in range(20):
        await engine.put_topic(f"other-{number}", CONSUMED)
    await care(engine)
    looked: list[str] = []

    def look(config: TopicConfig, log: Log) -> int | None:
        looked.append(engine.catalog.by_id[log.topic_id].name)
        return reclaimable_floor(config, log)

    monkeypatch.setattr(reclaim, "reclaimable_floor", look)
    await engine.append("t", records(2))
    await engine.append("other-1", records(2))
    await care(engine)
    assert looked == []
    await engine.consumers.commit("t", "c", 8)
    await care(engine)
    assert set(looked) == {"t"}


async def test_consumed_segments_make_room_before_unread_segments(machine: Machine) -> None:
    engine = await filled(machine, 4, consumed(consumed_max_bytes=12), "c")
    await engine.consumers.commit("t", "c", 3)
    await engine.append("t", [sized(10)])  # 1 to 2 have to go, and all consumers have passed them
    assert (floors(engine), engine.state("t").bytes) == ({"consumed": 3}, 12)
    assert (await engine.read("t", ReadQuery())).tombstone is None
    await engine.append("t", [sized(10)])
    assert (floors(engine), await seqs(engine, "t", from_seq=5)) == ({"consumed": 3, "cap": 6}, [6])
    read = await engine.consumers.read("t", "c")
    told = read.result.tombstone
    assert told is not None
    assert (told.gap_from, told.gap_to, told.reason) == (4, 5, "cap")


async def test_consumed_max_bytes_set_with_retention_consumed_reclaims_without_a_tombstone(machine: Machine) -> None:
    engine = await filled(machine, 7, TopicConfig(durability=Durability.FSYNC), "c")
    await engine.consumers.commit("t", "c", 6)
    await engine.put_topic("t", consumed(consumed_max_bytes=2))
    assert (floors(engine), await seqs(engine, "t")) == ({"consumed": 6}, [6, 7])


async def test_reclaim_continues_after_a_change_of_the_shard_count(machine: Machine) -> None:
    engine = await filled(machine, 10, CONSUMED, "c")
    await engine.consumers.commit("t", "c", 5)
    await care(engine)
    engine = await machine.restart(wal_shards=3, **SEGMENTS)
    assert (floors(engine), await seqs(engine, "t")) == ({"consumed": 5}, [5, 6, 7, 8, 9, 10])
    await engine.consumers.commit("t", "c", 8)
    await care(engine)
    assert (files(machine), floors(engine)) == ([9], {"consumed": 9})


async def test_cold_segments_are_reclaimed(machine: Machine) -> None:
    engine = await filled(machine, 16, CONSUMED, "c", hot_retain_segments=1, cold_dir="/cold")
    await engine.relocator.work()
    assert files(machine, root="/cold") == [1, 5, 9]
    await engine.consumers.commit("t", "c", 8)
    await care(engine)
    await engine.relocator.work()
    assert (files(machine, root="/cold"), files(machine, ".idx")) == ([9], [9, 13])
    await engine.consumers.commit("t", "c", 16)
    await care(engine)
    await engine.relocator.work()
    assert (files(machine, root="/cold"), files(machine, ".idx")) == ([], [])


async def test_reclaimed_records_not_yet_copied_by_a_router_are_a_loss_at_its_destination(machine: Machine) -> None:
    engine = await filled(machine, 0, CONSUMED, "c")
    await engine.put_topic("full", TopicConfig(cap_records=2, discard=Discard.REJECT))
    await route(engine, source="t", dest="full")
    await engine.append("t", [record(number) for number in range(1, 7)])
    await engine.segment_worker.flush_all()
    assert await everything(engine, "full") == ["1", "2"]
    await engine.append("t", [record(7), record(8)])
    await engine.consumers.commit("t", "c", 6)
    await engine.segment_worker.flush_all()
    await engine.put_topic("full", TopicConfig())
    await machine.clock.advance(5000)
    one, two, lost, *others = await everything(engine, "full")
    assert (one, two, lost.reason, others) == ("1", "2", "source_trim", ["7", "8"])
