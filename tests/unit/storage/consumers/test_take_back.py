"""Answers that reach no client are undone, and cursors move back while reads wait."""

from __future__ import annotations

import asyncio

import pytest

from storage.state.consumers.consumer import Consumer
from storage.state.consumers.values import ConsumerConfig
from tests.unit.storage.consumers.consumed import (
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
from tests.unit.storage.machine import Machine

LONG_MS = 600_000
BOTH = pytest.mark.parametrize("config", [None, STRICT])


@BOTH
async def test_an_undone_answer_is_returned_to_the_next_read(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    await take(engine, 1)
    lost = await answer(engine, 2)
    assert cursor(engine) == 3
    lost.undo()
    assert cursor(engine) == 1
    lost.undo()
    assert cursor(engine) == 1
    assert await take(engine, 1) == [2]
    assert await take(engine) == [3, 4, 5]


@BOTH
async def test_an_undo_after_a_later_read_has_no_effect(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    lost = await answer(engine, 2)
    assert await take(engine, 1) == [3]
    lost.undo()
    assert await take(engine) == [4, 5]


@BOTH
async def test_an_undone_answer_with_a_key_is_returned_to_its_repetition(
    machine: Machine, config: ConsumerConfig | None
) -> None:
    engine = await consumed(machine, 5, config)
    lost = await answer(engine, 2, attempt_key="k")
    lost.undo()
    assert await take(engine, 1) == [3]
    assert await take(engine, 2, attempt_key="k") == [1, 2]


@BOTH
async def test_undoing_a_peek_or_an_empty_answer_has_no_effect(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    peeked = await answer(engine, 2, checkpoint=False)
    await take(engine, 2)
    peeked.undo()
    assert await take(engine) == [3, 4, 5]
    empty = await answer(engine)
    await engine.consumers.seek("a", "c", seq=5)
    empty.undo()
    assert cursor(engine) == 5


@BOTH
async def test_an_undone_answer_goes_to_a_waiting_read(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 2, config)
    lost = await answer(engine)
    waiting = asyncio.ensure_future(take(engine, wait_ms=LONG_MS))
    await turns()
    assert not waiting.done()
    lost.undo()
    async with asyncio.timeout(5):
        assert await waiting == [1, 2]


@BOTH
async def test_an_undo_for_a_deleted_consumer_has_no_effect(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config)
    lost = await answer(engine, 2)
    await engine.consumers.delete("a", "c")
    await engine.consumers.put("a", "c", start=2)
    lost.undo()
    assert cursor(engine) == 2


@BOTH
async def test_an_undone_answer_is_read_again_after_a_crash(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 5, config or every(3))
    lost = await answer(engine, 3)
    assert await take(engine, checkpoint=False) == [4, 5]
    if config is None:
        await machine.clock.advance(2000)  # a second without reads
    assert durable(engine) == 3
    lost.undo()
    await turns()
    assert (await take(await machine.kill()))[:1] == [1]


@BOTH
async def test_an_undone_answer_is_read_again_after_a_clean_stop(
    machine: Machine, config: ConsumerConfig | None
) -> None:
    engine = await consumed(machine, 5, config)
    await take(engine, 1)
    lost = await answer(engine, 3)
    lost.undo()
    assert await take(await machine.restart()) == [2, 3, 4, 5]


async def test_a_read_cancelled_during_its_cursor_sync_takes_no_record(machine: Machine) -> None:
    engine = await consumed(machine, 3, STRICT)
    leaving = asyncio.ensure_future(take(engine, 2))
    while not leaving.done() and (known(engine).cursor_writer is None or known(engine).cursor_writer.writing is None):
        await asyncio.sleep(0)
    assert not leaving.done()
    leaving.cancel()
    next_one = asyncio.ensure_future(take(engine, 2))
    assert await next_one == [1, 2]
    assert leaving.cancelled()


@pytest.mark.parametrize("checkpoint", [True, False])
@BOTH
async def test_a_seek_back_wakes_waiting_reads(
    machine: Machine, config: ConsumerConfig | None, checkpoint: bool
) -> None:
    engine = await consumed(machine, 3, config)
    await take(engine)
    waiting = asyncio.ensure_future(take(engine, wait_ms=LONG_MS, checkpoint=checkpoint))
    await turns()
    state = await engine.consumers.seek("a", "c", seq=1)
    # The sought position, not the reader's position since.
    assert state.cursor_seq == 1
    async with asyncio.timeout(5):
        assert await waiting == [2, 3]


async def test_a_seek_to_the_current_position_leaves_waiting_reads_waiting(machine: Machine) -> None:
    engine = await consumed(machine, 3)
    await take(engine)
    waiting = asyncio.ensure_future(take(engine, wait_ms=LONG_MS))
    await turns()
    await engine.consumers.seek("a", "c", to="head")
    await turns()
    assert not waiting.done()
    await add(engine)
    async with asyncio.timeout(5):
        assert await waiting == [4]


def test_taken_back_records_are_not_counted_as_unpersisted() -> None:
    consumer = Consumer(1, "c", every(10), 0)
    consumer.deliver(4, 4)
    consumer.confirm()
    consumer.deliver(9, 5)
    assert consumer.take_back(4, 9, 5)
    assert (consumer.cursor_seq, consumer.confirmed_seq, consumer.unpersisted, consumer.confirmed) == (4, 4, 4, 4)
    consumer.confirm()
    # Also after a reader came and found no record.
    assert consumer.take_back(0, 4, 4)
    assert (consumer.cursor_seq, consumer.confirmed_seq, consumer.unpersisted, consumer.confirmed) == (0, 0, 0, 0)
    assert not consumer.take_back(0, 4, 4)
