"""Records between unmodified clients, and between them and the other protocols: byte for byte."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import confluent_kafka
import msgspec
import pytest

from storage import TopicConfig, TopicType
from storage.records.values import NewRecord, PlainBinary, ReadQuery, TagMatch
from tests.conftest import is_soak
from tests.kafka.clients import CLIENTS, CODECS, Sent
from tests.kafka.server import KafkaServer
from tests.support.shown import shown

NOW = 1_700_000_000_000
#: Every kind of record.
ODD: list[Sent] = [
    (None, b'{"a":1}', [], NOW),
    (b"key", b'{"a":2}', [("h", b"text"), ("raw", b"\xff"), ("h", None)], NOW + 5),
    (b"", b"1", [], NOW + 1),
    (b"\xff\x00", b"not json", [], NOW + 2),
    (b"gone", None, [], NOW + 3),
    (None, b"", [("", b"")], NOW + 4),
    (b"k" * 300, b'  {"spaces": true}\n', [], NOW + 9),
    ("schlüssel".encode(), "wörter".encode(), [], 1),
    (None, b'{"a":1,"ct":1700000000000}', [], NOW),
    (None, b"x" * 70_000, [], NOW),
]


@pytest.mark.parametrize("writer", CLIENTS)
async def test_each_client_reads_the_records_of_every_writer(server: KafkaServer, writer: str) -> None:
    await server.engine.put_topic("t")
    codecs = CODECS if is_soak(os.environ) or writer == "confluent" else CODECS[-2:]
    sent: list[Sent] = []
    # kafka-python sends no header that is null.
    odd = [each for each in ODD if writer != "kafka-python" or all(value is not None for _, value in each[2])]
    for codec in codecs:
        offsets = await CLIENTS[writer].produce(server.address, "t", odd, codec)
        assert sorted(offsets) == [*range(len(sent), len(sent) + len(odd))]
        sent += odd
    for name, client in CLIENTS.items():
        found = await client.read(server.address, "t", len(sent))
        assert [offset for offset, _ in found] == [*range(len(sent))], name
        assert [record for _, record in found] == sent, name


@pytest.mark.parametrize("client", CLIENTS)
async def test_clients_continue_after_offsets_without_records(server: KafkaServer, client: str) -> None:
    await server.engine.put_topic("t")
    records = [NewRecord(b"%d" % number, tag=f"tag{number // 100}") for number in range(1000)]  # pyright: ignore
    await server.engine.append("t", records)
    for number in (0, 3, 4, 9):
        await server.engine.delete_records("t", match=TagMatch(b"tag%d" % number))
    await server.engine.append("t", b"last")
    alive = [number for number in range(1000) if number // 100 not in (0, 3, 4, 9)]
    found = await CLIENTS[client].read(server.address, "t", len(alive) + 1)
    assert [offset for offset, _ in found] == [*alive, 1000]
    assert (await CLIENTS[client].read(server.address, "t", 1, offset=950))[0][0] == 1000


async def test_records_of_other_apis_are_fetched(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    raw = msgspec.Raw
    await server.engine.append(
        "t", [NewRecord(raw(b'{"a": 1}'), raw(b'{"x":"y","n":1}'), tag="eu", node="n1"), NewRecord(raw(b"2"))]
    )
    await server.engine.append("t", PlainBinary([raw(b"\x00\xff")]))
    for client in CLIENTS.values():
        found = [record[:3] for _, record in await client.read(server.address, "t", 3)]
        assert found == [
            (b"eu", b'{"a": 1}', [("x", b"y"), ("node", b"n1")]),
            (None, b"2", []),
            (None, b"\x00\xff", []),
        ]


async def test_records_of_kafka_clients_are_read_by_other_apis(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    await CLIENTS["confluent"].produce(server.address, "t", ODD, "zstd")
    found = (await server.engine.read("t", ReadQuery(limit=100))).records
    assert [record.tag for record in found[:4]] == [b"", b"key", b"", b""]
    assert shown(found[0].body) == b'{"data":{"a":1}}'
    assert shown(found[1].body) == b'{"data":{"a":2},"meta":{"h":"text"}}'
    assert shown(found[3].body) == b'{"data":{"$base64":"bm90IGpzb24="}}'
    assert [record.data for record in found[3:6]] == [b"not json", b"", b""]


async def test_a_job_may_come_from_a_kafka_client(server: KafkaServer) -> None:
    await server.engine.put_topic("jobs", TopicConfig(type=TopicType.QUEUE))
    await CLIENTS["confluent"].produce(server.address, "jobs", ODD[:2], "none")
    claimed = await server.engine.queues.claim("jobs", "worker", max=10)
    assert [shown(job.record.body) for job in claimed.jobs] == [
        b'{"data":{"a":1}}',
        b'{"data":{"a":2},"meta":{"h":"text"}}',
    ]


async def test_offsets_by_time_of_a_capped_topic_are_found(server: KafkaServer) -> None:
    await server.engine.put_topic("t", TopicConfig(cap_records=50))
    many: list[Sent] = [(None, b"%d" % number, [], NOW + number) for number in range(100)]
    await CLIENTS["confluent"].produce(server.address, "t", many[:60], "none")
    await CLIENTS["confluent"].produce(server.address, "t", many[60:], "none")
    settings: dict[str, Any] = {"bootstrap.servers": server.address, "group.id": "none"}

    def ask() -> tuple[Any, list[int]]:
        consumer = confluent_kafka.Consumer(settings)
        place = confluent_kafka.TopicPartition
        times = [place("t", 0, NOW + 70), place("t", 0, NOW + 5000)]
        try:
            marks = consumer.get_watermark_offsets(place("t", 0), timeout=20)
            return marks, [consumer.offsets_for_times([each], timeout=20)[0].offset for each in times]
        finally:
            consumer.close()

    marks, found = await asyncio.to_thread(ask)
    assert marks == (50, 100)
    assert found == [70, confluent_kafka.OFFSET_END]


@pytest.mark.parametrize("client", ["confluent", "aiokafka"])
async def test_idempotent_producer_continues(server: KafkaServer, client: str) -> None:
    await server.engine.put_topic("t")
    settings = {"enable.idempotence": True} if client == "confluent" else {"enable_idempotence": True}
    many: list[Sent] = [(None, b"%d" % number, [], NOW) for number in range(2000)]
    await CLIENTS[client].produce(server.address, "t", many, "lz4", **settings)
    found = (await server.engine.read("t", ReadQuery(limit=10_000))).records
    assert [record.data for record in found] == [value for _, value, _, _ in many]
