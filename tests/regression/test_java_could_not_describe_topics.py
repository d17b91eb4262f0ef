"""Java's Admin.describeTopics raised an exception: DescribeTopicPartitions answered null for lists of replicas that the
client iterates over."""

from __future__ import annotations

import struct
from pathlib import Path

from broker.kafka.apis import ApiKey
from broker.kafka.codec.schema import encode
from broker.kafka.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopicRequest,
)
from storage import TopicConfig
from tests.kafka.server import KafkaServer

#: Error, index, leader, epoch; [1] and [1] for replicas; then three empty arrays (null would be 0), and no tags.
PARTITION = struct.pack(">hiii", 0, 0, 1, 0) + 2 * (b"\x02" + struct.pack(">i", 1)) + b"\x01\x01\x01" + b"\x00"


async def test_lists_of_replicas_are_empty_and_not_null(tmp_path: Path) -> None:
    async with KafkaServer(tmp_path) as server:
        await server.engine.put_topic("orders", TopicConfig())
        wire = await server.connect()
        asked = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsTopicRequest(name="orders")])
        wire.send(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, encode(asked, 0))
        _, body = await wire.answer()
        assert PARTITION in body
