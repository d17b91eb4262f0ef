"""Committed offsets of groups: the cursors of consumers named `group:<id>`, one in each partition.

The committed offset is the next one to be read, which is the seq of the last record that is done with. Source:
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
    """Whether a topic has consumers at all: neither queues nor topics in memory only have. Raises TopicNotFound."""
    config = engine.topic(topic).config
    return config.type is TopicType.LOG and config.durability is not Durability.EPHEMERAL


def committed(engine: Engine, group: str, partition: Partition) -> tuple[int, str] | None:
    """The offset that the group has committed, and the metadata with it; None: nothing is committed.

    It may be negative or beyond the head: groups commit what they like. Raises TopicNotFound.
    """
    if not keeps_offsets(engine, partition[0]):
        return None
    try:
        found = engine.consumers.committed(address(*partition), _name(group))
    except ConsumerNotFound:
        return None
    return found.seq, (found.metadata or b"").decode("utf-8", "replace")


def check_group(group: str) -> None:
    """Raises Unprocessable for a name under which nothing can be committed."""
    _name(group)


def _name(group: str) -> str:
    name = consumer_name(group)
    if name is None:
        raise Unprocessable("The group's name is too long.")
    return name


async def commit(engine: Engine, group: str, partition: Partition, offset: int, metadata: str | None = None) -> None:
    """The group has committed `offset`, forward or back; beyond the end too. Durable on return.

    Raises InvalidRequest for a topic without consumers, TopicNotFound, Unavailable.
    """
    metadata_bytes = metadata.encode() if metadata else None
    await engine.consumers.commit_offset(address(*partition), _name(group), offset, metadata_bytes)
