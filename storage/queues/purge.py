"""Deletes jobs that nobody holds. Source: api.md §6 (purge)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from storage.format import control
from storage.queues import settling
from storage.state.queues.job import Job

if TYPE_CHECKING:
    from storage.queues.desk import Desk
    from storage.queues.queues import Queues

#: Jobs deleted by one frame.
_AT_ONCE = 10_000


async def purge(queues: Queues, desk: Desk, states: frozenset[str]) -> int:
    """Jobs of these states up to the head as it is now; how many went. A crash in between leaves some of them."""
    log, table = desk.topic.log, desk.table
    below, purged = log.head + 1, 0
    desk.serve()  # what has fallen due by now is ready
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
        # Whoever asked may go: what is being deleted is nobody's until it is known to be gone, or to have stayed.
        await settling.settle(
            desk,
            partial(queues.delete, desk.topic, request, None),
            partial(table.put_back, jobs),
        )
        purged += len(jobs)
