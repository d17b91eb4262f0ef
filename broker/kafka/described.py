"""What other cells last said of their topics, for the time when one of them is away.

A client takes a topic without partitions for one that is being made. A group whose leader is told of such a topic
assigns nothing, and some clients stay so when it is back. In Kafka, each broker knows the partitions of all topics, and
says of those that are away that they have no leader.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.kafka.cluster import NO_LEADER, NO_UUID, cell_of_node
from broker.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from broker.kafka.messages.metadata import MetadataResponseTopic
    from broker.kafka.node import Cells

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

    def of(self, name: str) -> Shape | None:
        """The topic of that name. None: nothing is remembered."""
        found = self._topics.get(name)
        if found is not None:
            self._topics.move_to_end(name)
        return found
