"""Committed offsets of groups: the cursors of consumers named `group:<id>`, one in each partition.

The committed offset is the next one to read, which equals the seq of the last processed record. Source:
docs/guides/kafka.md#how-kafka-maps-to-topics, docs/guides/kafka.md#consumer-groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.kafka import consumer_name
from broker.proxy.errors import Unprocessable
from storage import ConsumerNotFound, Durability, TopicType
from storage.records import address

if TYPE_CHECKING:
    from broker.proxy.assignment import Partition
    from storage import Engine


def keeps_offsets(engine: Engine, topic: str) -> bool:
    """Whether a topic, or a partition by its address, can have consumers; queues and topics in memory cannot. Raises
    TopicNotFound."""
    config = engine.topic(topic).config
    return config.type is TopicType.LOG and config.durability is not Durability.EPHEMERAL


def committed(engine: Engine, group: str, partition: Partition) -> tuple[int, str] | None:
    """The group's committed offset and its metadata; None if nothing is committed.

    The offset may be negative or beyond the head: groups may commit any number. Raises TopicNotFound.
    """
    if not keeps_offsets(engine, address(*partition)):
        return None
    try:
        found = engine.consumers.committed(address(*partition), _name(group))
    except ConsumerNotFound:
        return None
    return found.seq, (found.metadata or b"").decode("utf-8", "replace")


def check_group(group: str) -> None:
    """Raises Unprocessable for a group id that cannot have committed offsets."""
    _name(group)


def _name(group: str) -> str:
    name = consumer_name(group)
    if name is None:
        raise Unprocessable("The group's name is too long.")
    return name


async def commit(engine: Engine, group: str, partition: Partition, offset: int, metadata: str | None = None) -> None:
    """Commit `offset` for the group, forward or back, also beyond the end. Durable on return.

    Raises InvalidRequest for a topic without consumers, TopicNotFound, Unavailable.
    """
    metadata_bytes = metadata.encode() if metadata else None
    await engine.consumers.commit_offset(address(*partition), _name(group), offset, metadata_bytes)
