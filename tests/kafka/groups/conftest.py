"""Shared parts of the group tests: a broker, and its clients by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.kafka.groups.server import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "data", kafka_min_session_ms=1000) as server:
        yield server


@pytest.fixture
def produce(server: Server) -> Callable[..., None]:
    """`produce("topic", "a", "b")`: on return these values are acked."""

    def produce(topic: str, *values: str) -> None:
        producer = Producer({"bootstrap.servers": server.address, "log_level": 0})
        for value in values:
            producer.produce(topic, value.encode())
        assert producer.flush(20) == 0

    return produce


@pytest.fixture
def member(server: Server) -> Iterator[Callable[..., Consumer]]:
    """`member("group", "topic")`: a consumer of librdkafka, closed at the end."""
    made: list[Consumer] = []

    def member(group: str, *topics: str, **config: Any) -> Consumer:
        named = {key.replace("_", "."): value for key, value in config.items()}
        consumer = Consumer(
            {
                "bootstrap.servers": server.address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 100,
                "enable.auto.commit": False,
                "partition.assignment.strategy": "roundrobin",
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
                **named,
            }
        )
        made.append(consumer)
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    yield member
    for consumer in made:
        try:
            _close(consumer)
        except (RuntimeError, KafkaException):
            continue  # closed by the test


def _close(consumer: Consumer) -> None:
    """Leave first, and handle the events before that: librdkafka waits for ever, and blocks the interpreter, if a
    consumer is closed before its new assignment was delivered.
    """
    consumer.unsubscribe()
    for _ in range(100):
        if consumer.poll(0.05) is None:
            break
    consumer.close()
