"""Where the records of a partition are, and whether a connection may have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import TopicNotFound
from storage.records.partitions import address

if TYPE_CHECKING:
    from broker.auth.scopes import Scopes
    from broker.kafka.call import Call
    from storage.state.catalog import Topic


def located(call: Call, scopes: Scopes, name: str, partition: int) -> tuple[str, Topic]:
    """The partition's address in the engine, and what is there. Raises Forbidden, TopicNotFound."""
    call.access.require(scopes, (name,))
    if partition >= 0 and "/" not in name:  # which is in addresses only
        partition_name = address(name, partition)
        topic = call.broker.engine.catalog.topics.get(partition_name)
        if topic is not None and not topic.provisional:
            return partition_name, topic
    raise TopicNotFound(name)


def log_start_offset(topic: Topic) -> int:
    """The offset of the first record there is, or would be."""
    return topic.log.earliest_seq - 1
