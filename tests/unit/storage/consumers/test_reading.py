"""Reads of a consumer: which records each read returns, and when a read waits."""

from __future__ import annotations

import asyncio

import pytest

from storage import Durability, ReadQuery, TopicConfig
from storage.errors import ConsumerNotFound, RecordCorrupt, ShuttingDown, StorageFull, TopicNotFound
from storage.records.values import TagMatch
from storage.state.consumers.values import ConsumerConfig
from tests.unit.storage.consumers.consumed import (
    FSYNC,
    STRICT,
    add,
    answer,
    consumed,
    cursor,
    durable,
    every,
    known,
    take,
    turns,
)
from tests.unit.storage.machine import WAL, Machine


@pytest.mark.parametrize("config", [None, STRICT])
async def test_a_read_continues_at_the_end_of_the_previous_read(
    machine: Machine, config: ConsumerConfig | None
) -> None:
    engine = await consumed(machine, 5, config)
    assert await take(engine, 2) == [1, 2]
    assert await take(engine, 2) == [3, 4]
    assert await take(engine, 2) == [5]
    assert await take(engine, 2) == []
    await add(engine)
    assert await take(engine, 2) == [6]


async def test_an_answer_has_the_cursor_and_the_number_of_unread_records(machine: Machine) -> None:
    engine = await consumed(machine, 9)
    found = await answer(engine, 4)
    assert (found.cursor_seq, found.unread, found.consumer, found.repeated) == (4, 5, "c", False)
    assert (found.result.next_from_seq, found.result.head_seq) == (4, 9)


async def test_unread_counts_live_records_in_segments_and_tail(machine: Machine) -> None:
    engine = await consumed(machine, 9, segment_max_events=4, checkpoint_records=1)
    await engine.segment_worker.flush_all()
    await add(engine, 3, tag="x")
    await take(engine, 2)
    await engine.delete_records("a", None, TagMatch(b"x"))
    await add(engine, 2)
    assert engine.consumers.state("a", "c").unread == 9
    await engine.delete_records("a", 6)
    assert engine.consumers.state("a", "c").unread == 6


@pytest.mark.parametrize("config", [None, STRICT])
async def test_a_peek_does_not_move_the_cursor(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    found = await answer(engine, 2, checkpoint=False)
    assert [each.seq for each in found.result.records] == [1, 2]
    assert (found.cursor_seq, found.unread, cursor(engine)) == (0, 5, 0)
    assert await take(engine, 2) == [1, 2]


async def test_a_peek_is_served_while_a_read_holds_the_lock(machine: Machine) -> None:
    engine = await consumed(machine, 5)
    await take(engine, 1)
    lock = known(engine).cursor_writer.lock
    async with lock:
        waiting = asyncio.ensure_future(take(engine, 1))
        await turns()
        assert not waiting.done()
        assert await take(engine, 1, checkpoint=False) == [2]
    assert await waiting == [2]


@pytest.mark.parametrize("config", [every(3), STRICT])
async def test_concurrent_reads_of_a_consumer_get_disjoint_records_in_order(
    machine: Machine, config: ConsumerConfig
) -> None:
    engine = await consumed(machine, 10, config)
    answers = await asyncio.gather(*(take(engine, 2) for _ in range(6)))
    assert answers == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], []]


async def test_a_strict_read_syncs_the_cursor_before_returning_records(machine: Machine) -> None:
    engine = await consumed(machine, 5, STRICT)
    assert await take(engine, 2) == [1, 2]
    engine = await machine.cut_power()
    assert await take(engine) == [3, 4, 5]


async def test_an_at_least_once_read_writes_no_cursor_within_persist_every(machine: Machine) -> None:
    engine = await consumed(machine, 10, every(10))
    for _ in range(4):
        await take(engine, 1)
    await turns()
    assert (cursor(engine), durable(engine), engine.consumers.counters.persisted) == (4, 0, 0)


async def test_confirmed_reads_are_written_in_the_background_from_half_of_persist_every(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(10))
    await take(engine, 5)
    await turns()
    assert durable(engine) == 0, "nobody knows yet whether that answer has come"
    await take(engine, 1)
    await turns()
    assert (durable(engine), cursor(engine), engine.consumers.counters.waits) == (5, 6, 0)


async def test_a_read_waits_for_a_cursor_write_only_beyond_persist_every(machine: Machine) -> None:
    engine = await consumed(machine, 40, every(10))
    await take(engine, 4)
    await take(engine, 6)
    assert (durable(engine), engine.consumers.counters.waits) == (0, 0)
    assert await take(engine, 6) == [11, 12, 13, 14, 15, 16]
    assert (durable(engine), engine.consumers.counters.waits) == (10, 1)


async def test_a_read_returns_at_most_persist_every_records(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(3))
    assert await take(engine, 10) == [1, 2, 3]
    assert await take(engine, 10) == [4, 5, 6]
    assert durable(engine) == 3


async def test_single_reads_at_the_tail_keep_at_most_persist_every_unpersisted(machine: Machine) -> None:
    engine = await consumed(machine, 0, every(4))
    for seq in range(1, 30):
        await add(engine)
        assert await take(engine) == [seq]
        assert cursor(engine) - durable(engine) <= 4
    assert engine.consumers.counters.persisted >= 7


