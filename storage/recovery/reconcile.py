"""Routers, consumers and queues at the end of a recovery, and the frames to write before requests are served.

Source: docs/reference/guarantees.md#recovery, docs/reference/api.md#routers,
docs/reference/guarantees.md#consumers, docs/reference/format.md#snapshots, docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from storage.errors import StorageFailed, StorageFull
from storage.format import control
from storage.log import encode_controls
from storage.state import Catalog, leases_durable
from storage.state.routers import Router

if TYPE_CHECKING:
    from storage.log import Logs


def reconcile_routers(catalog: Catalog, *, clean: bool) -> None:
    """Drop routers whose source or dest is gone; restart a router at the source's head if its copies were in memory
    only. Whether a source in another cell is gone, and where its head is, the router asks there later.

    `clean`: the last stop was clean, and no frame follows its snapshot. The frames to write are added to
    `catalog.unannounced`.
    """
    for router in list(catalog.routes.by_id.values()):
        source, dest = catalog.by_id.get(router.source_id), catalog.by_id.get(router.dest_id)
        foreign = catalog.is_foreign(router.source_id)
        if (source is None and not foreign) or dest is None or catalog.routes.by_name.get(router.name) is not router:
            catalog.routes.drop(router)
            if dest is not None:
                _announce(catalog, router, control.RouterDelete(router_id=router.router_id))
            continue
        if source is None:
            router.from_head = dest.log.ephemeral and not clean
        elif dest.log.ephemeral and not clean:
            _set(catalog, router, source.log.head)
        elif router.cursor > source.log.head:
            # Salvage has lost records of the source, whose seqs are assigned again.
            _set(catalog, router, source.log.head)
            _announce(catalog, router, control.RouterCursor(router_id=router.router_id, source_seq=source.log.head))
        router.position = router.cursor


def _set(catalog: Catalog, router: Router, cursor: int) -> None:
    router.cursor = cursor
    catalog.by_id[router.dest_id].log.section = None


def _announce(catalog: Catalog, router: Router, value: control.Control) -> None:
    catalog.by_id[router.dest_id].log.section = None
    catalog.unannounced.append((router.dest_id, value))


async def announce_routers(logs: Logs) -> None:
    """Write the changes of `reconcile_routers`; durable on return. Changes that cannot be written are repeated by the
    next start."""
    pending: list[asyncio.Future[int | None]] = []
    announced = list(logs.catalog.unannounced)
    for dest_id, value in announced:
        log = logs.catalog.by_id[dest_id].log
        encoded = encode_controls([value], dest_id, logs.now_ms())
        pending.append(logs.submit_controls(log, encoded, frees=not isinstance(value, control.RouterCursor)))
    logs.catalog.unannounced.clear()
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    for (_, value), outcome in zip(announced, outcomes, strict=True):
        later = isinstance(outcome, StorageFull | StorageFailed) and not isinstance(value, control.TopicCreate)
        if isinstance(outcome, BaseException) and not later:
            raise outcome  # of a partition created again: it must not take writes before that is durable


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
