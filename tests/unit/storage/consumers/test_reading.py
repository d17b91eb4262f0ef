"""What reads of a consumer hand out, to whom, and what they wait for."""

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
async def test_reads_go_on_where_the_last_one_ended(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    assert await take(engine, 2) == [1, 2]
    assert await take(engine, 2) == [3, 4]
    assert await take(engine, 2) == [5]
    assert await take(engine, 2) == []
    await add(engine)
    assert await take(engine, 2) == [6]


async def test_an_answer_tells_where_the_cursor_stands_and_how_much_is_left(machine: Machine) -> None:
    engine = await consumed(machine, 9)
    found = await answer(engine, 4)
    assert (found.cursor_seq, found.unread, found.consumer, found.repeated) == (4, 5, "c", False)
    assert (found.result.next_from_seq, found.result.head_seq) == (4, 9)


async def test_unread_counts_live_records_wherever_they_are(machine: Machine) -> None:
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
async def test_a_peek_moves_nothing_and_waits_for_nobody(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    found = await answer(engine, 2, checkpoint=False)
    assert [each.seq for each in found.result.records] == [1, 2]
    assert (found.cursor_seq, found.unread, cursor(engine)) == (0, 5, 0)
    assert await take(engine, 2) == [1, 2]


async def test_a_peek_is_served_while_somebody_has_the_turn(machine: Machine) -> None:
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
async def test_readers_of_one_consumer_are_served_in_order_and_none_gets_what_another_has(
    machine: Machine, config: ConsumerConfig
) -> None:
    engine = await consumed(machine, 10, config)
    answers = await asyncio.gather(*(take(engine, 2) for _ in range(6)))
    assert answers == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], []]


async def test_strictly_at_once_the_cursor_is_synced_before_anything_is_handed_out(machine: Machine) -> None:
    engine = await consumed(machine, 5, STRICT)
    assert await take(engine, 2) == [1, 2]
    engine = await machine.cut_power()
    assert await take(engine) == [3, 4, 5]


async def test_at_least_once_nothing_is_written_while_there_is_room(machine: Machine) -> None:
    engine = await consumed(machine, 10, every(10))
    for _ in range(4):
        await take(engine, 1)
    await turns()
    assert (cursor(engine), durable(engine), engine.consumers.counters.persisted) == (4, 0, 0)


async def test_from_half_of_it_on_what_is_confirmed_is_written_with_nobody_waiting(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(10))
    await take(engine, 5)
    await turns()
    assert durable(engine) == 0, "nobody knows yet whether that answer has come"
    await take(engine, 1)
    await turns()
    assert (durable(engine), cursor(engine), engine.consumers.counters.waits) == (5, 6, 0)


async def test_an_answer_waits_only_where_more_than_that_would_be_unpersisted(machine: Machine) -> None:
    engine = await consumed(machine, 40, every(10))
    await take(engine, 4)
    await take(engine, 6)
    assert (durable(engine), engine.consumers.counters.waits) == (0, 0)
    assert await take(engine, 6) == [11, 12, 13, 14, 15, 16]
    assert (durable(engine), engine.consumers.counters.waits) == (10, 1)


async def test_one_read_hands_out_no_more_than_may_come_again(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(3))
    assert await take(engine, 10) == [1, 2, 3]
    assert await take(engine, 10) == [4, 5, 6]
    assert durable(engine) == 3


async def test_reading_one_by_one_at_the_tail_brings_no_more_again_than_it_may(machine: Machine) -> None:
    engine = await consumed(machine, 0, every(4))
    for seq in range(1, 30):
        await add(engine)
        assert await take(engine) == [seq]
        assert cursor(engine) - durable(engine) <= 4
    assert engine.consumers.counters.persisted >= 7


async def test_records_of_ones_own_are_passed_over_and_the_cursor_with_them(machine: Machine) -> None:
    engine = await consumed(machine, 0, every(2))
    await add(engine, 30, node="me")
    await add(engine, 1, node="you")
    assert await take(engine, 10, nodes=frozenset([b"me"])) == [31]
    assert cursor(engine) == 31


async def test_a_reader_that_finds_nothing_waits_until_there_is_something(machine: Machine) -> None:
    engine = await consumed(machine, 1)
    await take(engine)
    waiting = asyncio.ensure_future(take(engine, wait_ms=60_000))
    await turns()
    assert not waiting.done()
    assert await take(engine) == [], "who does not wait is answered meanwhile"
    await add(engine)
    assert await waiting == [2]


async def test_of_those_who_wait_each_record_goes_to_one(machine: Machine) -> None:
    engine = await consumed(machine, 0, STRICT)
    waiting = [asyncio.ensure_future(take(engine, 1, wait_ms=60_000)) for _ in range(3)]
    await turns()
    await add(engine, 2)
    await turns()
    assert [each.result() for each in waiting[:2]] == [[1], [2]]
    assert not waiting[2].done()
    await add(engine)
    assert await waiting[2] == [3]


async def test_who_waits_in_vain_is_answered_in_time(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    assert await take(engine, wait_ms=5) == []
    assert await take(engine, wait_ms=5, checkpoint=False) == []


async def test_who_waits_hears_of_the_end_of_consumer_topic_and_engine(machine: Machine) -> None:
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


async def test_who_waits_hears_that_the_topic_is_gone(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    waiting = asyncio.ensure_future(take(engine, wait_ms=60_000))
    await turns()
    await engine.delete_topic("a")
    with pytest.raises(TopicNotFound):
        await waiting


async def test_losses_are_told_once_and_passed(machine: Machine) -> None:
    engine = await consumed(machine, 5, topic=FSYNC)
    await take(engine, 1)
    await engine.put_topic("a", TopicConfig(durability=Durability.FSYNC, cap_records=2))
    found = await answer(engine)
    assert found.result.tombstone is not None
    assert (found.result.tombstone.gap_from, found.result.tombstone.gap_to) == (2, 3)
    assert [each.seq for each in found.result.records] == [4, 5]
    assert (await answer(engine)).result.tombstone is None


async def test_a_damaged_record_holds_the_cursor_until_it_is_skipped(machine: Machine) -> None:
    engine = await consumed(machine, 6, topic=FSYNC, segment_max_events=3, checkpoint_records=1)
    await engine.segment_worker.flush_all()
    path = next(path for path in machine.disk.content() if path.endswith("-00000000000000000001.data"))
    machine.disk.flip_byte(path, 40)
    with pytest.raises(RecordCorrupt):
        await take(engine)
    assert cursor(engine) == 0
    found = await engine.consumers.read("a", "c", ReadQuery(skip_corrupt=True))
    assert (found.result.corrupt_seqs, found.cursor_seq) == ([1], 6)


async def test_a_read_whose_reader_has_left_while_it_waited_hands_out_nothing(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    waiting = asyncio.ensure_future(take(engine, wait_ms=60_000))
    await turns()
    waiting.cancel()
    await add(engine, 2)
    assert await take(engine) == [1, 2]


@pytest.mark.parametrize("when", range(1, 12))
async def test_a_strict_read_whose_reader_leaves_leaves_the_next_one_in_order(machine: Machine, when: int) -> None:
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
async def test_a_cursor_that_cannot_be_written_hands_out_nothing(
    machine: Machine, config: ConsumerConfig | None
) -> None:
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