async def test_records_of_the_own_node_are_skipped_and_the_cursor_advances(machine: Machine) -> None:
    engine = await consumed(machine, 0, every(2))
    await add(engine, 30, node="me")
    await add(engine, 1, node="you")
    assert await take(engine, 10, nodes=frozenset([b"me"])) == [31]
    assert cursor(engine) == 31


async def test_a_waiting_read_returns_when_a_record_is_appended(machine: Machine) -> None:
    engine = await consumed(machine, 1)
    await take(engine)
    waiting = asyncio.ensure_future(take(engine, wait_ms=60_000))
    await turns()
    assert not waiting.done()
    assert await take(engine) == [], "who does not wait is answered meanwhile"
    await add(engine)
    assert await waiting == [2]


async def test_each_record_goes_to_a_single_waiting_read(machine: Machine) -> None:
    engine = await consumed(machine, 0, STRICT)
    waiting = [asyncio.ensure_future(take(engine, 1, wait_ms=60_000)) for _ in range(3)]
    await turns()
    await add(engine, 2)
    await turns()
    assert [each.result() for each in waiting[:2]] == [[1], [2]]
    assert not waiting[2].done()
    await add(engine)
    assert await waiting[2] == [3]


async def test_a_waiting_read_without_records_returns_empty_at_its_timeout(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    assert await take(engine, wait_ms=5) == []
    assert await take(engine, wait_ms=5, checkpoint=False) == []


async def test_waiting_reads_fail_when_the_consumer_is_deleted_or_the_engine_stops(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    await engine.consumers.put("a", "d")
    await engine.consumers.put("a", "e")
    waiting = {
        name: asyncio.ensure_future(take(engine, name=name, wait_ms=60_000, checkpoint=name != "e")) for name in "cde"
    }
    await turns()
    await engine.consumers.delete("a", "c")
    with pytest.raises(ConsumerNotFound):
        await waiting["c"]
    assert not waiting["d"].done()
    engine.begin_shutdown()
    with pytest.raises(ShuttingDown):
        await waiting["d"]
    with pytest.raises(ShuttingDown):
        await waiting["e"]


async def test_a_waiting_read_fails_when_the_topic_is_deleted(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    waiting = asyncio.ensure_future(take(engine, wait_ms=60_000))
    await turns()
    await engine.delete_topic("a")
    with pytest.raises(TopicNotFound):
        await waiting


async def test_a_loss_is_reported_once(machine: Machine) -> None:
    engine = await consumed(machine, 5, topic=FSYNC)
    await take(engine, 1)
    await engine.put_topic("a", TopicConfig(durability=Durability.FSYNC, cap_records=2))
    found = await answer(engine)
    assert found.result.tombstone is not None
    assert (found.result.tombstone.gap_from, found.result.tombstone.gap_to) == (2, 3)
    assert [each.seq for each in found.result.records] == [4, 5]
    assert (await answer(engine)).result.tombstone is None


async def test_a_damaged_record_stops_the_cursor_until_skipped(machine: Machine) -> None:
    engine = await consumed(machine, 6, topic=FSYNC, segment_max_events=3, checkpoint_records=1)
    await engine.segment_worker.flush_all()
    path = next(path for path in machine.disk.content() if path.endswith("-00000000000000000001.data"))
    machine.disk.flip_byte(path, 40)
    with pytest.raises(RecordCorrupt):
        await take(engine)
    assert cursor(engine) == 0
    found = await engine.consumers.read("a", "c", ReadQuery(skip_corrupt=True))
    assert (found.result.corrupt_seqs, found.cursor_seq) == ([1], 6)


async def test_a_cancelled_waiting_read_takes_no_record(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    waiting = asyncio.ensure_future(take(engine, wait_ms=60_000))
    await turns()
    waiting.cancel()
    await add(engine, 2)
    assert await take(engine) == [1, 2]


@pytest.mark.parametrize("when", range(1, 12))
async def test_a_cancelled_strict_read_does_not_break_the_order_of_the_next_read(machine: Machine, when: int) -> None:
    engine = await consumed(machine, 6, STRICT)
    leaving = asyncio.ensure_future(take(engine, 2, attempt_key="k"))
    behind = asyncio.ensure_future(take(engine, 2))
    await turns(when)
    leaving.cancel()
    [lost] = await asyncio.gather(leaving, return_exceptions=True)
    next_one = await behind
    again = await take(engine, 2, attempt_key="k")
    assert sorted(next_one + again) == [1, 2, 3, 4], "what was taken for somebody who left is kept for a repeat"
    if not isinstance(lost, asyncio.CancelledError):
        assert (lost, next_one) == ([1, 2], [3, 4])


@pytest.mark.parametrize("config", [every(1), STRICT])
async def test_a_read_fails_when_its_cursor_cannot_be_written(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 6, config)
    await take(engine, 1)
    await turns()
    machine.disk.fail("*write*", f"{WAL}/*", errno=28, times=50)
    seq = cursor(engine)
    for _ in range(2):
        try:
            await take(engine, 1)
        except StorageFull:
            break
        seq = cursor(engine)
    assert cursor(engine) == seq
    machine.disk.clear_faults()
    await machine.clock.advance(2000)
    assert await take(engine, 1) == [seq + 1]
