"""Chooses the partition of a write to a topic.

In this order: the partition that the write asks for; the one that knows its idempotency key; partition 0 if the write
has an `expected_seq`; the one that the tags of its records map to; the next one, round robin.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.config import TopicConfig
from storage.errors import InvalidRequest
from storage.log import Logs
from storage.records import Appended, NewRecord, PlainRecords, TopicState, address, partition_of_tags
from storage.state import Topic, key_digest


class Topics(Protocol):
    """The topics of an engine, as writes to them need them: `storage.engine.Engine`."""

    logs: Logs

    async def put_topic(self, name: str, config: TopicConfig | None = None) -> tuple[TopicState, bool]: ...

    async def append(
        self,
        name: str,
        records: Sequence[NewRecord] | PlainRecords,
        *,
        node: str | None = None,
        idempotency_key: str | None = None,
        idempotency_strict: bool = False,
        create: bool = True,
        expected_seq: int | None = None,
    ) -> Appended: ...


def needs_choice(topics: Topics, name: str, partition: int | None, config: TopicConfig | None) -> bool:
    """Whether a write needs `append` of this module: the topic has several partitions or may get them, or the write
    asks for a partition above 0."""
    return bool(partition) or name in topics.logs.catalog.partitioned or (config is not None and config.partitions > 1)


async def append(
    topics: Topics,
    name: str,
    records: Sequence[NewRecord] | PlainRecords,
    *,
    partition: int | None = None,
    node: str | None = None,
    idempotency_key: str | None = None,
    idempotency_strict: bool = False,
    create: bool = True,
    config: TopicConfig | None = None,
    expected_seq: int | None = None,
) -> Appended:
    """`Engine.append` for any number of partitions; the answer names the one that was chosen.

    Raises InvalidRequest for a partition that does not exist, and for tags that map to different partitions.
    """
    topic = topics.logs.catalog.topics.get(name)
    created = False
    if topic is None and create and config is not None and config.partitions > 1:
        _, created = await topics.put_topic(name, config)  # else another write was first, and its config counts
    topic = topics.logs.topic(name) if topic is None or topic.provisional else topic
    digest = None if idempotency_key is None else key_digest(idempotency_key)
    chosen = _choose(topics.logs, topic, records, partition, digest, expected_seq)
    if digest is not None:
        topic.routed.setdefault(digest, []).append(chosen)
    try:
        done = await topics.append(
            address(name, chosen),
            records if isinstance(records, PlainRecords) else list(records),
            node=node,
            idempotency_key=idempotency_key,
            idempotency_strict=idempotency_strict,
            create=False,
            expected_seq=expected_seq,
        )
    finally:
        if digest is not None:
            topic.routed[digest].remove(chosen)
            if not topic.routed[digest]:
                del topic.routed[digest]
    done.topic, done.created = name, created
    if topic.others:
        done.partition = chosen
    return done


def _choose(
    logs: Logs,
    topic: Topic,
    records: Sequence[NewRecord] | PlainRecords,
    partition: int | None,
    digest: bytes | None,
    expected_seq: int | None,
) -> int:
    count = 1 + len(topic.others)
    if partition is not None and partition >= count:
        raise InvalidRequest(f"partition: {topic.name} has {count}, counted from 0.", field="partition")
    if digest is not None and (known := _known_to(logs, topic, digest)) is not None:
        return known
    if partition is not None or count == 1 or expected_seq is not None:
        return partition or 0
    tags = () if isinstance(records, PlainRecords) else (record.tag for record in records)
    by_tag = partition_of_tags(tags, count)
    if by_tag is not None:
        return by_tag
    chosen = topic.next_partition % count
    topic.next_partition = chosen + 1
    return chosen


def _known_to(logs: Logs, topic: Topic, digest: bytes) -> int | None:
    """The partition that has a write with this key, committed or in flight."""
    if (routed := topic.routed.get(digest)) is not None:
        return routed[0]
    now_ms, window_ms = logs.now_ms(), topic.config.idempotency_window_ms
    for part in (topic, *topic.others):
        keys = part.log.keys
        under_way = (part.topic_id, digest) in logs.pending_keys
        if under_way or (keys is not None and keys.find(digest, now_ms, window_ms) is not None):
            return part.partition
    return None
