"""Writes to a topic as a whole: which of its partitions they go to.

A write goes to one partition: the one asked for; else the one that knows its idempotency key; else partition 0 if an
`expected_seq` is to be met; else where the tags of its records belong; else to one after the other.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.config import TopicConfig
from storage.errors import InvalidRequest
from storage.records.partitions import address, partition_of_tags
from storage.records.values import Appended, NewRecord, PlainRecords
from storage.state.catalog import Topic
from storage.state.keys import key_digest

if TYPE_CHECKING:
    from storage.engine import Engine


def needs_choice(engine: Engine, name: str, partition: int | None, config: TopicConfig | None) -> bool:
    """Whether `append` here is to be used: the topic has several partitions, or may come to have them, or one is
    asked for that an ordinary topic has not."""
    return bool(partition) or name in engine.catalog.partitioned or (config is not None and config.partitions > 1)


async def append(
    engine: Engine,
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
    """As `Engine.append`, for any number of partitions; the answer says which.

    Raises InvalidRequest for a partition that there is not, and for tags that do not belong together.
    """
    topic = engine.catalog.topics.get(name)
    created = False
    if topic is None and create and config is not None and config.partitions > 1:
        _, created = await engine.put_topic(name, config)  # else another write was faster, and its config counts
    topic = engine.topic(name) if topic is None or topic.provisional else topic
    digest = None if idempotency_key is None else key_digest(idempotency_key)
    chosen = _choose(engine, topic, records, partition, digest, expected_seq)
    if digest is not None:
        topic.routed.setdefault(digest, []).append(chosen)
    try:
        done = await engine.append(
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
    engine: Engine,
    topic: Topic,
    records: Sequence[NewRecord] | PlainRecords,
    partition: int | None,
    digest: bytes | None,
    expected_seq: int | None,
) -> int:
    there = 1 + len(topic.others)
    if partition is not None and partition >= there:
        raise InvalidRequest(f"partition: {topic.name} has {there}, counted from 0.", field="partition")
    if digest is not None and (known := _knowing(engine, topic, digest)) is not None:
        return known
    if partition is not None or there == 1 or expected_seq is not None:
        return partition or 0
    tags = () if isinstance(records, PlainRecords) else (record.tag for record in records)
    by_tag = partition_of_tags(tags, there)
    if by_tag is not None:
        return by_tag
    chosen = topic.next_partition % there
    topic.next_partition = chosen + 1
    return chosen


def _knowing(engine: Engine, topic: Topic, digest: bytes) -> int | None:
    """The partition that a write with this key went to, or is on its way to."""
    if (routed := topic.routed.get(digest)) is not None:
        return routed[0]
    now_ms, window_ms = engine.now_ms(), topic.config.idempotency_window_ms
    for part in (topic, *topic.others):
        keys = part.log.keys
        under_way = (part.topic_id, digest) in engine.pending_keys
        if under_way or (keys is not None and keys.find(digest, now_ms, window_ms) is not None):
            return part.partition
    return None
