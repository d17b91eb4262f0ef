"""A batch with keyless records for a compacted topic was refused without naming these records (KIP-467), so librdkafka
reported every record of the batch as invalid."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from broker.kafka.errors import ErrorCode
from storage import CleanupPolicy, TopicConfig
from tests.kafka.clients import PATIENCE_S
from tests.kafka.server import KafkaServer

INVALID, BESIDE_INVALID = ErrorCode.INVALID_RECORD, confluent_kafka.KafkaError._INVALID_DIFFERENT_RECORD


@pytest.mark.parametrize("policy", [CleanupPolicy.COMPACT, CleanupPolicy.BOTH])
async def test_a_refused_batch_names_its_records_without_a_key(tmp_path: Path, policy: CleanupPolicy) -> None:
    def produced(address: str) -> dict[int, int]:
        errors: dict[int, int] = {}
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 500})
        for number in range(10):

            def told(error: Any, _: object, number: int = number) -> None:
                errors[number] = 0 if error is None else error.code()

            producer.produce("t", b"x", key=None if number in (3, 7) else b"k", partition=0, on_delivery=told)
        assert producer.flush(PATIENCE_S) == 0
        return errors

    async with KafkaServer(tmp_path) as server:
        await server.engine.put_topic("t", TopicConfig(cleanup_policy=policy))
        errors = await asyncio.to_thread(produced, server.address)
        assert errors == {number: INVALID if number in (3, 7) else BESIDE_INVALID for number in range(10)}
        assert server.engine.state("t").head_seq == 0
