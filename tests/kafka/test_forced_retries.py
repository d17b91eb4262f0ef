"""An idempotent producer whose answers are lost retries, and every record is stored once, in order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from storage import Durability, TopicConfig
from storage.records.values import ReadQuery
from tests.kafka.clients import CLIENTS, Sent
from tests.kafka.server import KafkaServer
from tests.kafka.severing import SeveringProxy
from tests.support.ports import free_port

RECORDS = 3000


#: Each client sends many small batches, and reconnects soon after its connection was broken.
SETTINGS: dict[str, dict[str, Any]] = {
    "confluent": {
        "enable.idempotence": True,
        "batch.num.messages": 20,
        "retry.backoff.ms": 5,
        "reconnect.backoff.ms": 5,
        "reconnect.backoff.max.ms": 20,
        "log_level": 0,
    },
    "aiokafka": {"enable_idempotence": True, "max_batch_size": 250, "retry_backoff_ms": 5},
    "kafka-python": {
        "enable_idempotence": True,
        "batch_size": 250,
        "retry_backoff_ms": 5,
        "reconnect_backoff_ms": 5,
        "reconnect_backoff_max_ms": 20,
    },
}


@pytest.mark.parametrize(
    ("client", "durability"),
    [
        ("confluent", Durability.DISK),
        ("confluent", Durability.FSYNC),
        ("aiokafka", Durability.FSYNC),
        ("kafka-python", Durability.FSYNC),
    ],
)
async def test_every_record_is_stored_once(tmp_path: Path, client: str, durability: Durability) -> None:
    dice = random.Random(random.getrandbits(64))
    many: list[Sent] = [(None, b"%d" % number, [], 1_700_000_000_000) for number in range(RECORDS)]
    # The broker has to send clients to the proxy, which only exists when the broker does.
    advertised = free_port()
    async with KafkaServer(tmp_path, kafka_advertised=f"127.0.0.1:{advertised}") as server:
        await server.engine.put_topic("t", TopicConfig(durability=durability))
        async with SeveringProxy(server.port.number, dice, least=700, most=1300, port=advertised) as proxy:
            address = f"127.0.0.1:{advertised}"
            offsets = await CLIENTS[client].produce(address, "t", many, "none", **SETTINGS[client])
            assert proxy.severed > 3
        found = (await server.engine.read("t", ReadQuery(limit=10_000))).records
        assert [record.data for record in found] == [value for _, value, _, _ in many]
        assert offsets == [*range(RECORDS)]
