"""The jobs of one queue by state, and the order in which they become ready. Pure: no I/O, no clock.

Heaps contain what comes next (given back, due, expiring, lowest seq). Outdated entries stay in them until they reach
the top, and are skipped then: nothing is searched for in the middle. A job that was touched has a Job or is part of
a LeaseBatch, never both.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from storage.state.queues.job import CLAIMING, DEAD, DELAYED, LEASED, READY, Attempt, Job
from storage.state.queues.lease_batch import LeaseBatch
from storage.state.queues.policy import Limits

#: A heap with this many more entries than jobs is rebuilt.
_SLACK = 1024
#: Live records examined at a time when looking for one that nobody has claimed.
_STRIDE = 256


class JobTable:
    """See the module; `LeaseTable` moves jobs from one state to another."""

    __slots__ = (
        "_back",
        "_due",
        "_ends",
        "_firsts",
        "_low",
        "attempts",
        "batches",
        "counts",
        "dead_lettered",
        "dying",
        "gone",
        "jobs",
        "limits",
        "lost",
        "taken",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.jobs: dict[int, Job] = {}
        #: By the seq of each of their jobs.
        self.batches: dict[int, LeaseBatch] = {}
        #: Live records from here on without a Job or a LeaseBatch are ready and were never claimed.
        self.taken = 0
        self.attempts: dict[tuple[str, str], Attempt] = {}
        #: Number of jobs by state.
        self.counts = [0] * 6
        #: Among them, jobs whose record no longer exists: all are leased or being claimed.
        self.gone = 0
        #: Totals: jobs moved to the dead letter topic; jobs lost to cap or ttl.
        self.dead_lettered = 0
        self.lost = 0
        #: Dead jobs whose move has not begun.
        self.dying: set[int] = set()
        # Heaps of seqs, or (time, seq); outdated entries are skipped when they reach the top. A batch is entered by its
        # first seq.
        self._back: list[int] = []
        self._due: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int]] = []
        self._low: list[int] = []
        self._firsts: list[int] = []

    # -- figures -----------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Jobs leased, or about to be."""
        return self.counts[LEASED] + self.counts[CLAIMING]

    def ready(self, live: int) -> int:
        """Jobs that can be claimed now, of `live` records."""
        return live - (len(self.jobs) + len(self.batches) - self.counts[READY] - self.gone)

    @property
    def touched(self) -> bool:
        """Whether anything is known of any job."""
        return bool(self.jobs or self.batches)

    def knows_any(self, seqs: Iterable[int]) -> bool:
        """Whether anything is known of one of these jobs."""
        jobs, batches = self.jobs, self.batches
        return bool((jobs and not jobs.keys().isdisjoint(seqs)) or (batches and not batches.keys().isdisjoint(seqs)))

    def everything(self) -> Iterator[Job]:
        """All jobs that were touched, for reading only: those of a batch are copies."""
        yield from self.jobs.values()
        for seq, batch in self.batches.items():
            if seq == batch.seqs[0]:
                yield from batch.jobs()

    def first_back(self) -> int | None:
        """The lowest ready seq of a job with a Job."""
        back = self._back
        while back and not self._is_ready(back[0]):
            heappop(back)
        return back[0] if back else None

    def first_fresh(self, live_seqs: Callable[[int, int], Sequence[int]]) -> int | None:
        """The lowest live seq of which nothing is known. Seqs below it are not examined again."""
        while seqs := live_seqs(self.taken, _STRIDE):
            for seq in seqs:
                self.taken = seq
                if not self.knows_any((seq,)):
                    return seq
            self.taken += 1
        return None

    def look(self, seq: int) -> Job | None:
        """What is known of a job, for reading only: one of a batch is a copy."""
        batch = self.batches.get(seq)
        return self.jobs.get(seq) if batch is None else batch.job_at(bisect_left(batch.seqs, seq))

    def _is_ready(self, seq: int) -> bool:
        job = self.jobs.get(seq)
        return job is not None and job.state == READY

    def next_change(self) -> int | None:
        """When time alone causes the next change: the end of a delay, or the expiry of a lease. None: never."""
        due, ends, jobs = self._due, self._ends, self.jobs
        while due and not ((job := jobs.get(due[0][1])) and job.state == DELAYED and job.ready_at == due[0][0]):
            heappop(due)
        while ends and self._running_out(*ends[0]) is None:
            heappop(ends)
        if not ends:
            return due[0][0] if due else None
        ended = ends[0][0] + 1  # at the deadline it is still held
        return min(due[0][0], ended) if due else ended

    def is_due(self, now_ms: int) -> bool:
        """Whether a delay or a lease may have ended by now. False is certain."""
        due, ends = self._due, self._ends
        return bool((due and due[0][0] <= now_ms) or (ends and ends[0][0] < now_ms))

    def _running_out(self, deadline: int, seq: int) -> Job | LeaseBatch | None:
        """The jobs leased until then by this heap entry, if it is still valid and only time decides about them."""
        held = self.jobs.get(seq) or self.batches.get(seq)
        if held is None or held.state != LEASED or held.busy or held.deadline != deadline:
            return None
        return held

    # -- together ------------------------------------------------------------------------------------------------------

    def add_batch(self, seqs: tuple[int, ...]) -> LeaseBatch:
        """A batch of jobs of which nothing is known so far: they are being claimed."""
        batch = LeaseBatch(seqs)
        self.batches.update(dict.fromkeys(seqs, batch))
        heappush(self._firsts, seqs[0])
        self.counts[CLAIMING] += len(seqs)
        return batch

    def take_apart(self, batch: LeaseBatch) -> list[Job]:
        """Turn the batch into single jobs. Nothing else changes."""
        if batch.separate is not None:
            return batch.separate
        separate = batch.separate = batch.jobs()
        for job in separate:
            del self.batches[job.seq]
            self.jobs[job.seq] = job
            heappush(self._low, job.seq)
            if job.state == LEASED and not job.busy:
                heappush(self._ends, (job.deadline, job.seq))
        return separate

    def lease_of(self, seq: int) -> int:
        """The token of the job's lease; 0: it is not leased. Takes nothing apart."""
        job = self.jobs.get(seq)
        if job is not None:
            return job.lease_id
        batch = self.batches.get(seq)
        return batch.lease_ids[bisect_left(batch.seqs, seq)] if batch is not None and batch.lease_ids else 0

    def whole(self, seqs: Sequence[int]) -> LeaseBatch | None:
        """The batch of exactly these jobs, in this order."""
        batch = self.batches.get(seqs[0]) if seqs else None
        return batch if batch is not None and batch.seqs == tuple(seqs) else None

    def _end_batch(self, batch: LeaseBatch) -> None:
        """End the leases of all its jobs, like `_end_lease` of each."""
        batch.busy = False
        if batch.attempt is not None:
            attempt, batch.attempt = batch.attempt, None
            self._attempt_lost(attempt, len(batch.seqs))
        if batch.holder is not None:
            holder, batch.holder = batch.holder, None
            for seq in batch.seqs:
                holder.lease_ended(seq)

    def _drop_batch(self, batch: LeaseBatch) -> None:
        self.counts[batch.state] -= len(batch.seqs)
        for seq in batch.seqs:
            del self.batches[seq]

    # -- for those who move them ---------------------------------------------------------------------------------------

    def find(self, seq: int) -> Job | None:
        """The job as a Job, if anything is known of it: something is about to happen to it alone."""
        job = self.jobs.get(seq)
        if job is None and (batch := self.batches.get(seq)) is not None:
            self.take_apart(batch)
            job = self.jobs[seq]
        return job

    def _job(self, seq: int) -> Job:
        job = self.find(seq)
        if job is None:
            job = self.jobs[seq] = Job(seq)
            heappush(self._low, seq)
            self.counts[READY] += 1
        return job

    def _to(self, job: Job, state: int) -> None:
        self.counts[job.state] -= 1
        self.counts[state] += 1
        job.state = state

    def _end_lease(self, job: Job) -> None:
        job.lease_id = job.deadline = 0
        job.busy = False
        if job.attempt is not None:
            attempt, job.attempt = job.attempt, None
            self._attempt_lost(attempt, 1)
        if job.holder is not None:
            holder, job.holder = job.holder, None
            holder.lease_ended(job.seq)

    def _attempt_lost(self, attempt: Attempt, count: int) -> None:
        attempt.remaining -= count
        if not attempt.remaining and self.attempts.get((attempt.node, attempt.key)) is attempt:
            del self.attempts[attempt.node, attempt.key]

    def _drop(self, job: Job) -> None:
        self.counts[job.state] -= 1
        self.gone -= job.gone
        self.dying.discard(job.seq)
        del self.jobs[job.seq]

    def _trim(self) -> None:
        jobs, limit = self.jobs, 2 * (len(self.jobs) + len(self.batches)) + _SLACK
        if len(self._low) > limit:
            self._low = _heap(jobs)
        if len(self._firsts) > limit:
            self._firsts = _heap(self._each_first())
        if len(self._ends) > limit:
            ends = [(job.deadline, seq) for seq, job in jobs.items() if job.state == LEASED]
            ends += [
                (self.batches[seq].deadline, seq) for seq in self._each_first() if self.batches[seq].state == LEASED
            ]
            self._ends = _heap(ends)
        if len(self._due) > limit:
            self._due = _heap((job.ready_at, seq) for seq, job in jobs.items() if job.state == DELAYED)
        if len(self._back) > limit:
            self._back = _heap(seq for seq, job in jobs.items() if job.state == READY)

    def _each_first(self) -> list[int]:
        return [seq for seq, batch in self.batches.items() if seq == batch.seqs[0]]

    def _requeue(self, job: Job) -> None:
        """Put an unheld job where its fields say: dead, delayed or ready."""
        if job.gone:
            self._drop(job)
        elif self.limits.exhausted(job.deliveries, job.forgiven):
            self._to(job, DEAD)
            self.dying.add(job.seq)
        elif job.ready_at:
            self._to(job, DELAYED)
            heappush(self._due, (job.ready_at, job.seq))
        else:
            self._to(job, READY)
            heappush(self._back, job.seq)


def _heap(items: Iterable[Any]) -> list[Any]:
    heap = list(items)
    heapify(heap)
    return heap
