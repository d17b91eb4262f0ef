"""OffsetDelete was refused as a whole while a group had members. Kafka refuses it only for the topics that the members
read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.kafka.apis import ApiKey
from broker.kafka.errors import ErrorCode
from broker.kafka.groups.consumer_protocol import subscription
from broker.kafka.messages import groups as m
from broker.kafka.messages import offsets as o
from tests.kafka.groups.test_calls import joined
from tests.kafka.server import KafkaServer, Wire


async def deleted(wire: Wire, topics: Sequence[str]) -> tuple[int, list[int]]:
    parts = [o.OffsetDeleteRequestPartition(partition_index=0)]
    asked = [o.OffsetDeleteRequestTopic(name=name, partitions=parts) for name in topics]
    request = o.OffsetDeleteRequest(group_id="g", topics=asked)
    told = await wire.ask(ApiKey.OFFSET_DELETE, 0, request, o.OffsetDeleteResponse)
    return told.error_code, [topic.partitions[0].error_code for topic in told.topics]


@pytest.mark.parametrize(
    ("kind", "metadata", "error", "parts"),
    [
        ("consumer", subscription(["read"]), 0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]),
        ("consumer", b"what its members read is not told", ErrorCode.NON_EMPTY_GROUP, []),
        ("connect", subscription(["read"]), ErrorCode.NON_EMPTY_GROUP, []),
    ],
)
async def test_only_offsets_of_topics_read_by_members_are_kept(
    tmp_path: Path, kind: str, metadata: bytes, error: int, parts: list[int]
) -> None:
    async with KafkaServer(tmp_path, kafka_rebalance_delay_ms=0) as server:
        for name in ("read", "left"):
            await server.engine.put_topic(name)
            await server.engine.append(name, b"1")
            await server.broker.kafka_offsets.commit("g", name, 0, 1, "")
        wire = await server.connect()
        protocols = [m.JoinGroupRequestProtocol(name="range", metadata=metadata)]
        assert (await joined(wire, "g", protocol_type=kind, protocols=protocols)).error_code == 0
        assert await deleted(wire, ["read", "left"]) == (error, parts)
        kept = {name for name, *_ in server.broker.kafka_offsets.all("g")}
        assert kept == ({"read"} if parts else {"read", "left"})
