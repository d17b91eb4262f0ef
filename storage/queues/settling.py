"""Ack, nack and extend: what the holder of a lease says of it. Source: api.md §6.

Judged by the time of arrival; from then until its frame settles a job is busy: it neither expires nor changes hands,
and when the frame fails the lease stands as before. Who asks about a busy job waits, and is judged by the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from storage.errors import LeaseLost
from storage.format import control
from storage.format.control import Lease
from storage.queues import together
from storage.queues.carrying_out import commit_now
from storage.queues.desk import Desk
from storage.state.lookup import Found, LookedUp
from storage.state.queues.grant import Grant
from storage.state.queues.job import Job
from storage.state.queues.values import Settled

if TYPE_CHECKING:
    from storage.queues.queues import Queues


async def judge(
    desk: Desk, node: str, tokens: dict[int, int], now_ms: int, *, strict: bool
) -> tuple[list[Job], list[int]]:
    """The jobs that `node` holds, and the seqs that it does not. Raises LeaseLost when `strict` and there are some."""
    while True:
        table = desk.table
        jobs = [table.held_by(seq, node, token, now_ms) for seq, token in tokens.items()]
        if not any(job is not None and job.busy for job in jobs):
            break
        await asyncio.wait(desk.settling)
    skipped = [seq for seq, job in zip(tokens, jobs, strict=True) if job is None]
    if strict and skipped:
        raise LeaseLost(f"The leases of {len(skipped)} jobs are not held by {node}.", seqs=skipped)
    return [job for job in jobs if job is not None], skipped


async def ack(queues: Queues, desk: Desk, jobs: list[Job]) -> None:
    """The jobs are done."""
    await delete(queues, desk, jobs)
    queues.stats.acked += len(jobs)


async def delete(queues: Queues, desk: Desk, jobs: list[Job]) -> None:
    """Delete the jobs for good, in one frame."""
    seqs = [job.seq for job in jobs]
    request = control.Delete(bound_head=desk.topic.log.head, seqs=seqs, ack=True)
    await hold(desk, jobs, lambda: queues.delete(desk.topic, request, known_sizes(request, jobs)))


async def ack_together(queues: Queues, desk: Desk, grant: Grant) -> None:
    """`ack` for all jobs of a grant."""
    request, known = together.deletion(desk, grant)
    grant.busy = True
    await settle(desk, lambda: queues.delete(desk.topic, request, known), lambda: desk.table.put_back_together(grant))
    queues.stats.acked += len(grant.seqs)


def ack_now(
    queues: Queues,
    desk: Desk,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int],
    arrived_ms: int,
    told: Callable[[Settled | Exception], None],
) -> bool:
    """`ack` of a whole grant without a task; False, and nothing was done, when that cannot be."""
    grant = desk.table.held_together(seqs, lease_ids, node, arrived_ms)
    topic = desk.topic
    if grant is None or topic.log.in_memory_only:
        return False
    request, known = together.deletion(desk, grant)
    if known is None:
        return False
    engine = queues.engine
    encoded, needs_sync = engine.admin.deletion(topic, request, known, arrived_ms)
    acked = partial(_acked, queues, desk, grant, told)
    if not commit_now(engine, topic.log, encoded, arrived_ms, desk.settling, acked, needs_sync=needs_sync):
        return False
    grant.busy = True
    return True


def _acked(
    queues: Queues, desk: Desk, grant: Grant, told: Callable[[Settled | Exception], None], error: Exception | None
) -> None:
    """What has become of an `ack_now`."""
    if error is None:
        queues.stats.acked += len(grant.seqs)
        told(answer(desk, grant.seqs, []))
    else:
        desk.table.put_back_together(grant)
        desk.serve()
        told(error)


def known_sizes(request: control.Delete, jobs: Sequence[Job]) -> LookedUp | None:
    """The Delete with all it needs to know, if that is known: sizes are, of jobs handed out since the start."""
    if any(job.size < 0 for job in jobs):
        return None
    return LookedUp(request, Found(together.EVERYTHING, [job.seq for job in jobs], [job.size for job in jobs]))


async def change(queues: Queues, desk: Desk, jobs: list[Job], value: Lease, node: str) -> None:
    """Apply a Lease to jobs: at once, or when it is as durable as the topic is."""
    if desk.topic.leases_durable:
        await hold(desk, jobs, lambda: queues.commit(desk.topic, [value], [node]))
    else:
        desk.table.apply(value, node)


async def hold(desk: Desk, jobs: list[Job], commit: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Commit with the jobs held still."""
    for job in jobs:
        job.busy = True
    await settle(desk, commit, lambda: desk.table.put_back(jobs))


async def settle(desk: Desk, commit: Callable[[], Coroutine[Any, Any, None]], put_back: Callable[[], None]) -> None:
    """Commit what was decided; it goes on when its caller goes away. `put_back` is called when it fails."""
    task = asyncio.ensure_future(commit())
    desk.settling.add(task)

    def settled(done: asyncio.Future[None]) -> None:
        desk.settling.discard(task)
        if done.cancelled() or done.exception() is not None:
            put_back()
        desk.serve()

    task.add_done_callback(settled)
    await asyncio.shield(task)


def answer(desk: Desk, done: Sequence[int], skipped: list[int], *, deadlines: dict[int, int] | None = None) -> Settled:
    """What is told of an operation on the jobs `done`."""
    desk.catch_up()  # the figures are of now
    return Settled(
        topic=desk.topic.name,
        done=[*done],
        skipped=skipped,
        ready=desk.ready,
        in_flight=desk.table.in_flight,
        deadlines=deadlines or {},
    )
