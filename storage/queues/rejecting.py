"""Reject: for jobs that can never be done.

With a dead letter topic it is the first step of a move (see `moves`), for jobs that are still leased; the mover
takes the other steps, also after crashes. Without one the job is deleted as by an ack, and counted as rejected.

Source: docs/guides/kafka.md#share-groups, docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage.format.control import Lease
from storage.queues import acks
from storage.queues.lease_queue import LeaseQueue
from storage.state.catalog import Catalog, Topic
from storage.state.queues.job import Job
from storage.state.queues.values import Settled

if TYPE_CHECKING:
    from storage.queues.queues import Queues


async def reject(
    queues: Queues, name: str, node: str, tokens: dict[int, int], reason: str | None, arrived: int, *, strict: bool
) -> Settled:
    """See `Queues.reject`."""
    while True:
        dest = await queues.mover.dead_letter_topic((await queues.open(name)).topic)
        queue, jobs, skipped = await queues.judged(name, node, tokens, arrived, strict=strict)
        if _goes_to(queue.topic, dest, queues.engine.catalog):
            break
    if jobs:
        await _end(queues, queue, jobs, dest, reason)
    return acks.answer(queue, [job.seq for job in jobs], skipped)


def _goes_to(topic: Topic, dest: Topic | None, catalog: Catalog) -> bool:
    """Whether dead jobs of this queue go there now: it may have changed during a wait."""
    if dest is None:
        return topic.config.dead_letter is None
    return topic.config.dead_letter == dest.name and catalog.by_id.get(dest.topic_id) is dest


async def _end(queues: Queues, queue: LeaseQueue, jobs: list[Job], dest: Topic | None, reason: str | None) -> None:
    moved = [job for job in jobs if not job.gone] if dest is not None else []
    deleted = [job for job in jobs if dest is None or job.gone]
    work = [acks.delete(queues, queue, deleted)] if deleted else []
    if dest is not None and moved:
        entries = [(job.seq, 0, 0, job.deliveries, 0, job.forgiven) for job in moved]
        value = Lease(event="dead", jobs=entries, dest_id=dest.topic_id, reason=reason)

        async def open_moves() -> None:
            await queues.commit(queue.topic, [value], sync=True)
            queues.mover.kick(queue.topic)

        work.append(acks.hold(queue, moved, open_moves))
    await asyncio.gather(*work)
    queues.stats.rejected += len(jobs)
