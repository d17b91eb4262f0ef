"""What is remembered of the topics of other cells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from broker.cells import PeerUnavailable
from broker.kafka.described import MOST_ASKED, RECALL, Described, Shape, recalled
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


class _Peers:
    """Answers what each cell remembers; None: the cell does not answer."""

    def __init__(self, remembered: dict[int, Described | None]) -> None:
        self._remembered = remembered
        self.asked: list[tuple[int, int]] = []

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float) -> Any:
        assert method == RECALL
        self.asked.append((cell, len(argument)))
        memory = self._remembered[cell]
        if memory is None:
            raise PeerUnavailable(cell, "unknown")
        return msgspec.msgpack.decode(msgspec.msgpack.encode(await memory.recall(argument)))


def cells_with(remembered: dict[int, Described | None]) -> tuple[Any, _Peers]:
    """Cell 0 of four, and the others. Cell 1 has all topics whose names begin with "a"."""
    peers = _Peers(remembered)
    owner = {"a": 1}
    return SimpleNamespace(count=4, me=0, peers=peers, owner=lambda name: owner.get(name[0], 2)), peers


async def test_the_newest_of_what_other_cells_remember_is_used() -> None:
    newer, older, changed = Described(), Described(), Described()
    four: Any = SimpleNamespace(count=4)
    older.note(a_topic("a-again", 1, 1, 1, topic_id=ID), four)
    newer.note(a_topic("a-again", 2, topic_id=bytes([*ID[:15], 99])), four)
    older.note(a_topic("a-grown", 1), four)
    changed.note(a_topic("a-grown", 1, 2), four)
    changed.note(a_topic("a-old", 3, topic_id=bytes(16)), four)
    names = ["a-again", "a-grown", "a-old", "a-nobody"]
    for remembered in ({2: older, 3: newer}, {2: newer, 3: older}):
        found = await recalled(cells_with({1: None, **remembered})[0], names)
        assert found == {"a-again": Shape(bytes([*ID[:15], 99]), (1,)), "a-grown": Shape(ID, (0,))}
    found = await recalled(cells_with({1: None, 2: changed, 3: older})[0], names)
    assert found["a-grown"] == Shape(ID, (0, 1))
    assert found["a-old"] == Shape(bytes(16), (2,))


async def test_cells_that_are_away_are_not_asked_and_no_cell_is_asked_for_too_many_topics() -> None:
    memory = Described()
    memory.note(a_topic("a-1", 1), CELLS)
    cells, peers = cells_with({1: None, 2: None, 3: memory})
    found = await recalled(cells, ["a-1", *(f"a-{number}" for number in range(3 * MOST_ASKED))])
    assert [*found] == ["a-1"]
    assert peers.asked == [(2, MOST_ASKED), (3, MOST_ASKED)]
    assert await recalled(cells, []) == {}
