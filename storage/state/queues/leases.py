"""The jobs of one queue: who holds each, until when, and in which order jobs become ready. Pure: no I/O, no clock.

A job that was never claimed and is not delayed has no entry here: it is a live record of the log from `taken` on.
Every other job has a `Job` or is part of a `LeaseBatch`, never both.

event      from                     to
claimed    ready                    leased
extended   leased                   leased, another deadline
released   leased                   ready, delayed (ready_at > 0), or dead (delivered too often)
expired    leased                   as released
dead       dead, leased (rejected)  dead, its move is open
Delete     any                      done: gone from here
(time)     delayed, at ready_at     ready

There are two kinds of change. `apply` takes a Lease frame, on the live path and in recovery. A decision that is not
committed yet (CLAIMING, HELD, `busy`) is undone by `put_back` when its frame fails. Every operation costs O(log jobs)
for each job.

Source: docs/reference/api.md#queues, docs/reference/format.md#lease.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any, Protocol, TypeAlias

import msgspec

from storage.format import Lease
from storage.state.queues.policy import Limits
from storage.state.queues.values import JobState

#: A heap with this many more entries than jobs is rebuilt.
_SLACK = 1024
#: Live records examined at a time when looking for one that was never claimed.
_STRIDE = 256

# The published states, then two for decisions that are not committed yet.
READY, LEASED, DELAYED, DEAD, CLAIMING, HELD = range(6)
SHOWN = (JobState.READY, JobState.LEASED, JobState.DELAYED, JobState.DEAD, JobState.LEASED, JobState.READY)
#: For each event, the states it may occur in and the state it leads to (a release with a wait: delayed; after too many
#: deliveries: dead).
TABLE: dict[str, tuple[frozenset[int], int]] = {
    "claimed": (frozenset({READY, CLAIMING}), LEASED),
    "extended": (frozenset({LEASED}), LEASED),
    "released": (frozenset({LEASED, DEAD}), READY),
    "expired": (frozenset({LEASED}), READY),
    "dead": (frozenset({READY, HELD, DEAD, LEASED}), DEAD),
}

LeaseEntry: TypeAlias = tuple[int, int, int, int, int, int]
"""[seq, lease_id, deadline, deliveries, ready_at, forgiven], as in a Lease frame."""


class Holder(Protocol):
    """Called when one of its leases has ended, for any reason."""

    def lease_ended(self, seq: int) -> None: ...


class Attempt:
    """The jobs given to one claim with an attempt_key: (seq, lease_id), and how many are still leased."""

    __slots__ = ("jobs", "key", "node", "remaining")

    def __init__(self, node: str, key: str, jobs: list[tuple[int, int]]) -> None:
        self.node = node
        self.key = key
        self.jobs = jobs
        self.remaining = len(jobs)


class Job:
    """One job. `deliveries` - `forgiven` counts against its limit; `size`: payload bytes, -1 unknown."""

    __slots__ = (
        "attempt",
        "busy",
        "deadline",
        "deliveries",
        "forgiven",
        "gone",
        "holder",
        "lease_id",
        "node",
        "ready_at",
        "reason",
        "seq",
        "size",
        "state",
    )

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.state = READY
        self.lease_id = 0
        self.deadline = 0
        self.deliveries = 0
        self.forgiven = 0
        self.ready_at = 0
        self.node = ""
        self.size = -1
        #: A frame about this lease is in flight: until it completes, the job neither expires nor changes its holder.
        self.busy = False
        #: Its record is lost or deleted; only the lease remains.
        self.gone = False
        self.attempt: Attempt | None = None
        self.holder: Holder | None = None
        self.reason: str | None = None

    def entry(self) -> LeaseEntry:
        return (self.seq, self.lease_id, self.deadline, self.deliveries, self.ready_at, self.forgiven)


#: Seqs, lease_ids, and the common deadline.
Columns: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]


class LeaseBatch(msgspec.Struct, eq=False):
    """Jobs with these ascending seqs, each delivered once: CLAIMING, or LEASED to `node`.

    `busy` as in Job. `sizes`: payload bytes of each, if known.
    """

    seqs: tuple[int, ...]
    state: int = CLAIMING
    lease_ids: tuple[int, ...] = ()
    deadline: int = 0
    node: str = ""
    busy: bool = False
    sizes: Sequence[int] | None = None
    attempt: Attempt | None = None
    holder: Holder | None = None
    #: Its jobs, after the batch was taken apart: from then on these objects have the state.
    separate: list[Job] | None = None

    def jobs(self) -> list[Job]:
        """Its jobs as Job objects; every call creates new ones."""
        return [*map(self.job_at, range(len(self.seqs)))]

    def job_at(self, index: int) -> Job:
        """One of `jobs`."""
        job = Job(self.seqs[index])
        job.state, job.busy = self.state, self.busy
        if self.state != CLAIMING:
            job.lease_id, job.deadline, job.node = self.lease_ids[index], self.deadline, self.node
            job.deliveries = 1
            job.attempt, job.holder = self.attempt, self.holder
        if self.sizes is not None:
            job.size = self.sizes[index]
        return job


class LeaseEntries(list[LeaseEntry]):
    """The result of `lease_entries`, with its columns, so that `apply` need not parse it again. Never changed."""

    __slots__ = ("columns",)

    columns: Columns


def lease_entries(seqs: tuple[int, ...], lease_ids: tuple[int, ...], deadline: int) -> LeaseEntries:
    """The entries of a Lease frame for the jobs of a batch, ascending, claimed together for the first time.

    Raises ValueError unless each job has a lease_id.
    """
    if len(seqs) != len(lease_ids):
        raise ValueError(f"{len(lease_ids)} lease_ids for {len(seqs)} jobs")
    made = LeaseEntries(zip(seqs, lease_ids, repeat(deadline), repeat(1), repeat(0), repeat(0), strict=False))
    made.columns = seqs, lease_ids, deadline
    return made


def uniform_columns(jobs: Sequence[LeaseEntry]) -> Columns | None:
    """The columns of ascending entries that `lease_entries` could have made; None for any other entries."""
    if not jobs:
        return None
    seqs, lease_ids, deadlines, deliveries, ready_ats, forgiven = zip(*jobs, strict=True)
    count = len(seqs)
    same = (
        deliveries.count(1) == count
        and forgiven.count(0) == count
        and ready_ats.count(0) == count
        and deadlines.count(deadlines[0]) == count
    )
    if not same or not ascending(seqs):
        return None
    return seqs, lease_ids, deadlines[0]


def ascending(seqs: Sequence[int]) -> bool:
    """Whether each seq is larger than the one before."""
    return [*seqs] == sorted({*seqs})


class LeaseTable:
    """The jobs of one queue by state. See the module docstring.

    Heaps find the next job (given back, due, expiring, lowest seq). An outdated entry stays in its heap until it
    reaches the top, and is skipped then, so nothing has to be found in the middle of a heap.
    """

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
        #: Each batch, by the seq of each of its jobs.
        self.batches: dict[int, LeaseBatch] = {}
        #: Live records from here on without a Job or a LeaseBatch are ready and were never claimed.
        self.taken = 0
        self.attempts: dict[tuple[str, str], Attempt] = {}
        #: Number of jobs by state.
        self.counts = [0] * 6
        #: Jobs among these whose record no longer exists: all of them are leased or being claimed.
        self.gone = 0
        #: Totals: jobs moved to the dead letter topic; jobs lost to cap or ttl.
        self.dead_lettered = 0
        self.lost = 0
        #: Dead jobs whose move has not begun.
        self.dying: set[int] = set()
        # Heaps of seqs or of (time, seq); outdated entries are skipped when they reach the top. A batch has one entry,
        # with its first seq.
        self._back: list[int] = []
        self._due: list[tuple[int, int]] = []
        self._ends: list[tuple[int, int]] = []
        self._low: list[int] = []
        self._firsts: list[int] = []

    # -- figures -----------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Jobs that are leased or being claimed."""
        return self.counts[LEASED] + self.counts[CLAIMING]

    def ready(self, live: int) -> int:
        """Jobs that can be claimed now, when the log has `live` records."""
        return live - (len(self.jobs) + len(self.batches) - self.counts[READY] - self.gone)

    @property
    def touched(self) -> bool:
        """Whether the table has an entry for any job."""
        return bool(self.jobs or self.batches)

    def knows_any(self, seqs: Iterable[int]) -> bool:
        """Whether the table has an entry for one of these jobs."""
        jobs, batches = self.jobs, self.batches
        return bool((jobs and not jobs.keys().isdisjoint(seqs)) or (batches and not batches.keys().isdisjoint(seqs)))

    def everything(self) -> Iterator[Job]:
        """All jobs with an entry, for reading only: jobs of a batch are copies."""
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
        """The lowest live seq without an entry. Seqs below it are not examined again."""
        while seqs := live_seqs(self.taken, _STRIDE):
            for seq in seqs:
                self.taken = seq
                if not self.knows_any((seq,)):
                    return seq
            self.taken += 1
        return None

    def look(self, seq: int) -> Job | None:
        """The entry of a job, for reading only: a job of a batch is a copy."""
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
        ended = ends[0][0] + 1  # the lease still holds at its deadline
        return min(due[0][0], ended) if due else ended

    def is_due(self, now_ms: int) -> bool:
        """Whether a delay or a lease may have ended by now. False is certain, True is not."""
        due, ends = self._due, self._ends
        return bool((due and due[0][0] <= now_ms) or (ends and ends[0][0] < now_ms))

    def _running_out(self, deadline: int, seq: int) -> Job | LeaseBatch | None:
        """The jobs that this heap entry stands for, if it is still valid and only time can end their lease."""
        held = self.jobs.get(seq) or self.batches.get(seq)
        if held is None or held.state != LEASED or held.busy or held.deadline != deadline:
            return None
        return held

    # -- batches -------------------------------------------------------------------------------------------------------

    def add_batch(self, seqs: tuple[int, ...]) -> LeaseBatch:
        """A batch of jobs that have no entry so far: they are being claimed."""
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
        """The token of the job's lease; 0: the job is not leased. Takes no batch apart."""
        job = self.jobs.get(seq)
        if job is not None:
            return job.lease_id
        batch = self.batches.get(seq)
        return batch.lease_ids[bisect_left(batch.seqs, seq)] if batch is not None and batch.lease_ids else 0

    def _end_batch(self, batch: LeaseBatch) -> None:
        """End the leases of all jobs of the batch, like `_end_lease` for each."""
        batch.busy = False
        if batch.attempt is not None:
            attempt, batch.attempt = batch.attempt, None
            self._attempt_lost(attempt, len(batch.seqs))
        if batch.holder is not None:
            holder, batch.holder = batch.holder, None
            for seq in batch.seqs:
                holder.lease_ended(seq)

    # -- for those who move them ---------------------------------------------------------------------------------------

    def find(self, seq: int) -> Job | None:
        """The job as a Job, if it has an entry, so that it can change alone: its batch is taken apart."""
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
        """Give a job that nobody holds the state that its fields say: dead, delayed or ready."""
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

    # -- deciding ----------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> bool:
        """End the delays that are over; returns whether there were any."""
        due, came = self._due, False
        while due and due[0][0] <= now_ms:
            ready_at, seq = heappop(due)
            job = self.jobs.get(seq)
            if job is not None and job.state == DELAYED and job.ready_at == ready_at:
                self._to(job, READY)
                heappush(self._back, seq)
                came = True
        return came

    def take_batch(self, count: int, live_seqs: Callable[[int, int], Sequence[int]]) -> LeaseBatch | None:
        """Up to `count` jobs like `take`, if none of the next jobs has an entry; None: use `take`."""
        if self._back and self.first_back() is not None:
            return None
        jobs, batches = self.jobs, self.batches
        found: list[int] = []
        while len(found) < count and (seqs := live_seqs(self.taken, count - len(found))):
            self.taken = seqs[-1] + 1
            if (jobs and not jobs.keys().isdisjoint(seqs)) or (batches and not batches.keys().isdisjoint(seqs)):
                seqs = [seq for seq in seqs if seq not in jobs and seq not in batches]
            found += seqs
        return self.add_batch(tuple(found)) if found else None

    def take(self, count: int, live_seqs: Callable[[int, int], Sequence[int]], below: int | None = None) -> list[Job]:
        """Up to `count` ready jobs in claim order, now CLAIMING. `live_seqs(seq, n)` returns the next n live seqs
        from `seq` on; with `below`, only jobs with a lower seq are taken."""
        taken: list[Job] = []
        back, jobs = self._back, self.jobs
        while len(taken) < count and (seq := self.first_back()) is not None:
            if below is not None and seq >= below:
                break
            heappop(back)
            job = jobs[seq]
            job.state = CLAIMING
            taken.append(job)
        self.counts[READY] -= len(taken)
        self.counts[CLAIMING] += len(taken)
        if len(taken) < count:
            self._take_fresh(taken, count, live_seqs, below)
        return taken

    def _take_fresh(
        self, taken: list[Job], count: int, live_seqs: Callable[[int, int], Sequence[int]], below: int | None
    ) -> None:
        jobs, before = self.jobs, len(taken)
        while len(taken) < count:
            seqs = live_seqs(self.taken, count - len(taken))
            for seq in seqs:
                if below is not None and seq >= below:
                    seqs = ()
                    break
                self.taken = seq + 1
                if seq not in jobs and seq not in self.batches:
                    job = jobs[seq] = Job(seq)
                    job.state = CLAIMING
                    heappush(self._low, seq)
                    taken.append(job)
            if not seqs:
                break
        self.counts[CLAIMING] += len(taken) - before

    def take_delayed(self, count: int, below: int) -> list[Job]:
        """Up to `count` delayed jobs with a seq < `below`, now HELD."""
        found: list[Job] = []
        for job in self.jobs.values():
            if job.state == DELAYED and job.seq < below:
                found.append(job)
                if len(found) == count:
                    break
        for job in found:
            self._to(job, HELD)
        return found

    def hold(self, jobs: Iterable[Job]) -> None:
        """Jobs just taken are held for a purpose other than a lease."""
        for job in jobs:
            self._to(job, HELD)

    def hold_seqs(self, seqs: Iterable[int]) -> list[Job]:
        """These ready jobs are held for a purpose other than a lease."""
        jobs = [self._job(seq) for seq in seqs]
        self.hold(jobs)
        return jobs

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Undo a decision about these jobs: they are as before. For a batch use `put_back_batch`."""
        for job in jobs:
            if self.jobs.get(job.seq) is not job:
                continue
            if job.state == LEASED:
                job.busy = False
                heappush(self._ends, (job.deadline, job.seq))
            elif job.state in (CLAIMING, HELD):
                self._requeue(job)

    def put_back_batch(self, batch: LeaseBatch) -> None:
        """`put_back` for the jobs of a batch."""
        if batch.separate is None and self.batches.get(batch.seqs[0]) is not batch:
            return
        if batch.separate is None and batch.state == LEASED:
            batch.busy = False
            heappush(self._ends, (batch.deadline, batch.seqs[0]))
        else:
            self.put_back(self.take_apart(batch))

    def put_off(self, job: Job, ready_at: int) -> None:
        """A job just taken must not be delivered before `ready_at`."""
        job.ready_at = ready_at
        self._requeue(job)

    def expired(self, now_ms: int) -> list[Job]:
        """Jobs whose lease has expired: now > deadline. They are busy from here on."""
        found: list[Job] = []
        ends = self._ends
        while ends and ends[0][0] < now_ms:
            held = self._running_out(*heappop(ends))
            if held is not None:
                held.busy = True
                found += self.take_apart(held) if isinstance(held, LeaseBatch) else (held,)
        return found

    def held_by(self, seq: int, node: str, lease_id: int, now_ms: int) -> Job | None:
        """The job if `node` holds it now, under this token (0: any token)."""
        job = self.find(seq)
        if job is None or job.state != LEASED or job.node != node or now_ms > job.deadline:
            return None
        return job if lease_id in (0, job.lease_id) else None

    def held_batch(self, seqs: Sequence[int], lease_ids: Sequence[int], node: str, now_ms: int) -> LeaseBatch | None:
        """The batch of exactly these jobs if `node` holds all of them now, under these tokens (none: any), and
        nothing about them is in flight. None: check each of them."""
        batch = self.batches.get(seqs[0]) if seqs else None
        if batch is None or batch.seqs != tuple(seqs):
            return None
        if batch.state != LEASED or batch.busy or batch.node != node or now_ms > batch.deadline:
            return None
        return batch if not lease_ids or batch.lease_ids == tuple(lease_ids) else None

    def repeat(self, node: str, key: str, now_ms: int) -> list[Job] | None:
        """The jobs of an earlier claim with this attempt_key that are still leased under it; None = no such claim."""
        attempt = self.attempts.get((node, key))
        if attempt is None:
            return None
        jobs = [self.held_by(seq, node, lease_id, now_ms) for seq, lease_id in attempt.jobs]
        return [job for job in jobs if job is not None] or None

    # -- what is committed -------------------------------------------------------------------------------------------

    def apply(self, value: Lease, node: str) -> None:
        """Apply a Lease frame; repeating it changes nothing."""
        match value.event:
            case "claimed":
                jobs = value.jobs
                columns = jobs.columns if isinstance(jobs, LeaseEntries) else uniform_columns(jobs)
                if columns is not None:
                    seqs, lease_ids, deadline = columns
                    batch = self.batches.get(seqs[0])
                    if (batch is None or batch.seqs != seqs) and not self.knows_any(seqs):
                        batch = self.add_batch(seqs)
                    if batch is not None and batch.seqs == seqs:
                        self.lease_batch(batch, lease_ids, deadline, node, value.attempt_key)
                        return
                self._claimed_each(value, node)
            case "extended":
                for seq, _, deadline, *_ in value.jobs:
                    job = self.find(seq)
                    if job is not None and job.state == LEASED:
                        job.deadline, job.busy = deadline, False
                        heappush(self._ends, (deadline, seq))
            case "released" | "expired":
                for entry in value.jobs:
                    self._released(entry, value.reason)
            case "dead":
                for entry in value.jobs:
                    job = self._job(entry[0])
                    job.deliveries, job.forgiven, job.reason = entry[3], entry[5], value.reason
                    self._end_lease(job)
                    if job.gone:  # its record was deleted while this frame was in flight: there is nothing to move
                        self._drop(job)
                        continue
                    self._to(job, DEAD)
                    self.dying.discard(entry[0])
            case _:
                pass  # acked: the Delete decides
        self._trim()

    def _claimed_each(self, value: Lease, node: str) -> None:
        attempt = None
        if value.attempt_key is not None:
            attempt = self._attempt(node, value.attempt_key, [(entry[0], entry[1]) for entry in value.jobs])
        ends, counts = self._ends, self.counts
        for seq, lease_id, deadline, deliveries, _, forgiven in value.jobs:
            job = self.find(seq)
            if job is None:
                job = self._job(seq)
            elif job.state == LEASED:
                self._lease_anew(job, same=job.lease_id == lease_id)
            counts[job.state] -= 1
            counts[LEASED] += 1
            job.state = LEASED
            job.lease_id, job.deadline, job.node = lease_id, deadline, node
            job.deliveries, job.forgiven, job.ready_at = deliveries, forgiven, 0
            job.attempt = attempt
            heappush(ends, (deadline, seq))

    def lease_batch(
        self, batch: LeaseBatch, lease_ids: tuple[int, ...], deadline: int, node: str, attempt_key: str | None
    ) -> None:
        """Apply a `claimed` frame of exactly these jobs."""
        if batch.state == LEASED:
            self._lease_anew(batch, same=batch.lease_ids == lease_ids)
        self.counts[batch.state] -= len(batch.seqs)
        self.counts[LEASED] += len(batch.seqs)
        batch.state = LEASED
        batch.lease_ids, batch.deadline, batch.node = lease_ids, deadline, node
        batch.attempt = None
        if attempt_key is not None:
            batch.attempt = self._attempt(node, attempt_key, zip(batch.seqs, lease_ids, strict=True))
        heappush(self._ends, (deadline, batch.seqs[0]))
        if len(self._ends) + len(self._firsts) + len(self._low) + len(self._due) + len(self._back) > _SLACK:
            self._trim()

    def _lease_anew(self, held: Job | LeaseBatch, *, same: bool) -> None:
        """The leased jobs are about to be leased again. With `same` (a frame that restates the current lease) the
        lease continues: its holder is not told of an end, and frames in flight stay valid."""
        holder, busy = (held.holder, held.busy) if same else (None, False)
        if same:
            held.holder = None
        if isinstance(held, LeaseBatch):
            self._end_batch(held)
        else:
            self._end_lease(held)
        held.holder, held.busy = holder, busy

    def _attempt(self, node: str, key: str, jobs: Iterable[tuple[int, int]]) -> Attempt:
        attempt = self.attempts[node, key] = Attempt(node, key, [*jobs])
        return attempt

    def _released(self, entry: LeaseEntry, reason: str | None) -> None:
        seq, _, _, deliveries, ready_at, forgiven = entry
        job = self._job(seq)
        self._end_lease(job)
        job.deliveries, job.forgiven, job.ready_at, job.reason = deliveries, forgiven, ready_at, reason
        if job.gone:
            self._drop(job)
        else:
            self._requeue(job)

    def delay(self, delays: Iterable[tuple[int, int]]) -> None:
        """Records were appended that must not be delivered before their time: (seq, ms since the epoch)."""
        for seq, ready_at in delays:
            if not self.knows_any((seq,)):
                job = self._job(seq)
                job.ready_at = ready_at
                self._requeue(job)

    def forget_deleted(self, seqs: Sequence[int]) -> None:
        """These jobs are done: their Delete is committed."""
        batch = self.batches.get(seqs[0]) if seqs else None
        if batch is not None and batch.state == LEASED and batch.seqs == tuple(seqs):
            if batch.attempt is not None or batch.holder is not None:
                self._end_batch(batch)
            self.counts[LEASED] -= len(batch.seqs)
            for seq in batch.seqs:
                del self.batches[seq]
            return
        for seq in seqs:
            job = self.find(seq)
            if job is not None:
                self.dead_lettered += job.state == DEAD and job.deliveries > 0
                self._end_lease(job)
                self._drop(job)

    def deleted(self, seq: int) -> None:
        """The record is gone. The holder of the job's lease keeps the lease."""
        job = self.find(seq)
        if job is None or job.gone:
            return
        if job.state in (LEASED, CLAIMING):
            job.gone = True
            self.gone += 1
        else:
            self._drop(job)

    def floor_raised(self, floor: int) -> None:
        """All records below `floor` are gone."""
        low, firsts = self._low, self._firsts
        while firsts and firsts[0] < floor:
            batch = self.batches.get(heappop(firsts))
            if batch is not None:
                self.take_apart(batch)
        while low and low[0] < floor:
            self.deleted(heappop(low))

    def review(self, limits: Limits) -> None:
        """The limits have changed: jobs delivered too often are dead now, and jobs within the limits no longer are."""
        self.limits = limits
        for job in list(self.jobs.values()):
            if job.state in (READY, DELAYED):
                if limits.exhausted(job.deliveries, job.forgiven):
                    self._requeue(job)
            elif job.state == DEAD and job.seq in self.dying:
                self.dying.discard(job.seq)
                self._requeue(job)

    # -- the whole ---------------------------------------------------------------------------------------------------

    def die(self, seq: int, deliveries: int, reason: str | None) -> None:
        """A move of this job is open, whatever its state was."""
        job = self._job(seq)
        job.deliveries, job.reason = deliveries, reason
        self._end_lease(job)
        self._to(job, DEAD)
        self.dying.discard(seq)

    def forget_leases(self) -> None:
        """After a crash of a queue whose leases are not durable: no job is held, and none counts as delivered. Delays
        set by an append remain; the caller restores open moves (`die`)."""
        delayed = [(job.seq, job.ready_at) for job in self.jobs.values() if not job.deliveries and job.ready_at]
        lost, dead_lettered = self.lost, self.dead_lettered
        LeaseTable.__init__(self, self.limits)
        self.lost, self.dead_lettered = lost, dead_lettered
        self.delay(delayed)

    def prune(self, holds: Callable[[int], bool]) -> None:
        """Recovery is over: forget jobs whose record does not exist, except leased ones."""
        for seq in [seq for seq in (*self.jobs, *self.batches) if not holds(seq)]:
            self.deleted(seq)

    def put(self, job: Job) -> None:
        """Add a job from a snapshot."""
        self.jobs[job.seq] = job
        heappush(self._low, job.seq)
        self.counts[READY] += 1
        if job.lease_id:
            self._to(job, LEASED)
            heappush(self._ends, (job.deadline, job.seq))
        else:
            self._requeue(job)


def _heap(items: Iterable[Any]) -> list[Any]:
    heap = list(items)
    heapify(heap)
    return heap
