"""Partitions at the end of a replay: which logs count, and which are missing.

Creating, growing, changing and deleting a topic writes one frame for each partition, in several shards. The frame of
partition 0 decides. After a crash before that frame, the start undoes the steps before it (create, grow). After a crash
after that frame, the start completes the steps after it (grow, change, delete):

    create  p1 p2 | p0              a crash before p0: p1 and p2 belong to no topic and are deleted
    grow    p3 p4 | p0 | p1 p2      before p0: p0 does not count p3 and p4, which are deleted; then `align_all`
    change          p0 | p1 p2      behind p0: `align_all` gives the others the same settings
    delete          p0 | p1 p2      behind p0: p1 and p2 belong to no topic and are deleted

`align_all` is `storage.topics.admin.TopicAdmin.align_all`.

Source: docs/reference/guarantees.md#recovery, docs/reference/api.md#partitions.
"""

from __future__ import annotations

from operator import attrgetter

import structlog

from storage.errors import MetadataLost
from storage.format import control
from storage.state.catalog import Catalog, Topic
from storage.state.placement import COUNTS, SPREAD, TO_TELL

_log = structlog.get_logger("storage")


def reconcile_partitions(catalog: Catalog, *, salvaging: bool) -> None:
    """Find every partition that counts by its address; the others are `superseded`, and deleted before the engine is
    ready.

    A partition that counts but does not exist is damage: MetadataLost. With `salvaging` it is created again, empty and
    with a new epoch; its TopicCreate is in `catalog.unannounced`.
    """
    newest: dict[tuple[int, int], Topic] = {}
    _reconcile_spread(catalog)
    for topic in sorted(catalog.by_id.values(), key=attrgetter("topic_id")):
        if not topic.partition or catalog.is_foreign(topic.root_id):
            continue  # partition 0, in another cell, decides about it
        root = catalog.by_id.get(topic.root_id)
        if root is None or root.partition or topic.partition >= root.config.partitions:
            _supersede(catalog, topic)
            continue
        # One of them was abandoned when there was no room to log that; the other was created later.
        partition_id = topic.root_id, topic.partition
        if (older := newest.get(partition_id)) is not None:
            _supersede(catalog, older)
        newest[partition_id] = topic
    for (root_id, partition), topic in newest.items():
        catalog.parts.setdefault(root_id, {})[partition] = topic
    for root in [topic for topic in catalog.by_id.values() if not topic.partition and topic.config.partitions > 1]:
        parts = catalog.parts.get(root.topic_id, {})
        here = range(1, root.config.partitions)
        missing = [
            partition for partition in here if partition not in parts and not _elsewhere(catalog, root, partition)
        ]
        if missing and not salvaging:
            raise MetadataLost(
                f"Partition {missing[0]} of topic {root.name!r} is not in the log, though partition 0 counts "
                f"{root.config.partitions}. Nothing was changed; restore the directory from a backup, or salvage it."
            )
        for partition in missing:
            _begin_anew(catalog, root, partition)
        catalog.link(root)


def _elsewhere(catalog: Catalog, root: Topic, partition: int) -> bool:
    """Whether this partition is in another cell."""
    cells = root.placement.cells if root.placement is not None else ()
    return partition < len(cells) and cells[partition] != catalog.cell


def _reconcile_spread(catalog: Catalog) -> None:
    """Apply the statements of logs about partitions in other cells. A partition may exist twice, if its deletion could
    not be written: the one that counts stays, or else the newer one."""
    for key, _ in catalog.states.table.items(TO_TELL):
        catalog.see_id(int(key))
    known: dict[tuple[int, int], Topic] = {}
    for topic in sorted(catalog.by_id.values(), key=attrgetter("topic_id")):
        catalog.take_spread(topic)
        if topic.partition and catalog.is_foreign(topic.root_id):
            partition_id = topic.root_id, topic.partition
            older = known.get(partition_id)
            known[partition_id] = topic
            if older is not None:
                gone = topic if _counts(older) else older
                known[partition_id] = older if gone is topic else topic
                _supersede(catalog, gone)
    for (root_id, partition), topic in known.items():
        catalog.parts.setdefault(root_id, {})[partition] = topic
        if not _counts(topic):
            catalog.uncounted[topic.name] = topic


def _counts(topic: Topic) -> bool:
    return topic.log.states is not None and topic.log.states.get(SPREAD, COUNTS) is not None


def _supersede(catalog: Catalog, topic: Topic) -> None:
    catalog.superseded[topic.topic_id] = topic.title
    catalog.remove(topic)


def _begin_anew(catalog: Catalog, root: Topic, partition: int) -> None:
    topic_id = catalog.claim_topic_id(lambda shard: True)
    value = creation(root.title, root.topic_id, partition, root.config.partitions, topic_id, root.config.to_map())
    catalog.add(topic_id, value)
    catalog.unannounced.append((topic_id, value))
    _log.error("partition_lost", topic=root.name, partition=partition, topic_id=topic_id)


def creation(
    title: str, root_id: int, partition: int, partitions: int, topic_id: int, config: dict[str, object]
) -> control.TopicCreate:
    """The frame that creates a partition."""
    return control.TopicCreate(
        name=title, topic=root_id, partition=partition, partitions=partitions, epoch=topic_id, config=config
    )
