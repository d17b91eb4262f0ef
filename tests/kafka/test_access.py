"""Keys with SASL/PLAIN, their rights, and TLS."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

from broker.kafka.apis import ApiKey
from broker.kafka.codec.schema import encode
from broker.kafka.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from broker.kafka.messages.session import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.kafka.server import KafkaServer, Wire
from tests.kafka.test_admin import PATIENCE_S, ask, confluent
from tests.support.certificate import certificate

KEYS = "all,reader:r,writer:w,own:rw+d+a:own.,admin:a"


def plain(key: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": key,
    }  # fmt: skip


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[KafkaServer]:
    # Nobody is cut off here for being slow.
    async with KafkaServer(tmp_path, api_keys=KEYS, header_timeout_s=600) as server:
        yield server


def refused(server: KafkaServer) -> dict[str, float]:
    """Number of connections closed without an answer, by reason. Reasons without any are left out."""
    family = next(each for each in server.port.metrics.families() if each.name == "topics_kafka_refused")
    return {sample.labels[0][1]: sample.value for sample in family.samples if sample.value}


async def known(server: KafkaServer, key: str) -> Wire:
    """A connection that has authenticated with its key."""
    wire = await server.connect()
    shaken = await wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    assert shaken.error_code == 0
    token = SaslAuthenticateRequest(auth_bytes=b"\0me\0" + key.encode())
    assert (await wire.ask(ApiKey.SASL_AUTHENTICATE, 2, token, SaslAuthenticateResponse)).error_code == 0
    return wire


async def codes(wire: Wire, *names: str, makes: bool = True) -> list[int]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=makes
    )
    return [topic.error_code for topic in (await wire.ask(ApiKey.METADATA, 9, request, MetadataResponse)).topics]


async def test_unauthenticated_client_gets_only_the_versions(guarded: KafkaServer) -> None:
    wire = await guarded.connect()
    assert (await wire.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(), ApiVersionsResponse)).error_code == 0
    wire.send(ApiKey.METADATA, 9, encode(MetadataRequest(topics=None), 9))
    await wire.ended()
    assert refused(guarded) == {"unauthenticated": 1}


@pytest.mark.parametrize("token", [b"", b"\0me\0nobody", b"\0me\0", b"all", b"\0\0\0\0", b"\xff\0\xff\0\xff"])
async def test_a_wrong_token_is_refused_and_ends_the_connection(guarded: KafkaServer, token: bytes) -> None:
    wire = await guarded.connect()
    await wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    answer = await wire.ask(
        ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse
    )
    assert answer.error_code == 58
    await wire.ended()


async def test_only_plain_is_accepted_and_only_after_a_handshake(guarded: KafkaServer) -> None:
    wire = await guarded.connect()
    answer = await wire.ask(
        ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=b"\0me\0all"), SaslAuthenticateResponse
    )
    assert answer.error_code == 34
    shaken = await wire.ask(
        ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), SaslHandshakeResponse
    )
    assert (shaken.error_code, shaken.mechanisms) == (33, ["PLAIN"])


async def test_the_first_handshake_is_followed_by_a_bare_token(guarded: KafkaServer) -> None:
    for key, well in ((b"all", True), (b"nobody", False)):
        wire = await guarded.connect()
        await wire.ask(ApiKey.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        token = b"\0me\0" + key
        wire.raw(struct.pack(">i", len(token)) + token)
        if well:
            assert await wire.reader.readexactly(4) == bytes(4)
            assert await codes(wire, "t") == [0]
        else:
            await wire.ended()


async def test_frames_of_unauthenticated_clients_are_bounded(guarded: KafkaServer) -> None:
    wire = await guarded.connect()
    wire.raw(struct.pack(">ihh", 1 << 20, ApiKey.PRODUCE, 9))
    await wire.ended()
    assert refused(guarded) == {"malformed": 1}


async def test_keys_cover_topics_by_prefix(guarded: KafkaServer) -> None:
    reader, writer, own = [await known(guarded, key) for key in ("reader", "writer", "own")]
    assert await codes(reader, "t") == [29]  # it would have to be created
    assert await codes(reader, "t", makes=False) == [3]
    assert await codes(writer, "t") == [0]
    assert await codes(reader, "t") == [0]
    assert await codes(own, "t", "own.t") == [29, 0]
    everything = MetadataRequest(topics=None)
    shown = await own.ask(ApiKey.METADATA, 9, everything, MetadataResponse)
    assert [topic.name for topic in shown.topics] == ["own.t"]
    shown = await reader.ask(ApiKey.METADATA, 9, everything, MetadataResponse)
    assert [topic.name for topic in shown.topics] == ["own.t", "t"]
    request = InitProducerIdRequest(transaction_timeout_ms=1000)
    for wire, code in ((reader, 31), (writer, 0)):
        answer = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, request, InitProducerIdResponse)
        assert answer.error_code == code


async def test_each_admin_call_needs_the_scope_of_the_call(guarded: KafkaServer) -> None:
    by: dict[str, Any] = {key: await confluent(guarded, **plain(key)) for key in ("reader", "writer", "admin", "own")}
    assert await ask(by["writer"].create_topics, [NewTopic("t", 1, 1)]) == {"t": 29}
    assert await ask(by["own"].create_topics, [NewTopic("t", 1, 1), NewTopic("own.t", 1, 1)]) == {
        "t": 29, "own.t": None,
    }  # fmt: skip
    assert await ask(by["admin"].create_topics, [NewTopic("t", 1, 1)]) == {"t": None}
    assert await ask(by["reader"].create_partitions, [NewPartitions("t", 2)]) == {"t": 29}
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    assert await ask(by["admin"].describe_configs, [resource]) == {"t": 29}
    assert "retention.ms" in (await ask(by["reader"].describe_configs, [resource]))["t"]
    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        "t",
        incremental_configs=[ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    assert await ask(by["reader"].incremental_alter_configs, [change]) == {"t": 29}
    assert await ask(by["admin"].delete_topics, ["t"]) == {"t": 29}
    assert await ask(by["own"].delete_topics, ["t", "own.t"]) == {"t": 29, "own.t": None}


async def test_a_broker_without_keys_takes_any_password(server: KafkaServer) -> None:
    admin = await confluent(server, **plain("whatever"))
    assert await ask(admin.create_topics, [NewTopic("t", 1, 1)]) == {"t": None}


@pytest.mark.parametrize(
    ("software", "code"),
    [("", 35), ("apache-kafka-java", 35), ("librdkafka", 53), ("confluent-kafka-python", 53)],
)
async def test_a_transactional_id_is_refused_for_good(server: KafkaServer, software: str, code: int) -> None:
    wire = await server.connect()
    version = "2.16.1-rdkafka-2.16.0" if software.startswith("confluent") else "1"
    said = ApiVersionsRequest(client_software_name=software, client_software_version=version)
    await wire.ask(ApiKey.API_VERSIONS, 3, said, ApiVersionsResponse)
    asked = FindCoordinatorRequest(key="tx", key_type=1)
    found = await wire.ask(ApiKey.FIND_COORDINATOR, 3, asked, FindCoordinatorResponse)
    assert (found.error_code, found.node_id) == (code, -1)
    assert "transactional.id" in (found.error_message or "")
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000)
    answer = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, request, InitProducerIdResponse)
    assert (answer.error_code, answer.producer_id) == (code, -1)


async def test_librdkafka_reports_missing_transactions_at_once(server: KafkaServer) -> None:
    producer = Producer({"bootstrap.servers": server.address, "transactional.id": "tx", "log_level": 0})
    with pytest.raises(KafkaException, match=r"do not set transactional\.id") as refused:
        await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    assert refused.value.args[0].fatal()


async def test_producer_ids_are_never_the_same_and_epochs_go_up(server: KafkaServer) -> None:
    wire = await server.connect()
    request = InitProducerIdRequest(transaction_timeout_ms=1000)
    answers = [await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, request, InitProducerIdResponse) for _ in range(3)]
    assert len({answer.producer_id for answer in answers}) == 3
    assert {answer.producer_epoch for answer in answers} == {0}
    again = InitProducerIdRequest(transaction_timeout_ms=1000, producer_id=answers[0].producer_id, producer_epoch=0)
    answer = await wire.ask(ApiKey.INIT_PRODUCER_ID, 4, again, InitProducerIdResponse)
    assert (answer.producer_id, answer.producer_epoch) == (answers[0].producer_id, 1)


async def test_keys_are_checked_over_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    async with KafkaServer(tmp_path, api_keys=KEYS, tls_cert=cert, tls_key=key) as server:
        secured = {**plain("all"), "security.protocol": "SASL_SSL", "ssl.ca.location": str(cert)}
        admin = await confluent(server, **secured)
        assert await ask(admin.create_topics, [NewTopic("t", 1, 1)]) == {"t": None}
        listed = await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)
        assert list(listed.topics) == ["t"]
