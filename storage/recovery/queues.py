"""Queues at the end of a recovery: leases that a crash voids, and open moves.

Source: docs/reference/format.md#snapshots, docs/reference/api.md#queues.
"""

from __future__ import annotations

from functools import partial

from storage.state import Catalog, leases_durable


def reconcile_jobs(catalog: Catalog, *, clean: bool) -> list[int]:
    """`clean`: the last stop was clean, and no frame follows its snapshot. Otherwise leases that are not durable are
    void.

    Returns the topic_ids of queues with such leases, void or not.
    """
    volatile: list[int] = []
    for topic in catalog.topics.values():
        log = topic.log
        queue = log.queue
        if queue is not None:
            if queue.touched and not leases_durable(topic.config):
                volatile.append(topic.topic_id)
            if not clean and not leases_durable(topic.config):
                queue.forget_leases()
                for seq, move in log.moves.out.items():
                    queue.die(seq, move.deliveries, move.reason)
            queue.prune(log.is_live)
        for seq in [seq for seq in log.moves.out if not log.is_live(seq)]:
            del log.moves.out[seq]
            log.section = None
    for topic in catalog.topics.values():
        if topic.log.moves.came and topic.log.moves.forget_finished(partial(_is_open, catalog)):
            topic.log.section = None
    return volatile


def _is_open(catalog: Catalog, source_id: int, seq: int) -> bool:
    if catalog.is_foreign(source_id):
        return True  # its cell is asked (storage.queues.arrivals)
    source = catalog.log(source_id)
    return source is not None and seq in source.moves.out
