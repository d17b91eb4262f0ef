"""What is remembered of the topics of other cells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from broker.kafka.described import Described, Shape
from broker.kafka.errors import ErrorCode
from broker.kafka.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

#: Of three: node 8 is cell 1 in generation 2.
CELLS: Any = SimpleNamespace(count=3)
ID = bytes(range(16))


def a_topic(name: str, *nodes: int, topic_id: bytes = ID, error: ErrorCode = ErrorCode.NONE) -> MetadataResponseTopic:
    """With a partition for each node; a negative one is away."""
    partitions = [
        MetadataResponsePartition(partition_index=number, leader_id=max(node, -1), replica_nodes=[abs(node)])
        for number, node in enumerate(nodes)
    ]
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=partitions)


def test_the_cells_of_partitions_are_remembered_whoever_owns_them() -> None:
    memory = Described()
    memory.note(a_topic("t", 8, -9, 1), CELLS)
    assert memory.of("t") == Shape(ID, (1, 2, 0))
    memory.note(a_topic("t", 11, 9, 1, 2, topic_id=bytes(16)), CELLS)  # an older version: it has no ids
    assert memory.of("t") == Shape(ID, (1, 2, 0, 1))


def test_a_topic_that_is_gone_is_forgotten_and_no_other() -> None:
    memory = Described()
    for name in ("a", "b"):
        memory.note(a_topic(name, 1), CELLS)
    memory.note(a_topic("a", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), CELLS)
    assert memory.of("a") is not None
    memory.note(a_topic("a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), CELLS)
    assert memory.of("a") is None
    assert memory.of("b") is not None


def test_the_topic_used_longest_ago_makes_room() -> None:
    memory = Described(most=4)
    memory.note(a_topic("a", 1, 1), CELLS)
    memory.note(a_topic("b", 1), CELLS)
    memory.of("a")
    memory.note(a_topic("c", 1, 1), CELLS)
    assert [memory.of(name) is not None for name in "abc"] == [True, False, True]
    memory.note(a_topic("d", 1, 1, 1, 1, 1), CELLS)
    assert memory.of("d") is None
