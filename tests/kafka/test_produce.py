"""Produce: stored records, and refusals with their error codes, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from storage import CleanupPolicy, Durability, TopicConfig
from storage.records.values import ReadQuery
from tests.kafka.asking import PRODUCE_VERSIONS, a_batch, produce, produce_body, produced
from tests.kafka.server import KafkaServer

ONE = a_batch(b"1")


async def stored(server: KafkaServer, topic: str = "t") -> list[bytes]:
    found = await server.engine.read(topic, ReadQuery(limit=10_000))
    return [record.data for record in found.records]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_a_batch_is_stored_and_its_offset_returned(server: KafkaServer, version: int) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    assert (await produce(wire, ("t", 0, a_batch(b"1", b"2")), version=version))[0][:2] == (0, 0)
    assert (await produce(wire, ("t", 0, a_batch(b'"3"')), version=version))[0][:2] == (0, 2)
    assert await stored(server) == [b"1", b"2", b'"3"']


@pytest.mark.parametrize("version", range(3))
async def test_listed_versions_that_are_not_served_are_answered_as_unsupported(
    server: KafkaServer, version: int
) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    # As in version 3, without the transactional id.
    wire.send(ApiKey.PRODUCE, version, produce_body(3, ("t", 0, ONE))[2:])
    assert [one[0] for one in await produced(wire, version)] == [ErrorCode.UNSUPPORTED_VERSION]
    assert await stored(server) == []


def damaged(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def of_magic(magic: int) -> bytes:
    return ONE[:16] + bytes([magic]) + ONE[17:]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (None, ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (damaged(ONE), ErrorCode.CORRUPT_MESSAGE),
        (ONE + ONE, ErrorCode.CORRUPT_MESSAGE),
        (of_magic(0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (of_magic(1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (a_batch(*[b"1"] * 10_001), ErrorCode.MESSAGE_TOO_LARGE),
        (a_batch(bytes(2 << 20), codec=1), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
async def test_error_of_a_batch_has_a_message(server: KafkaServer, batch: bytes | None, code: ErrorCode) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    (error, offset, _), (good, _, _) = await produce(wire, ("t", 0, batch), ("t", 0, ONE))
    assert (error, offset) == (code, -1)
    assert good == 0
    assert await stored(server) == [b"1"]


@pytest.mark.parametrize(("topic", "partition"), [("none", 0), ("t", 1), ("t", -1), ("t/0", 0), ("", 0)])
async def test_unknown_partition_is_an_error(server: KafkaServer, topic: str, partition: int) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    assert (await produce(wire, (topic, partition, ONE)))[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_record_may_be_too_large(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path, max_record_bytes=1000) as server:
        await server.engine.put_topic("t")
        wire = await server.connect()
        large, small = await produce(wire, ("t", 0, a_batch(b"1", b"x" * 1001)), ("t", 0, a_batch(b"x" * 900)))
        assert (large[0], small[0]) == (ErrorCode.MESSAGE_TOO_LARGE, 0)
        assert await stored(server) == [b"x" * 900]


async def test_a_topic_may_take_less_than_the_broker(server: KafkaServer) -> None:
    await server.engine.put_topic("t", TopicConfig(max_message_bytes=200))
    wire = await server.connect()
    large, small = await produce(wire, ("t", 0, a_batch(b"x" * 200)), ("t", 0, a_batch(b"x" * 100)))
    assert (large[0], small[0]) == (ErrorCode.MESSAGE_TOO_LARGE, 0)


@pytest.mark.parametrize(
    ("wish", "code"),
    [({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS), ({"tx": "mine"}, ErrorCode.INVALID_TXN_STATE)],
)
async def test_unsupported_acks_and_transactions_are_refused(server: KafkaServer, wish: Any, code: ErrorCode) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    assert (await produce(wire, ("t", 0, ONE), **wish))[0][0] == code
    assert await stored(server) == []


@pytest.mark.parametrize("policy", [CleanupPolicy.COMPACT, CleanupPolicy.BOTH])
async def test_a_compacted_topic_takes_no_record_without_a_key(server: KafkaServer, policy: CleanupPolicy) -> None:
    await server.engine.put_topic("t", TopicConfig(cleanup_policy=policy))
    await server.engine.put_topic("u", TopicConfig(cleanup_policy=CleanupPolicy.NONE))
    wire = await server.connect()
    (error, offset, answer), (good, _, _) = await produce(wire, ("t", 0, a_batch(b"1", b"2")), ("u", 0, ONE))
    assert (error, offset, good) == (ErrorCode.INVALID_RECORD, -1, 0)
    assert answer.error_message == "Compacted topic cannot accept message without key in topic partition t-0."
    assert await stored(server) == []


async def test_acks_0_gets_no_answer(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    for number in range(5):
        wire.send(ApiKey.PRODUCE, 9, produce_body(9, ("t", 0, a_batch(b"%d" % number)), acks=0))
    assert (await produce(wire, ("t", 0, a_batch(b"5"))))[0][:2] == (0, 5)
    assert await stored(server) == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("durability", Durability)
async def test_pipelined_requests_keep_their_order(server: KafkaServer, durability: Durability) -> None:
    await server.engine.put_topic("t", TopicConfig(durability=durability))
    wire = await server.connect()
    for number in range(300):
        wire.send(ApiKey.PRODUCE, 9, produce_body(9, ("t", 0, a_batch(b"%d" % number))))
    assert [(await produced(wire))[0][:2] for _ in range(300)] == [(0, number) for number in range(300)]
    assert await stored(server) == [b"%d" % number for number in range(300)]


async def test_a_batch_is_not_stored_twice(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    mine = {"producer_id": 7, "producer_epoch": 0}
    batches = [a_batch(b"%d" % n, b"%d" % (n + 1), first=n, **mine) for n in range(0, 16, 2)]
    for number, batch in enumerate(batches):
        assert (await produce(wire, ("t", 0, batch)))[0][:2] == (0, 2 * number)
    for number in range(3, 8):
        assert (await produce(wire, ("t", 0, batches[number])))[0][:2] == (0, 2 * number)
    gap = a_batch(b"x", first=20, **mine)
    assert (await produce(wire, ("t", 0, gap)))[0][0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = a_batch(b"16", first=0, producer_id=7, producer_epoch=1)
    assert (await produce(wire, ("t", 0, newer)))[0][:2] == (0, 16)
    old = a_batch(b"x", first=16, **mine)
    assert (await produce(wire, ("t", 0, old)))[0][0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await stored(server) == [b"%d" % number for number in range(17)]


async def test_answer_contains_all_partitions_of_the_request(server: KafkaServer) -> None:
    for name in ("a", "b"):
        await server.engine.put_topic(name)
    wire = await server.connect()
    answers = await produce(wire, ("a", 0, ONE), ("none", 0, ONE), ("b", 0, damaged(ONE)), ("a", 0, ONE))
    assert [one[:2] for one in answers] == [(0, 0), (3, -1), (2, -1), (0, 1)]
