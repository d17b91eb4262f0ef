"""A padded answer has the same meaning."""

from __future__ import annotations

import pytest

from broker.kafka.codec.padding import padded
from broker.kafka.codec.schema import decode, encode
from broker.kafka.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


@pytest.mark.parametrize("size", [1, 127, 128, 40_000])
def test_padding_does_not_change_the_decoded_answer(size: int) -> None:
    topic = MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)])
    answer = MetadataResponse(topics=[topic], controller_id=1)
    body = encode(answer, 9)
    longer = padded(body, size)
    assert len(body) + size < len(longer) < len(body) + size + 8
    assert decode(MetadataResponse, 9, longer) == decode(MetadataResponse, 9, body)
