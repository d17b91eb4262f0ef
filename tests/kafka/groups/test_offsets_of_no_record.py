"""Offsets without a record, which librdkafka commits and continues from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.groups.server import Server

OFFSET = 1 << 40


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_offset_beyond_the_head_follows_the_reset_policy(
    server: Server, member: Callable[..., Consumer], reset: str
) -> None:
    producer = Producer({"bootstrap.servers": server.address})
    for _ in range(3):
        producer.produce("a", b"before")
    assert producer.flush(20) == 0
    client = member("g")
    [done] = client.commit(offsets=[TopicPartition("a", 0, OFFSET, metadata="m")], asynchronous=False)
    assert done.error is None
    [found] = client.committed([TopicPartition("a", 0)])
    assert (found.offset, found.metadata) == (OFFSET, "m")
    client.close()
    reader = member("g", "a", auto_offset_reset=reset)
    for _ in range(600):
        message = reader.poll(0.05)
        if message is not None and message.error() is None:
            assert message.value() == (b"before" if reset == "earliest" else b"behind")
            break
        if reset == "latest" and reader.assignment():
            # Its reset comes at some time between these.
            producer.produce("a", b"behind")
            assert producer.flush(20) == 0
    else:
        pytest.fail("nothing was read")
