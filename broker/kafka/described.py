"""What other cells last said of their topics, for the time when one of them is away.

A client takes a topic without partitions for one that is being made. A group whose leader is told of such a topic
assigns nothing, and some clients stay so when it is back. In Kafka, each broker knows the partitions of all topics, and
says of those that are away that they have no leader. A cell that has just started has been told nothing yet: it asks
the other cells what they remember.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from broker.kafka.cluster import NO_LEADER, NO_UUID, cell_of_node
from broker.kafka.errors import ErrorCode
from storage import StorageError

if TYPE_CHECKING:
    from broker.kafka.messages.metadata import MetadataResponseTopic
    from broker.kafka.node import Cells

#: The method by which a cell asks another one.
RECALL: Final = "kafka_recall"
#: The most topics that other cells are asked for at a time, and how long that may take.
MOST_ASKED: Final = 1000
ASK_S: Final = 1.0
#: The most partitions remembered, of all topics together. Those of the topic used longest ago are forgotten first.
MAX_PARTITIONS: Final = 100_000
#: Errors that say something of the topic, and not only of the client.
_OF_TOPIC: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Shape(NamedTuple):
    """A topic of another cell. `topic_id`: null if only older versions asked for it. `cells`: of each partition."""

    topic_id: bytes
    cells: tuple[int, ...]


class Described:
    """See the module."""

    def __init__(self, most: int = MAX_PARTITIONS) -> None:
        self._most = most
        self._topics: OrderedDict[str, Shape] = OrderedDict()
        self._partitions = 0

    def note(self, topic: MetadataResponseTopic, cells: Cells) -> None:
        """Remember what its cell has said of a topic, or forget the topic if it does not exist, or is being made."""
        assert topic.name is not None
        if topic.error_code not in _OF_TOPIC:
            return
        old = self._topics.pop(topic.name, None)
        if old is not None:
            self._partitions -= len(old.cells)
        if topic.error_code != ErrorCode.NONE or len(topic.partitions) > self._most:
            return
        topic_id = old.topic_id if old is not None and topic.topic_id == NO_UUID else topic.topic_id
        nodes = [each.replica_nodes[0] if each.leader_id == NO_LEADER else each.leader_id for each in topic.partitions]
        self._topics[topic.name] = Shape(topic_id, tuple(cell_of_node(cells, node) for node in nodes))
        self._partitions += len(nodes)
        while self._partitions > self._most:
            _, oldest = self._topics.popitem(last=False)
            self._partitions -= len(oldest.cells)

    async def recall(self, names: Collection[str]) -> list[Shape | None]:
        """What this cell remembers of these topics: the handler of `RECALL` for other cells."""
        return [self._topics.get(name) for name in names]

    def of(self, name: str) -> Shape | None:
        """The topic of that name. None: nothing is remembered."""
        found = self._topics.get(name)
        if found is not None:
            self._topics.move_to_end(name)
        return found


async def recalled(cells: Cells, names: Iterable[str]) -> dict[str, Shape]:
    """What other cells remember of topics whose cells are away. Whoever does not answer knows nothing.

    What one cell has from another is not remembered: it may be deleted by then, and nobody would forget it.
    """
    asked = list(dict.fromkeys(names))[:MOST_ASKED]
    away = {cells.owner(name) for name in asked}
    others = [cell for cell in range(cells.count) if cell != cells.me and cell not in away] if asked else []

    async def ask(cell: int) -> list[Any]:
        try:
            return await cells.peers.call(cell, RECALL, asked, timeout_s=ASK_S)
        except StorageError:
            return []

    found: dict[str, Shape] = {}
    for answer in await asyncio.gather(*(ask(cell) for cell in others)):
        for name, each in zip(asked, answer, strict=False):
            if each is not None:
                shape = msgspec.convert(each, Shape)
                found[name] = newest((found.get(name, shape), shape)) or shape
    return found


def newest(shapes: Iterable[Shape]) -> Shape | None:
    """The one that was told last: the ids of topics grow, and so do their partitions. None: there is none."""
    return max(shapes, key=lambda one: (one.topic_id, len(one.cells)), default=None)
