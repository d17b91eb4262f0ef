"""A batch compressed by its producer is fetched compressed: by unmodified clients, after restarts, in each Fetch
version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from broker.api.app import build_app
from broker.kafka.codecs import CHANGES_APART_S, Codecs
from broker.kafka.records import Codec
from broker.kafka.records.batch_reader import read_batch
from broker.kafka.records.header import HEADER_SIZE, read_header
from storage import CompressionType, Durability, TopicConfig
from storage.records.values import NewRecord, ReadQuery
from tests.kafka.asking import FETCH_VERSIONS, a_batch, fetch, produce
from tests.kafka.clients import CLIENTS, Sent
from tests.kafka.server import KafkaServer, Wire

NOW = 1_700_000_000_000
VALUES = [b'{"item":"tea","number":%d}' % number for number in range(400)]
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


async def fetched_by(wire: Wire, topic: str = "t", **more: Any) -> tuple[int, list[bytes | None]]:
    """Codec and values of the first batch of an answer."""
    [part] = await fetch(wire, (topic, 0, 0), **more)
    batch = bytes(part.records)
    header = read_header(batch)
    return header.codec, [*read_batch(batch).values]


@pytest.mark.parametrize("codec", CODECS)
async def test_compressed_batches_are_fetched_compressed(server: KafkaServer, codec: Codec) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    sent = a_batch(*VALUES, codec=codec)
    await produce(wire, ("t", 0, sent))
    await server.broker.kafka_codecs.wait_written()
    [part] = await fetch(wire, ("t", 0, 0))
    assert await fetched_by(wire) == (codec, VALUES)
    assert len(part.records) < 2 * len(sent)


async def test_uncompressed_batches_are_fetched_uncompressed(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*VALUES)))
    assert await fetched_by(wire) == (Codec.NONE, VALUES)


async def test_a_small_uncompressed_batch_does_not_change_the_codec(server: KafkaServer) -> None:
    """Clients send small batches uncompressed, whatever they are set to."""
    await server.engine.put_topic("t")
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*VALUES, codec=Codec.LZ4)), ("t", 0, a_batch(b"1")))
    await server.broker.kafka_codecs.wait_written()
    assert await fetched_by(wire) == (Codec.LZ4, [*VALUES, b"1"])


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_client_without_zstd_gets_gzip(server: KafkaServer, version: int) -> None:
    await server.engine.put_topic("t", TopicConfig(compression_type=CompressionType.ZSTD))
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*VALUES)))
    expected = Codec.ZSTD if version >= 10 else Codec.GZIP
    assert await fetched_by(wire, version=version) == (expected, VALUES)


@pytest.mark.parametrize("kind", CompressionType)
async def test_compression_type_of_a_topic_sets_the_codec_of_fetch(server: KafkaServer, kind: CompressionType) -> None:
    await server.engine.put_topic("t", TopicConfig(compression_type=kind))
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*VALUES, codec=Codec.SNAPPY)))
    await server.broker.kafka_codecs.wait_written()
    expected = {"producer": Codec.SNAPPY, "uncompressed": Codec.NONE}.get(kind) or (
        Codec.NONE if kind == "uncompressed" else Codec[kind.upper()]
    )
    assert await fetched_by(wire) == (expected, VALUES)


async def test_records_of_other_protocols_are_compressed_too(server: KafkaServer) -> None:
    await server.engine.put_topic("t", TopicConfig(compression_type=CompressionType.LZ4))
    wire = await server.connect()
    await server.engine.append("t", [NewRecord(value) for value in VALUES])  # pyright: ignore[reportArgumentType]
    assert await fetched_by(wire) == (Codec.LZ4, VALUES)


async def test_small_answers_are_not_compressed(server: KafkaServer) -> None:
    await server.engine.put_topic("t", TopicConfig(compression_type=CompressionType.GZIP))
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(b"1")))
    assert await fetched_by(wire) == (Codec.NONE, [b"1"])


async def test_deleted_records_are_not_in_cached_batches(server: KafkaServer) -> None:
    await server.engine.put_topic("t", TopicConfig(compression_type=CompressionType.ZSTD))
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*VALUES)))
    assert (await fetched_by(wire))[1] == VALUES
    await server.engine.delete_records("t", before_seq=3)
    [part] = await fetch(wire, ("t", 0, 0))
    hole, rest = part.records[:HEADER_SIZE], part.records[HEADER_SIZE:]
    assert read_header(hole).records_count == 0
    header = read_header(rest)
    assert (header.codec, header.base_offset, header.records_count) == (Codec.ZSTD, 2, 398)


async def test_min_bytes_counts_uncompressed_bytes(server: KafkaServer) -> None:
    """The read limit counts uncompressed bytes. If min_bytes counted compressed bytes, it might never be reached, and
    each fetch would wait.
    """
    await server.engine.put_topic("t", TopicConfig(compression_type=CompressionType.ZSTD))
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*[b"x" * 500] * 2000)))
    [part] = await fetch(wire, ("t", 0, 0), min_bytes=500_000, partition_bytes=600_000, max_wait_ms=3_600_000)
    assert 0 < len(part.records) < 100_000


async def test_compression_does_not_change_http_answers(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    await produce(wire, ("t", 0, a_batch(*VALUES, codec=Codec.ZSTD)))
    await server.broker.kafka_codecs.wait_written()
    found = await server.engine.read("t", ReadQuery(limit=1000))
    assert [record.data for record in found.records] == VALUES
    transport = httpx.ASGITransport(build_app(server.broker))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        rows = (await client.get("/v0/topics/t/records?limit=1000")).json()["records"]
    assert [row["data"]["number"] for row in rows] == [*range(400)]


# -- what is kept ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", Durability)
async def test_the_codec_of_producers_is_known_after_a_restart(tmp_path: Path, durability: Durability) -> None:
    async with KafkaServer(tmp_path) as server:
        await server.engine.put_topic("t", TopicConfig(durability=durability, partitions=2))
        wire = await server.connect()
        await produce(wire, ("t", 1, a_batch(*VALUES, codec=Codec.ZSTD)))
        await server.broker.kafka_codecs.wait_written()
    async with KafkaServer(tmp_path) as server:
        codecs = server.broker.kafka_codecs
        topics = server.engine.catalog.topics
        found = [codecs.of(topic) for _, topic in sorted(topics.items()) if topic.title == "t"]
        assert found == [Codec.NONE, Codec.ZSTD]


async def test_different_producers_change_the_codec_at_most_once_a_minute(server: KafkaServer) -> None:
    now = [1000.0]
    codecs = Codecs(server.engine, lambda: now[0])
    await server.engine.put_topic("t")
    topic = server.engine.topic("t")
    seen: list[Codec] = []
    for codec, seconds in (
        (Codec.GZIP, 0.0),
        (Codec.LZ4, 0.0),
        (Codec.LZ4, CHANGES_APART_S - 1),
        (Codec.LZ4, 1.0),
        (Codec.GZIP, 1.0),
        (Codec.GZIP, CHANGES_APART_S),
    ):
        now[0] += seconds
        codecs.sent(topic, codec)
        await codecs.wait_written()
        seen.append(codecs.of(topic))
    assert seen == [Codec.GZIP, Codec.GZIP, Codec.GZIP, Codec.LZ4, Codec.LZ4, Codec.GZIP]


async def test_an_unchanged_codec_is_not_written_again(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    wire = await server.connect()
    for _ in range(5):
        await produce(wire, ("t", 0, a_batch(*VALUES, codec=Codec.LZ4)))
        await server.broker.kafka_codecs.wait_written()
    topic = server.engine.topic("t")
    assert topic.log.states is not None
    assert topic.log.states.capture() == [("codec", "producer", b"lz4")]
    assert not server.broker.kafka_codecs._writing  # pyright: ignore[reportPrivateUsage]


async def test_a_codec_that_cannot_be_stored_delays_no_request(server: KafkaServer) -> None:
    await server.engine.put_topic("t")
    topic = server.engine.topic("t")
    codecs = Codecs(server.engine)
    await server.engine.delete_topic("t")
    codecs.sent(topic, Codec.GZIP)
    await codecs.wait_written()
    assert codecs.of(topic) is Codec.NONE


# -- by stock clients --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_stock_clients_read_compressed_batches(server: KafkaServer, client: str, codec: Codec) -> None:
    name = codec.name.lower()
    await server.engine.put_topic("t", TopicConfig(compression_type=CompressionType(name)))
    sent: list[Sent] = [(b"k%d" % n, b'{"item":"tea","n":%d}' % n, [("h", b"x")], NOW + n) for n in range(300)]
    await CLIENTS["confluent"].produce(server.address, "t", sent, name)
    wire = await server.connect()
    assert (await fetched_by(wire))[0] == codec
    found = await CLIENTS[client].read(server.address, "t", len(sent))
    assert found == [*enumerate(sent)]


async def test_tools_set_and_see_compression_type(server: KafkaServer) -> None:

    def run() -> list[str]:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic("t", 1, 1, config={"compression.type": "lz4"})])["t"].result(20)

        def shown() -> str:
            [future] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "t")]).values()
            return future.result(20)["compression.type"].value

        found = [shown()]
        entry = ConfigEntry("compression.type", "zstd", incremental_operation=AlterConfigOpType.SET)
        change = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
        [future] = admin.incremental_alter_configs([change]).values()
        future.result(20)
        found.append(shown())
        return found

    assert await asyncio.to_thread(run) == ["lz4", "zstd"]
    assert server.engine.state("t").config.compression_type is CompressionType.ZSTD
