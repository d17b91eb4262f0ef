"""A lost answer is given again for the same attempt_key, for a limited time and within limits."""

from __future__ import annotations

import asyncio

import pytest

from storage.errors import InvalidRequest
from storage.records.values import ReadResult, StoredRecord
from storage.state.consumers.attempts import ANSWER_TTL_MS, AnswerRange, Attempts
from storage.state.consumers.values import ConsumerConfig, ConsumerRead
from tests.unit.storage.consumers.consumed import STRICT, add, answer, consumed, cursor, take
from tests.unit.storage.machine import Machine


def made(size: int, seq: int = 1) -> ConsumerRead:
    records = [StoredRecord(seq, 0, b"", b"", b"x" * size)]
    result = ReadResult(topic="a", records=records, next_from_seq=seq, head_seq=seq, earliest_seq=1)
    return ConsumerRead(result=result, consumer="c", cursor_seq=seq, unread=0)


SPAN = AnswerRange(0, 1, 1, 1 << 20)
NOTHING = AnswerRange(1, 1, 0, 1 << 20)


def test_an_answer_is_remembered_for_a_minute() -> None:
    kept = Attempts(10_000)
    kept.remember(3, "k", SPAN, made(10), 0)
    assert kept.find(3, "k", ANSWER_TTL_MS - 1) is not None
    assert kept.find(3, "k", ANSWER_TTL_MS) is None
    assert (kept.find(3, "other", 0), kept.find(4, "k", 0)) == (None, None)
    kept.expire(ANSWER_TTL_MS)
    assert (len(kept), kept.bytes) == (0, 0)


def test_answers_over_the_limit_lose_their_records_and_keep_their_range() -> None:
    kept = Attempts(10_000)
    for number in range(5):
        kept.remember(3, str(number), SPAN, made(1500), 0)
    found = [kept.find(3, str(number), 0) for number in range(5)]
    assert [each is not None and each.answer is not None for each in found] == [False, False, True, True, True]
    assert {each.range for each in found if each is not None} == {SPAN}
    assert (kept.forgotten, kept.bytes <= 10_000) == (0, True)
    kept.remember(3, "large", SPAN, made(20_000), 0)
    assert (len(kept), kept.bytes <= 10_000) == (6, True)


def test_over_the_second_limit_answers_are_forgotten_and_counted() -> None:
    kept = Attempts(1000)
    for number in range(5):
        kept.remember(3, str(number), NOTHING, made(0), 0)
    assert [kept.find(3, str(number), 0) is not None for number in range(5)] == [False, False, False, True, True]
    assert (kept.forgotten, kept.bytes <= 1000) == (3, True)


def test_a_reused_key_returns_the_newer_answer() -> None:
    kept = Attempts(10_000)
    kept.remember(3, "k", SPAN, made(10, 1), 0)
    kept.remember(3, "k", SPAN, made(10, 2), ANSWER_TTL_MS)
    found = kept.find(3, "k", ANSWER_TTL_MS)
    assert found is not None
    assert found.answer is not None
    assert (found.answer.cursor_seq, len(kept)) == (2, 1)


@pytest.mark.parametrize("config", [None, STRICT])
async def test_a_repeated_attempt_key_gets_the_first_answer(machine: Machine, config: ConsumerConfig | None) -> None:
    engine = await consumed(machine, 6, config)
    first = await answer(engine, 2, attempt_key="k")
    again = await answer(engine, 2, attempt_key="k")
    assert (again.repeated, again.result, again.cursor_seq, again.unread) == (True, first.result, 2, 4)
    assert await take(engine, 2, attempt_key="l") == [3, 4]
    assert await take(engine, 2) == [5, 6]


async def test_a_repeated_attempt_key_gets_the_first_answer_after_its_records_are_deleted(machine: Machine) -> None:
    engine = await consumed(machine, 6)
    await take(engine, 2, attempt_key="k")
    await engine.delete_records("a", 7)
    assert await take(engine, 2, attempt_key="k") == [1, 2]


async def test_concurrent_reads_with_an_attempt_key_share_an_answer(machine: Machine) -> None:
    engine = await consumed(machine, 6, STRICT)
    answers = await asyncio.gather(*(answer(engine, 2, attempt_key="k") for _ in range(3)))
    assert [[each.seq for each in found.result.records] for found in answers] == [[1, 2]] * 3
    assert [found.repeated for found in answers] == [False, True, True]
    assert cursor(engine) == 2


async def test_waiting_reads_with_an_attempt_key_share_an_answer(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    waiting = [asyncio.ensure_future(answer(engine, 1, attempt_key="k", wait_ms=60_000)) for _ in range(2)]
    await asyncio.sleep(0)
    await add(engine, 3)
    answers = await asyncio.gather(*waiting)
    assert [[each.seq for each in found.result.records] for found in answers] == [[1], [1]]


@pytest.mark.parametrize("config", [None, STRICT])
async def test_a_remembered_answer_without_records_is_read_again(
    machine: Machine, config: ConsumerConfig | None
) -> None:
    engine = await consumed(machine, 6, config, consumer_answers_bytes=1000)
    assert await take(engine, 2, attempt_key="k") == [1, 2]
    assert await take(engine, 2, attempt_key="l") == [3, 4]
    again = await answer(engine, 5, attempt_key="k")
    assert ([each.seq for each in again.result.records], again.repeated) == ([1, 2], True)
    assert (again.cursor_seq, again.result.next_from_seq, again.unread) == (2, 2, 4)
    assert (cursor(engine), await take(engine, 2)) == (4, [5, 6])


async def test_an_empty_answer_is_repeated(machine: Machine) -> None:
    engine = await consumed(machine, 0)
    assert await take(engine, attempt_key="k") == []
    await add(engine)
    again = await answer(engine, attempt_key="k", wait_ms=60_000)
    assert (again.repeated, again.result.records, again.cursor_seq) == (True, [], 0)
    assert await take(engine, attempt_key="l") == [1]


async def test_after_a_minute_a_key_is_as_good_as_new(machine: Machine) -> None:
    engine = await consumed(machine, 6)
    await take(engine, 2, attempt_key="k")
    await machine.clock.advance(ANSWER_TTL_MS - 10)
    assert await take(engine, 2, attempt_key="k") == [1, 2]
    await machine.clock.advance(1000)
    assert len(engine.consumers.attempts) == 0
    assert await take(engine, 2, attempt_key="k") == [3, 4]


@pytest.mark.parametrize("key", ["", "x" * 129])
async def test_an_invalid_attempt_key_is_refused(machine: Machine, key: str) -> None:
    engine = await consumed(machine)
    with pytest.raises(InvalidRequest):
        await take(engine, attempt_key=key)
