"""Reading with several consumers of librdkafka at once, from one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, Message

PATIENCE_S = 20.0


def poll(consumers: Sequence[Consumer], enough: Callable[[list[Message]], bool]) -> list[Message]:
    """The records that the consumers get, until there are enough. Raises AssertionError if there are never enough."""
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < deadline, f"{len(found)} records, {[held(each) for each in consumers]}"
        for consumer in consumers:
            message = consumer.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
    return found


def held(consumer: Consumer) -> set[tuple[str, int]]:
    """The partitions that the consumer has."""
    return {(each.topic, each.partition) for each in consumer.assignment()}


def until_shared(consumers: Sequence[Consumer], each: int) -> list[Message]:
    """Poll until each consumer has this many partitions, and no partition has two consumers."""

    def shared(_: list[Message]) -> bool:
        parts = [held(consumer) for consumer in consumers]
        return all(len(part) == each for part in parts) and len(set().union(*parts)) == each * len(parts)

    return poll(consumers, shared)


def values(messages: Sequence[Message]) -> list[str]:
    return sorted(message.value().decode() for message in messages)
