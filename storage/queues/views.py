"""The figures of a queue, and a listing of its jobs. Pure; the caller has applied the passing of time before."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from storage.records import QueueFigures
from storage.state import Log, Topic
from storage.state.queues import DEAD, DELAYED, LEASED, READY, SHOWN, Job, JobState, JobView


def figures(topic: Topic, now_ms: int, *, waiting: int) -> QueueFigures:
    """The figures of a queue. `waiting`: how many claims wait."""
    log = topic.log
    table = log.queue
    assert table is not None
    ready = table.ready(log.count)
    return QueueFigures(
        ready=ready,
        in_flight=table.in_flight,
        delayed=table.counts[DELAYED],
        dead_lettered=table.dead_lettered,
        dead_pending=table.counts[DEAD],
        lost=table.lost,
        paused=topic.paused,
        oldest_ready_age_ms=_oldest_ready_age_ms(log, now_ms) if ready > 0 else None,
        waiting_claims=waiting,
    )


def _oldest_ready_age_ms(log: Log, now_ms: int) -> int | None:
    table = log.queue
    assert table is not None
    back = table.first_back()
    # Only if there is one: finding it among many delayed jobs takes long.
    fresh = table.first_fresh(log.live_seqs) if table.ready(log.count) > table.counts[READY] else None
    seqs = [seq for seq in (back, fresh) if seq is not None]
    stamp = log.held.time_of(min(seqs)) if seqs else None
    return None if stamp is None else max(0, now_ms - stamp)


def jobs(log: Log, state: JobState | None, after: int, limit: int) -> list[JobView]:
    """Up to `limit` jobs that are not done, by seq, from those with a seq > `after`. `state`: only jobs in this state.

    Without `state` the cost grows with the answer. With it, the cost grows with the number of jobs that were ever
    claimed.
    """
    table = log.queue
    assert table is not None
    if state is None:
        seqs = {*log.live_seqs(after + 1, limit)}
        if table.gone:
            seqs |= {job.seq for job in table.everything() if job.gone and job.seq > after}
        return [_view(table.look(seq) or Job(seq)) for seq in nsmallest(limit, seqs)]
    views: list[JobView] = []
    if any(table.counts[each] for each, shown in enumerate(SHOWN) if shown is state):
        wanted = (job for job in table.everything() if job.seq > after and SHOWN[job.state] is state)
        views = [_view(job) for job in nsmallest(limit, wanted, key=lambda job: job.seq)]
    if state is JobState.READY:
        fresh = islice(_fresh(log, max(after + 1, table.taken)), limit)
        views += [_view(Job(seq)) for seq in fresh]
        views.sort(key=lambda view: view.seq)
    return views[:limit]


def _fresh(log: Log, seq: int) -> Iterator[int]:
    """Seqs of jobs that were never claimed, from `seq` on."""
    assert log.queue is not None
    while seqs := log.live_seqs(seq, 256):
        yield from (each for each in seqs if not log.queue.knows_any((each,)))
        seq = seqs[-1] + 1


def _view(job: Job) -> JobView:
    return JobView(
        seq=job.seq,
        state=SHOWN[job.state],
        deliveries=job.deliveries,
        node=job.node if job.state == LEASED else None,
        deadline=job.deadline if job.state == LEASED else None,
        ready_at=job.ready_at if job.state == DELAYED else None,
    )
