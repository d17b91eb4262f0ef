"""Deletes jobs without a lease.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from storage.format import control
from storage.queues import acks
from storage.state.queues.job import Job

if TYPE_CHECKING:
    from storage.queues.lease_queue import LeaseQueue
    from storage.queues.queues import Queues

#: Jobs deleted by one frame.
_AT_ONCE = 10_000


async def purge(queues: Queues, queue: LeaseQueue, states: frozenset[str]) -> int:
    """Delete the jobs in these states up to the current head; returns their number. After a crash some may remain."""
    log, table = queue.topic.log, queue.table
    below, purged = log.head + 1, 0
    queue.serve()  # jobs that are due by now become ready
    while True:
        jobs: list[Job] = []
        if "ready" in states:
            jobs = table.take(_AT_ONCE, log.live_seqs, below)
            table.hold(jobs)
        if "delayed" in states and len(jobs) < _AT_ONCE:
            jobs += table.take_delayed(_AT_ONCE - len(jobs), below)
        if not jobs:
            return purged
        request = control.Delete(bound_head=log.head, seqs=sorted(job.seq for job in jobs))
        # The caller may go: jobs being deleted are held until the outcome is known.
        await acks.commit_shielded(
            queue,
            partial(queues.delete, queue.topic, request, None),
            partial(table.put_back, jobs),
        )
        purged += len(jobs)
