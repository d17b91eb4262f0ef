"""Consumers in the embedded API: the cursor after each method, and announced losses."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from storage import Consistency, Durability, Engine, Record, TopicConfig
from storage.errors import ConsumerNotFound, InvalidRequest, ShuttingDown, TopicNotFound
from tests.unit.storage.machine import Machine

FSYNC = TopicConfig(durability=Durability.FSYNC)


async def numbered(machine: Machine, count: int = 5, config: TopicConfig = FSYNC) -> Engine:
    """A topic `t` with the numbers from 1 on."""
    engine = await machine.start()
    await engine.append_batch("t", range(1, count + 1), config=config)
    return engine


def values(records: list[Record]) -> list[object]:
    return [record.value for record in records]


async def test_the_first_read_makes_the_consumer_in_front_of_the_oldest(machine: Machine) -> None:
    engine = await numbered(machine)
    with pytest.raises(ConsumerNotFound):
        engine.consumer_state("t", "c")
    record = await engine.read_next("t", "c")
    assert record is not None
    assert (record.seq, record.value, record.lost, record.corrupt_seqs) == (1, 1, None, ())
    assert engine.consumer_state("t", "c").cursor_seq == 1
    assert [each.consumer for each in engine.list_consumers("t")] == ["c"]


async def test_a_topic_is_not_made_by_reading(machine: Machine) -> None:
    engine = await machine.start()
    for call in (engine.read_next("t", "c"), engine.read_batch("t", "c"), engine.peek("t", "c")):
        with pytest.raises(TopicNotFound):
            await call
    with pytest.raises(TopicNotFound):
        engine.unread("t", "c")


async def test_a_peek_moves_no_cursor_and_makes_no_consumer(machine: Machine) -> None:
    engine = await numbered(machine)
    for _ in range(2):
        assert (await engine.peek("t", "c")).value == 1  # pyright: ignore
        assert len(await engine.read_batch("t", "c", checkpoint=False)) == 5
    assert engine.list_consumers("t") == []
    assert engine.unread("t", "c") == 5
    await engine.read_next("t", "c")
    for _ in range(2):
        assert (await engine.peek("t", "c")).value == 2  # pyright: ignore
        assert (await engine.read_next("t", "c", checkpoint=False)).value == 2  # pyright: ignore
    assert engine.unread("t", "c") == 4


async def test_a_batch_is_bounded_by_bytes_and_records(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append_batch("t", [b"x" * 100] * 10, config=FSYNC)
    assert len(await engine.read_batch("t", "c", max_bytes=1)) == 1
    assert len(await engine.read_batch("t", "c", max_bytes=350)) == 3
    batch = await engine.read_batch("t", "c", max_records=4)
    assert (len(batch), batch.cursor_seq, batch.unread, batch.head_seq) == (4, 8, 2, 10)
    assert batch.data() == [b"x" * 100] * 4
    assert [record.seq for record in batch[1:3]] == [6, 7]
    assert batch[-1].seq == 8


async def test_the_record_in_hand_when_a_follower_stops_comes_again(machine: Machine) -> None:
    engine = await numbered(machine)
    following = engine.follow("t", "c", wait_ms=0)
    assert values([await anext(following), await anext(following), await anext(following)]) == [1, 2, 3]
    await following.aclose()
    assert engine.consumer_state("t", "c").cursor_seq == 2
    engine = await machine.cut_power()
    assert values([record async for record in engine.follow("t", "c", wait_ms=0)]) == [3, 4, 5]
    assert engine.unread("t", "c") == 0
    engine = await machine.cut_power()
    assert [record async for record in engine.follow("t", "c", wait_ms=0)] == []


async def test_a_follower_has_at_most_the_allowed_number_of_uncommitted_records(machine: Machine) -> None:
    engine = await numbered(machine, 10)
    await engine.put_consumer("t", "c", persist_every=3)
    following = engine.follow("t", "c", wait_ms=0)
    for expected in range(1, 9):
        assert (await anext(following)).value == expected
        assert engine.consumer_state("t", "c").durable_seq >= expected - 3
    await following.aclose()


async def test_a_strict_follower_commits_a_record_before_yielding(machine: Machine) -> None:
    engine = await numbered(machine)
    await engine.put_consumer("t", "c", consistency=Consistency.STRICTLY_AT_ONCE)
    following = engine.follow("t", "c", wait_ms=0)
    assert values([await anext(following), await anext(following)]) == [1, 2]
    await following.aclose()
    engine = await machine.cut_power()
    assert values([record async for record in engine.follow("t", "c", wait_ms=0)]) == [3, 4, 5]


@pytest.mark.parametrize("consistency", list(Consistency))
async def test_a_follower_waits_for_new_records(machine: Machine, consistency: Consistency) -> None:
    engine = await numbered(machine, 1)
    await engine.put_consumer("t", "c", consistency=consistency)
    following = engine.follow("t", "c")
    assert (await anext(following)).value == 1
    coming = asyncio.ensure_future(anext(following))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not coming.done()
    await engine.append("t", 2)
    assert (await coming).value == 2
    waiting = asyncio.ensure_future(anext(following))
    for _ in range(50):
        await asyncio.sleep(0)
    engine.begin_shutdown()
    with pytest.raises(ShuttingDown):
        await waiting


async def test_the_record_after_a_loss_reports_the_loss(machine: Machine) -> None:
    engine = await numbered(machine, config=TopicConfig(durability=Durability.FSYNC, cap_records=5))
    await engine.read_next("t", "c")
    await engine.append_batch("t", range(6, 10))  # 1 to 4 go
    with structlog.testing.capture_logs() as logged:
        record = await engine.read_next("t", "c")
    assert record is not None
    assert record.lost is not None
    assert (record.seq, record.lost.gap_from, record.lost.gap_to, record.lost.reason) == (5, 2, 4, "cap")
    assert [line["gap_to"] for line in logged if line["event"] == "reader_lost_records"] == [4]
    assert (await engine.read_next("t", "c")).lost is None  # pyright: ignore
    follower = [record async for record in engine.follow("t", "d", wait_ms=0)]
    assert [record.lost for record in follower] == [None] * 5  # a consumer created now has no loss


async def test_a_loss_without_a_later_record_is_reported_with_the_next_append(machine: Machine) -> None:
    config = TopicConfig(durability=Durability.FSYNC, ttl_ms=1000)
    engine = await numbered(machine, config=config)
    await engine.read_next("t", "c")
    await engine.put_consumer("t", "f", start=1)
    machine.clock.tick(2000)
    assert await engine.read_next("t", "c") is None
    assert [record async for record in engine.follow("t", "f", wait_ms=0)] == []
    await engine.append("t", "new")
    next_one = await engine.read_next("t", "c")
    (followed,) = [record async for record in engine.follow("t", "f", wait_ms=0)]
    for record in (next_one, followed):
        assert record is not None
        assert record.lost is not None
        assert (record.value, record.lost.gap_from, record.lost.gap_to, record.lost.reason) == ("new", 2, 5, "ttl")


async def test_commit_and_seek_put_the_cursor_elsewhere(machine: Machine) -> None:
    engine = await numbered(machine)
    await engine.put_consumer("t", "c")
    assert (await engine.commit("t", "c", 3)).cursor_seq == 3
    assert (await engine.read_next("t", "c")).value == 4  # pyright: ignore
    assert (await engine.seek("t", "c", to="earliest")).unread == 5
    assert (await engine.seek("t", "c", seq=4)).unread == 1
    assert (await engine.seek("t", "c", to="head")).unread == 0
    with pytest.raises(InvalidRequest):
        await engine.commit("t", "c", 6)
    assert await engine.delete_consumer("t", "c")
    assert not await engine.delete_consumer("t", "c")
    assert engine.unread("t", "c") == 5
