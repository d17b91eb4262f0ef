"""Chooses the partition of a write to a topic.

In this order: the partition that the write names; the one that knows its idempotency key; partition 0 if the write
has an `expected_seq`; the one that the tags of its records map to; the next one, round robin.

If partitions are in several cells, no cell knows all keys. A write with an idempotency key then goes to the partition
that its tags map to, or without tags to the one that the key maps to. After a topic has grown, that may be another one
than before: for as long as keys are remembered, the earlier one is asked first.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from storage.errors import InvalidRequest
from storage.log import Logs
from storage.records import (
    Appended,
    NewRecord,
    PlainRecords,
    TopicConfig,
    TopicState,
    address,
    partition_of,
    partition_of_tags,
)
from storage.state import Topic, key_digest
from storage.topics.remote_writes import Options, RemoteWrites


class Topics(Protocol):
    """The topics of an engine, as writes to them need them: `storage.engine.Engine`."""

    logs: Logs
    remote_writes: RemoteWrites

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
    names a partition above 0."""
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
    if topic is None and partition and address(name, partition) in topics.logs.catalog.topics:
        # Only this partition is here: another cell has the topic.
        done = await topics.append(
            address(name, partition),
            records,
            node=node,
            idempotency_key=idempotency_key,
            idempotency_strict=idempotency_strict,
            create=False,
            expected_seq=expected_seq,
        )
        done.topic, done.partition = name, partition
        return done
    if topic is None and create and config is not None and config.partitions > 1:
        _, created = await topics.put_topic(name, config)  # otherwise another write was first, and its config counts
    topic = topics.logs.topic(name) if topic is None or topic.provisional else topic
    if topic.placement is not None:
        options = Options(node, idempotency_key, idempotency_strict, expected_seq)
        done = await _append_spread(topics, topic, records, partition, options)
        done.created = created
        return done
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


async def _append_spread(
    topics: Topics,
    topic: Topic,
    records: Sequence[NewRecord] | PlainRecords,
    partition: int | None,
    options: Options,
) -> Appended:
    """`append` for a topic whose partitions are in several cells."""
    placement = topic.placement
    assert placement is not None
    count, key = len(placement.cells), options.idempotency_key
    if partition is not None and partition >= count:
        raise InvalidRequest(f"partition: {topic.name} has {count}, counted from 0.", field="partition")
    chosen = partition
    if chosen is None and options.expected_seq is not None:
        chosen = 0
    if chosen is None:
        tags = () if isinstance(records, PlainRecords) else [record.tag for record in records]
        chosen = _mapped(tags, key, count)
        if key is not None and chosen is not None and placement.before:
            earlier = _mapped(tags, key, placement.before)
            if earlier is not None and earlier != chosen and await _knows(topics, topic, earlier, key):
                chosen = earlier
    if chosen is None:
        chosen = topic.next_partition % count
        topic.next_partition = chosen + 1
    where = address(topic.name, chosen)
    cell = placement.cells[chosen]
    if cell == topics.logs.catalog.cell:
        done = await topics.append(
            where,
            records if isinstance(records, PlainRecords) else list(records),
            node=options.node,
            idempotency_key=key,
            idempotency_strict=options.idempotency_strict,
            create=False,
            expected_seq=options.expected_seq,
        )
    else:
        contents = records if isinstance(records, PlainRecords) else list(records)
        done = await topics.remote_writes.append(cell, where, contents, options)
    done.topic, done.partition = topic.name, chosen
    return done


def _mapped(tags: Sequence[str | None], key: str | None, count: int) -> int | None:
    """The partition that the tags map to, or the key. Raises InvalidRequest."""
    by_tag = partition_of_tags(tags, count)
    return by_tag if by_tag is not None or key is None else partition_of(key.encode(), count)


async def _knows(topics: Topics, topic: Topic, partition: int, key: str) -> bool:
    """Whether a partition of a topic that has grown since has a write with this key."""
    logs, placement = topics.logs, topic.placement
    assert placement is not None
    if logs.now_ms() - placement.grown_ms > topic.config.idempotency_window_ms:
        return False
    where, digest = address(topic.name, partition), key_digest(key)
    cell = placement.cells[partition]
    if cell == logs.catalog.cell:
        return topics.remote_writes.knows_here(logs.topic(where), digest)
    return await topics.remote_writes.knows(cell, where, digest)


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
