"""Requests with any content: the broker continues, and no call ends in an internal error."""

from __future__ import annotations

import os
import random
from typing import Any

from broker.kafka.apis import APIS, Api, ApiKey
from broker.kafka.codec.schema import encode
from broker.kafka.messages.session import ApiVersionsRequest, ApiVersionsResponse
from tests.conftest import is_soak
from tests.kafka.server import KafkaServer, Wire
from tests.unit.kafka.random_messages import filled
from tests.unit.kafka.test_messages import REQUESTS, api_of

ROUNDS = 4000 if is_soak(os.environ) else 150

#: Calls that wait for other members of a group, as long as the request says.
WAITING = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}


def kinds(server: KafkaServer) -> list[tuple[Api, Any]]:
    """All declared and handled requests."""
    found = [(api_of(name), kind) for name, kind in REQUESTS.items()]
    return [(api, kind) for api, kind in found if api.key in server.port.handlers and api.key not in WAITING]


def refusals(server: KafkaServer) -> float:
    family = next(each for each in server.port.metrics.families() if each.name == "topics_kafka_refused")
    return sum(sample.value for sample in family.samples)


async def outcome(server: KafkaServer, wire: Wire, key: int, version: int, body: bytes) -> None:
    """The request is answered, or the connection ends as for a client with another protocol."""
    before = refusals(server)
    wire.send(key, version, body)
    try:
        await wire.answer()
    except (EOFError, ConnectionResetError):
        assert refusals(server) == before + 1, f"{ApiKey(key).name} v{version} {body!r} ended in a defect"


async def test_requests_with_random_fields_do_no_harm(server: KafkaServer) -> None:
    dice = random.Random(random.getrandbits(32))
    for api, kind in kinds(server):
        for _ in range(max(3, ROUNDS // 30)):
            version = dice.randint(api.first, api.last)
            request: Any = filled(kind, version, dice.randrange(1 << 30))
            await outcome(server, await server.connect(), api.key, version, encode(request, version))
    await still_served(server)


async def test_requests_with_changed_bytes_do_no_harm(server: KafkaServer) -> None:
    dice = random.Random(random.getrandbits(32))
    for _ in range(ROUNDS):
        api, kind = dice.choice(kinds(server))
        version = dice.randint(api.first, api.last)
        body = bytearray(encode(filled(kind, version, dice.randrange(1 << 30)), version))
        for _ in range(dice.randint(1, 3)):
            if body:
                body[dice.randrange(len(body))] = dice.randrange(256)
        await outcome(server, await server.connect(), api.key, version, bytes(body[: dice.randint(0, len(body))]))
    await still_served(server)


async def test_random_headers_do_no_harm(server: KafkaServer) -> None:
    dice = random.Random(random.getrandbits(32))
    for _ in range(ROUNDS):
        wire = await server.connect()
        frame = dice.choice(list(APIS)).to_bytes(2, "big") + dice.randbytes(dice.randrange(40))
        wire.raw(len(frame).to_bytes(4, "big") + frame)
        wire.writer.write_eof()
        await wire.reader.read()
    await still_served(server)


async def still_served(server: KafkaServer) -> None:
    wire = await server.connect()
    assert (await wire.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)).error_code == 0
    family = next(each for each in server.port.metrics.families() if each.name == "topics_kafka_errors")
    assert [sample.labels for sample in family.samples if "UNKNOWN_SERVER_ERROR" in str(sample.labels)] == []
