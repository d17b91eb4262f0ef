"""Ack, nack and extend, by the holder of a lease.

They are judged by the time of arrival. From then until its frame completes, a job is busy: it neither expires nor
changes its holder, and when the frame fails the lease stands as before. Requests about a busy job wait, and are
judged by their own time of arrival.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from storage.errors import LeaseLost
from storage.format import control
from storage.format.control import Lease
from storage.queues import batch_delivery
from storage.queues.commits import try_commit
from storage.queues.lease_queue import LeaseQueue
from storage.state.lookup import Found, LookedUp
from storage.state.queues.job import Job
from storage.state.queues.lease_batch import LeaseBatch
from storage.state.queues.values import Settled

if TYPE_CHECKING:
    from storage.queues.queues import Queues


async def judge(
    queue: LeaseQueue, node: str, tokens: dict[int, int], now_ms: int, *, strict: bool
) -> tuple[list[Job], list[int]]:
    """The jobs that `node` holds, and the seqs that it does not. Raises LeaseLost when `strict` and there are some."""
    while True:
        table = queue.table
        jobs = [table.held_by(seq, node, token, now_ms) for seq, token in tokens.items()]
        if not any(job is not None and job.busy for job in jobs):
            break
        await asyncio.wait(queue.pending_commits)
    skipped = [seq for seq, job in zip(tokens, jobs, strict=True) if job is None]
    if strict and skipped:
        raise LeaseLost(f"The leases of {len(skipped)} jobs are not held by {node}.", seqs=skipped)
    return [job for job in jobs if job is not None], skipped


async def ack(queues: Queues, queue: LeaseQueue, jobs: list[Job]) -> None:
    """The jobs are done."""
    await delete(queues, queue, jobs)
    queues.stats.acked += len(jobs)


async def delete(queues: Queues, queue: LeaseQueue, jobs: list[Job]) -> None:
    """Permanently delete the jobs, in one frame."""
    seqs = [job.seq for job in jobs]
    request = control.Delete(bound_head=queue.topic.log.head, seqs=seqs, ack=True)
    await hold(queue, jobs, lambda: queues.delete(queue.topic, request, known_sizes(request, jobs)))


async def ack_batch(queues: Queues, queue: LeaseQueue, batch: LeaseBatch) -> None:
    """`ack` for all jobs of a batch."""
    request, known = batch_delivery.deletion(queue, batch)
    batch.busy = True
    await commit_shielded(
        queue, lambda: queues.delete(queue.topic, request, known), lambda: queue.table.put_back_batch(batch)
    )
    queues.stats.acked += len(batch.seqs)


def try_ack(
    queues: Queues,
    queue: LeaseQueue,
    node: str,
    seqs: Sequence[int],
    lease_ids: Sequence[int],
    arrived_ms: int,
    on_result: Callable[[Settled | Exception], None],
) -> bool:
    """`ack` of a whole batch without a task; False, and nothing was done, when that is impossible."""
    batch = queue.table.held_batch(seqs, lease_ids, node, arrived_ms)
    topic = queue.topic
    if batch is None or topic.log.in_memory_only:
        return False
    request, known = batch_delivery.deletion(queue, batch)
    if known is None:
        return False
    engine = queues.engine
    encoded, needs_sync = engine.admin.deletion(topic, request, known, arrived_ms)
    acked = partial(_acked, queues, queue, batch, on_result)
    if not try_commit(engine, topic.log, encoded, arrived_ms, queue.pending_commits, acked, needs_sync=needs_sync):
        return False
    batch.busy = True
    return True


def _acked(
    queues: Queues,
    queue: LeaseQueue,
    batch: LeaseBatch,
    on_result: Callable[[Settled | Exception], None],
    error: Exception | None,
) -> None:
    """What has become of an `try_ack`."""
    if error is None:
        queues.stats.acked += len(batch.seqs)
        on_result(answer(queue, batch.seqs, []))
    else:
        queue.table.put_back_batch(batch)
        queue.serve()
        on_result(error)


def known_sizes(request: control.Delete, jobs: Sequence[Job]) -> LookedUp | None:
    """The Delete with all it needs to know, if that is known: sizes are, of jobs handed out since the start."""
    if any(job.size < 0 for job in jobs):
        return None
    return LookedUp(request, Found(batch_delivery.EVERYTHING, [job.seq for job in jobs], [job.size for job in jobs]))


async def change(queues: Queues, queue: LeaseQueue, jobs: list[Job], value: Lease, node: str) -> None:
    """Apply a Lease to jobs: at once, or when it is as durable as the topic is."""
    if queue.topic.leases_durable:
        await hold(queue, jobs, lambda: queues.commit(queue.topic, [value], [node]))
    else:
        queue.table.apply(value, node)


async def hold(queue: LeaseQueue, jobs: list[Job], commit: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Commit with the jobs held still."""
    for job in jobs:
        job.busy = True
    await commit_shielded(queue, commit, lambda: queue.table.put_back(jobs))


async def commit_shielded(
    queue: LeaseQueue, commit: Callable[[], Coroutine[Any, Any, None]], put_back: Callable[[], None]
) -> None:
    """Commit what was decided; it goes on when its caller goes away. `put_back` is called when it fails."""
    task = asyncio.ensure_future(commit())
    queue.pending_commits.add(task)

    def committed(done: asyncio.Future[None]) -> None:
        queue.pending_commits.discard(task)
        if done.cancelled() or done.exception() is not None:
            put_back()
        queue.serve()

    task.add_done_callback(committed)
    await asyncio.shield(task)


def answer(
    queue: LeaseQueue, done: Sequence[int], skipped: list[int], *, deadlines: dict[int, int] | None = None
) -> Settled:
    """What is told of an operation on the jobs `done`."""
    queue.catch_up()  # the figures are of now
    return Settled(
        topic=queue.topic.name,
        done=[*done],
        skipped=skipped,
        ready=queue.ready,
        in_flight=queue.table.in_flight,
        deadlines=deadlines or {},
    )
