"""Requests of Produce and Fetch with any content: read as another implementation writes them, or refused."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest

from broker.kafka.codec import produce
from broker.kafka.codec.fetch import Fetched, FetchPartition, read_fetch, write_fetched
from broker.kafka.codec.produce import Produced, read_produce, write_produced
from broker.kafka.codec.wire import Malformed, Writer
from tests.kafka.asking import BY_ID, FETCH_VERSIONS, PRODUCE_VERSIONS, a_batch, by_id, fetch_body, produce_body

BATCH = a_batch(b"1", b"2")


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_produce_request_is_read(version: int) -> None:
    body = produce_body(version, ("a", 1, BATCH), ("a", 2, None), ("b", 0, b""), acks=1)
    found = read_produce(version, memoryview(body))
    assert (found.transactional_id, found.acks, found.timeout_ms) == (None, 1, 1000)
    assert [tuple(each) for each in found.batches] == [("a", 1, BATCH), ("a", 2, None), ("b", 0, b"")]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_fetch_request_is_read(version: int) -> None:
    body = fetch_body(version, ("a", 1, 1 << 40), ("b", 0, 7), max_wait_ms=9, min_bytes=8, current_leader_epoch=3)
    found = read_fetch(version, memoryview(body))
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes, found.session_id) == (9, 8, 1 << 25, 0)
    epoch = 3 if version >= 9 else -1
    assert found.partitions == [
        FetchPartition("a", 1, epoch, 1 << 40, 1 << 20),
        FetchPartition("b", 0, epoch, 7, 1 << 20),
    ]


@pytest.mark.parametrize("version", BY_ID)
def test_a_fetch_request_by_ids_is_read(version: int) -> None:
    a, b = bytes(range(16)), bytes(range(16, 32))
    found = read_fetch(version, memoryview(by_id(version, (a, 1, 1 << 40), (b, 0, 7), max_wait_ms=9)))
    assert (found.max_wait_ms, found.min_bytes, found.max_bytes, found.session_id) == (9, 1, 1 << 25, 0)
    assert found.partitions == [
        FetchPartition("", 1, -1, 1 << 40, 1 << 20, a),
        FetchPartition("", 0, -1, 7, 1 << 20, b),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_mutated_requests_are_read_or_refused(seed: int) -> None:
    dice = random.Random(seed)
    tracemalloc.start()
    try:
        for _ in range(500):
            version = dice.choice(PRODUCE_VERSIONS)
            with contextlib.suppress(Malformed):
                read_produce(version, mutated(dice, produce_body(version, ("a", 1, BATCH), ("b", 0, BATCH))))
            version = dice.choice(FETCH_VERSIONS)
            with contextlib.suppress(Malformed):
                read_fetch(version, mutated(dice, fetch_body(version, ("a", 1, 5), ("b", 0, 7))))
            version = dice.choice(BY_ID)
            with contextlib.suppress(Malformed):
                read_fetch(version, mutated(dice, by_id(version, (bytes(16), 1, 5), (bytes(16), 0, 7))))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def mutated(dice: random.Random, whole: bytes) -> memoryview:
    body = bytearray(whole)
    for _ in range(dice.randint(1, 5)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    if dice.random() < 0.3:
        del body[dice.randrange(len(body)) :]
    return memoryview(body)


def test_topics_stand_together_in_answers() -> None:
    answer = write_produced(9, [Produced("a", 0, 0, 5), Produced("a", 1, 3), Produced("b", 0, 0, 1)])
    assert answer.count(b"\2a") == answer.count(b"\2b") == 1
    assert b"".join(write_fetched(12, 0, [Fetched("a", 0), Fetched("a", 1)])).count(b"\2a") == 1


@pytest.mark.parametrize("topic", ["t", "x" * 126, "x" * 127, "ü"])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 20_000])
def test_a_produce_request_with_one_batch_takes_the_fast_path_with_the_same_answer(topic: str, size: int) -> None:
    writer = Writer()
    writer.compact_string(None)
    writer.int16(-1)
    writer.int32(30_000)
    writer.varint(2)
    writer.compact_string(topic)
    writer.varint(2)
    writer.int32(3)
    writer.compact_data(b"b" * size)
    for _ in range(3):
        writer.no_tagged_fields()
    whole = memoryview(writer.done())
    assert produce.read_produce(9, whole) == produce.read_any(9, whole)
    for end in range(0, len(whole), max(1, len(whole) // 50)):
        short = whole[:end]
        try:
            expected: object = produce.read_any(9, short)
        except Malformed:
            with pytest.raises(Malformed):
                produce.read_produce(9, short)
        else:
            assert produce.read_produce(9, short) == expected
    for done in (Produced(topic, 3, 0, 7, 1), Produced(topic, 3, 5), Produced(topic, 3, 5, invalid_records=(1,))):
        assert produce.write_produced(9, [done]) == produce.write_any(9, [done])
