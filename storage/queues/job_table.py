"""The jobs of one queue by where they stand, and in which order they come up. Pure: no I/O, no clock.

What comes next is found in heaps (given back, due, running out, lowest seq). What is no longer so stays in them until
it comes up, and is passed over then: nothing is ever looked for in the middle. Source: api.md §6.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Any

from storage.queues.job import CLAIMING, DEAD, DELAYED, LEASED, READY, Attempt, Job
from storage.queues.policy import Limits

#: A heap with this many more entries than jobs is made anew.
_SLACK = 1024


class JobTable:
    """See the module; `LeaseTable` says what moves a job from one state to another."""

    __slots__ = (
        "_back",
        "_due",
        "_ends",
        "_low",
        "attempts",
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
        #: Live records from here on without a Job are ready and were never claimed.
        self.taken = 0
        self.attempts: dict[tuple[str, str], Attempt] = {}
        #: Jobs by state.
        self.counts = [0] * 6
        #: Of those, jobs whose record is not there any more: all leased or being claimed.
        self.gone = 0
        #: Ever: jobs moved to the dead letter topic; lost to cap or ttl.
        self.dead_lettered = 0
        self.lost = 0
        #: Jobs that have become dead and that nobody has begun to move.
        self.dying: set[int] = set()
        # Heaps of seqs, or (time, seq); what is no longer so is passed over when it comes up.
        self._back: list[int] = []
        self._due: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int]] = []
        self._low: list[int] = []

    # -- figures -----------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Jobs leased, or about to be."""
        return self.counts[LEASED] + self.counts[CLAIMING]

    def ready(self, live: int) -> int:
        """Jobs that can be claimed now, of `live` records."""
        return live - (len(self.jobs) - self.counts[READY] - self.gone)

    def first_back(self) -> int | None:
        """The lowest ready seq of those that have a Job."""
        back = self._back
        while back and not self._is_ready(back[0]):
            heappop(back)
        return back[0] if back else None

    def _is_ready(self, seq: int) -> bool:
        job = self.jobs.get(seq)
        return job is not None and job.state == READY

    def next_change(self) -> int | None:
        """When time alone changes something next: a delay that is over, a lease that has expired. None: never."""
        due, ends, jobs = self._due, self._ends, self.jobs
        while due and not ((job := jobs.get(due[0][1])) and job.state == DELAYED and job.ready_at == due[0][0]):
            heappop(due)
        while ends and not ((job := jobs.get(ends[0][1])) and runs_out(job, ends[0][0])):
            heappop(ends)
        times = [due[0][0]] if due else []
        if ends:
            times.append(ends[0][0] + 1)  # at the deadline it is still held
        return min(times, default=None)

    # -- for those who move them ---------------------------------------------------------------------------------------

    def _job(self, seq: int) -> Job:
        job = self.jobs.get(seq)
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
            attempt.left -= 1
            if not attempt.left and self.attempts.get((attempt.node, attempt.key)) is attempt:
                del self.attempts[attempt.node, attempt.key]
        if job.holder is not None:
            holder, job.holder = job.holder, None
            holder.lease_ended(job.seq)

    def _drop(self, job: Job) -> None:
        self.counts[job.state] -= 1
        self.gone -= job.gone
        self.dying.discard(job.seq)
        del self.jobs[job.seq]

    def _trim(self) -> None:
        jobs, limit = self.jobs, 2 * len(self.jobs) + _SLACK
        if len(self._low) > limit:
            self._low = _heap(jobs)
        if len(self._ends) > limit:
            self._ends = _heap((job.deadline, seq) for seq, job in jobs.items() if job.state == LEASED)
        if len(self._due) > limit:
            self._due = _heap((job.ready_at, seq) for seq, job in jobs.items() if job.state == DELAYED)
        if len(self._back) > limit:
            self._back = _heap(seq for seq, job in jobs.items() if job.state == READY)

    def _settle_in(self, job: Job) -> None:
        """A job that nobody holds: dead, delayed or ready, as its numbers say."""
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


def runs_out(job: Job, deadline: int) -> bool:
    return job.state == LEASED and not job.busy and job.deadline == deadline
