"""The first requests of every client, and clients that speak another protocol."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from broker.kafka.apis import APIS, ApiKey
from broker.kafka.codec.produce import FIRST_SERVED
from broker.kafka.codec.schema import decode, encode
from broker.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from broker.kafka.messages.session import ApiVersionsRequest, ApiVersionsResponse
from tests.kafka.server import KafkaServer

VERSIONS = ApiKey.API_VERSIONS


async def is_served(server: KafkaServer) -> None:
    """A new connection is answered."""
    wire = await server.connect()
    assert (await wire.ask(VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)).error_code == 0


@pytest.mark.parametrize("version", range(APIS[VERSIONS].last + 1))
async def test_every_handled_api_is_advertised(server: KafkaServer, version: int) -> None:
    wire = await server.connect()
    answer = await wire.ask(VERSIONS, version, ApiVersionsRequest(), ApiVersionsResponse)
    shown = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert shown == {key: (APIS[key].first, APIS[key].last) for key in server.port.handlers}


async def test_unsupported_api_versions_is_answered_in_version_0(server: KafkaServer) -> None:
    wire = await server.connect()
    wire.send(VERSIONS, 5, b"\0whatever the future has")
    _, body = await wire.answer()
    answer = decode(ApiVersionsResponse, 0, body)
    assert answer.error_code == 35
    assert {each.api_key for each in answer.api_keys} == set(server.port.handlers)
    assert (await wire.ask(VERSIONS, 3, ApiVersionsRequest(), ApiVersionsResponse)).error_code == 0


async def test_answers_come_in_the_order_of_requests(server: KafkaServer) -> None:
    wire = await server.connect()
    sent = [wire.send(VERSIONS, 0, b"") for _ in range(50)]
    assert [(await wire.answer())[0] for _ in sent] == sent


async def test_trailing_bytes_and_tagged_fields_are_ignored(server: KafkaServer) -> None:
    wire = await server.connect()
    wire.send(ApiKey.METADATA, 9, encode(MetadataRequest(topics=None), 9) + b"abc")
    assert decode(MetadataResponse, 9, (await wire.answer())[1], 1).brokers
    tagged = encode(MetadataRequest(topics=None), 9)[:-1] + b"\x01\x63\x02ab"  # field 99, two bytes
    wire.send(ApiKey.METADATA, 9, tagged)
    assert decode(MetadataResponse, 9, (await wire.answer())[1], 1).brokers


@pytest.mark.parametrize(("key", "version"), [(4, 0), (999, 0), (-1, 3), (ApiKey.METADATA, 99), (ApiKey.METADATA, -1)])
async def test_unsupported_request_closes_the_connection(server: KafkaServer, key: int, version: int) -> None:
    wire = await server.connect()
    wire.send(key, version, b"")
    await wire.ended()
    await is_served(server)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff\0\0",
        b"\0\0\0\0",
        b"\0\0\0\1\0",
        b"\0\0\0\2\0\3",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
        struct.pack(">ihhih", 10, ApiKey.METADATA, 1, 7, 100),  # a client id of 100 bytes
        struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 7, -1, 1 << 30),  # a thousand million topics
    ],
    ids=repr,
)
async def test_a_malformed_request_closes_only_its_connection(server: KafkaServer, data: bytes) -> None:
    wire = await server.connect()
    wire.raw(data)
    await wire.ended()
    await is_served(server)
    assert any(
        sample.value for family in server.port.metrics.families() if family.name == "topics_kafka_refused"
        for sample in family.samples
    )  # fmt: skip


async def test_request_may_arrive_byte_by_byte(server: KafkaServer) -> None:
    wire = await server.connect()
    frame = struct.pack(">hhih", VERSIONS, 0, 77, -1)
    for byte in struct.pack(">i", len(frame)) + frame:
        wire.raw(bytes([byte]))
        await wire.writer.drain()
    assert (await wire.answer())[0] == 77


async def test_requests_are_counted_by_kind_and_errors_by_code(server: KafkaServer) -> None:
    wire = await server.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="no name")])
    assert (await wire.ask(ApiKey.METADATA, 5, request, MetadataResponse)).topics[0].error_code == 17
    families = {family.name: family.samples for family in server.port.metrics.families()}
    labels = (("api", "metadata"), ("error", "INVALID_TOPIC_EXCEPTION"))
    assert [sample.value for sample in families["topics_kafka_errors"] if sample.labels == labels] == [1]
    assert [sample.labels for sample in families["topics_kafka_request_seconds"]] == [(("api", "metadata"),)]
    assert families["topics_kafka_connections"][0].value == 1


def test_the_documented_versions_are_the_served_versions() -> None:
    """The table in docs/guides/kafka.md. Produce is served from version 3 on, and listed from 0 on."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "kafka.md").read_text()
    rows = re.findall(r"^\| (\w+) \| (\d+)(?: to (\d+))? \|", text, re.MULTILINE)
    said = {name: (int(first), int(last or first)) for name, first, last in rows}
    served = {ApiKey(key).name.replace("_", "").lower(): (api.first, api.last) for key, api in APIS.items()}
    served["produce"] = (FIRST_SERVED, APIS[ApiKey.PRODUCE].last)
    assert {name.lower(): span for name, span in said.items()} == served
