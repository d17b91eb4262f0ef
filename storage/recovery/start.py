"""The frames that an engine writes before it is ready, and before it stops.

Source: docs/reference/guarantees.md#crash-points-of-a-write, docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from storage.errors import StorageFailed, StorageFull
from storage.format import control
from storage.log import encode_controls
from storage.records import Durability
from storage.recovery.reconcile import announce_routers
from storage.recovery.recovery import Recovered
from storage.recovery.repair import heal
from storage.state import Topic, shard_of

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.snapshot import Snapshotter

_log = structlog.get_logger("storage")


async def announce_losses(logs: Logs, snapshotter: Snapshotter, recovered: Recovered) -> None:
    """Write the loss ranges that recovery found, and the epochs that salvage renewed; durable on return.

    Also deletes topics whose name a later topic has: otherwise they would come back when the later one is deleted.
    """
    pending: list[tuple[int, asyncio.Future[int | None]]] = []
    for topic_id, name in logs.catalog.superseded.items():
        shard = logs.shards[shard_of(topic_id, len(logs.shards))]
        gone = encode_controls([control.TopicDelete(name=name)], topic_id, logs.now_ms())
        pending.append((topic_id, logs.submit_unit(shard, topic_id, gone, frees=True)))
    for topic in logs.catalog.topics.values():
        log = topic.log
        values: list[control.Control] = []
        if log.topic_id in recovered.losses:
            values.append(control.EvictWatermark(loss=recovered.losses[log.topic_id]))
        if log.topic_id in recovered.renewed:
            values.append(_config_update(topic))
        if values:
            frames = encode_controls(values, log.topic_id, logs.now_ms())
            pending.append((log.topic_id, logs.submit_controls(log, frames, frees=True)))
    await announce_routers(logs)
    outcomes = await asyncio.gather(*(done for _, done in pending), return_exceptions=True)
    for (topic_id, _), outcome in zip(pending, outcomes, strict=True):
        if isinstance(outcome, StorageFull) and not recovered.renewed:
            # There is no room even for these frames. The next start would find the same losses; otherwise they are
            # written before the log continues.
            logs.unannounced_losses[topic_id] = recovered.losses.get(topic_id, [])
        elif isinstance(outcome, BaseException):
            raise outcome
    if recovered.renewed or recovered.wounds:
        # After this, both kept snapshots have the losses. Until then, a start must find the damage unchanged.
        await snapshotter.take()
        await snapshotter.take()
        for end in recovered.wounds:
            await logs.runtime.run_io(heal, logs.runtime.fs, logs.runtime.path, end, logs.options)


async def end_leases_with_this_process(logs: Logs, recovered: Recovered) -> None:
    """A snapshot of a clean stop holds leases that are not durable. When this process ends, they must be void.

    Any frame after that snapshot voids them, so this writes one before any job is claimed. Claims of such queues write
    no frame: without this frame, a start after a kill would restore leases, with their tokens, of jobs that others
    have claimed meanwhile.
    """
    pending: list[asyncio.Future[int | None]] = []
    for topic_id in recovered.volatile:
        log = logs.catalog.by_id[topic_id].log
        value = control.HeadWatermark(reserved=max(log.reserved, log.assigned_head))
        frame = encode_controls([value], topic_id, logs.now_ms())
        pending.append(logs.submit_controls(log, frame, frees=True))
    for outcome in await asyncio.gather(*pending, return_exceptions=True):
        # A stopped shard delivers no jobs, and no disk stays too full for this frame for long.
        if isinstance(outcome, StorageFull):
            _log.warning("leases_not_ended", error=str(outcome))
        elif isinstance(outcome, BaseException) and not isinstance(outcome, StorageFailed):
            raise outcome


def _config_update(topic: Topic) -> control.ConfigUpdate:
    return control.ConfigUpdate(
        name=topic.title,
        topic=topic.root_id,
        partition=topic.partition,
        partitions=topic.config.partitions,
        epoch=topic.log.epoch,
        config=topic.config.to_map(),
        renewed_at=topic.log.renewals[-1][1],
    )


async def return_reservations(logs: Logs) -> None:
    """At a clean stop: return reserved seqs that were not used."""
    pending: list[asyncio.Future[int | None]] = []
    for topic in logs.catalog.topics.values():
        log = topic.log
        # Writes in flight come before this frame in the log: their seqs are not returned.
        used = log.assigned_head
        unused = topic.config.durability is not Durability.FSYNC and log.reserved > used
        if unused and logs.shards[log.shard].log.failed is None and not topic.provisional:
            value = control.HeadWatermark(reserved=used)
            pending.append(logs.submit_controls(log, encode_controls([value], log.topic_id, logs.now_ms()), frees=True))
    if pending:
        await asyncio.gather(*pending)
