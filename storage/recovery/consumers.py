"""Consumers at the end of a recovery.

Source: docs/reference/guarantees.md#recovery, docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

from storage.format import control
from storage.state import Catalog


def reconcile_consumers(catalog: Catalog) -> None:
    """Put every cursor where the log says, but never beyond the head: salvage may have lost the records there, and
    their seqs are assigned again. The frames to write about this are added to `catalog.unannounced`."""
    for topic in catalog.topics.values():
        log = topic.log
        for consumer in log.consumers.by_name.values():
            if consumer.durable_seq > log.head:
                log.consumers.set_durable(consumer, log.head)
                log.section = None
                frame = control.Consumer(
                    consumer_id=consumer.consumer_id, name=consumer.name, event="cursor", seq=log.head
                )
                catalog.unannounced.append((topic.topic_id, frame))
            consumer.reset()
