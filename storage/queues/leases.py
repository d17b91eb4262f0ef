"""The jobs of one queue that have been touched: who holds them, until when, which come next. Pure: no I/O, no clock.

A job that nobody has claimed yet and that is not delayed needs nothing here: it is a live record of the log from
`taken` on. Everything else has a `Job`. Two kinds of change: `apply` takes what a Lease frame says, live and in
recovery alike; what is decided but not yet committed (CLAIMING, HELD, `busy`) is taken back by `put_back` when its
frame fails. Every operation costs O(log jobs) a job. Source: api.md §6; storage.md §2 (Lease).

    event      from                     to
    claimed    ready                    leased
    extended   leased                   leased, another deadline
    released   leased                   ready, delayed (ready_at > 0), or dead (delivered too often)
    expired    leased                   as released
    dead       dead                     dead, its move is open
    Delete     any                      done: gone from here
    (time)     delayed, at ready_at     ready
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

from storage.format.control import Lease
from storage.queues.policy import Limits
from storage.queues.values import JobState

# The published states, then the two that are decided but not yet committed.
READY, LEASED, DELAYED, DEAD, CLAIMING, HELD = range(6)
SHOWN = (JobState.READY, JobState.LEASED, JobState.DELAYED, JobState.DEAD, JobState.LEASED, JobState.READY)
#: Where each event may come from and what it leads to (a release with a wait: delayed; one too many: dead).
TABLE: dict[str, tuple[frozenset[int], int]] = {
    "claimed": (frozenset({READY, CLAIMING}), LEASED),
    "extended": (frozenset({LEASED}), LEASED),
    "released": (frozenset({LEASED, DEAD}), READY),
    "expired": (frozenset({LEASED}), READY),
    "dead": (frozenset({READY, HELD, DEAD}), DEAD),
}
#: A heap with this many more entries than jobs is made anew.
_SLACK = 1024

JobRow = tuple[int, int, int, int, int, int]
"""[seq, lease_id, deadline, deliveries, ready_at, forgiven], as in a Lease frame."""


class Holder(Protocol):
    """Somebody who wants to know when a lease of theirs has ended, however."""

    def lease_ended(self, seq: int) -> None: ...


class Attempt:
    """The jobs that one claim with an attempt_key was given: (seq, lease_id), and how many are still leased."""

    __slots__ = ("jobs", "key", "left", "node")

    def __init__(self, node: str, key: str, jobs: list[tuple[int, int]]) -> None:
        self.node = node
        self.key = key
        self.jobs = jobs
        self.left = len(jobs)


class Job:
    """One job. `deliveries` - `forgiven` is what counts against it; `size`: payload bytes, -1 unknown."""

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
        #: A frame about this lease is on its way: until it settles the job neither expires nor changes hands.
        self.busy = False
        #: Its record is lost or deleted; only the lease is left.
        self.gone = False
        self.attempt: Attempt | None = None
        self.holder: Holder | None = None
        self.reason: str | None = None

    def row(self) -> JobRow:
        return (self.seq, self.lease_id, self.deadline, self.deliveries, self.ready_at, self.forgiven)


class LeaseTable:
    """See the module."""

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
        while ends and not ((job := jobs.get(ends[0][1])) and _ends(job, ends[0][0])):
            heappop(ends)
        times = [due[0][0]] if due else []
        if ends:
            times.append(ends[0][0] + 1)  # at the deadline it is still held
        return min(times, default=None)

    # -- deciding ----------------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> bool:
        """Delays that are over by now are over; whether there were any."""
        due, came = self._due, False
        while due and due[0][0] <= now_ms:
            ready_at, seq = heappop(due)
            job = self.jobs.get(seq)
            if job is not None and job.state == DELAYED and job.ready_at == ready_at:
                self._to(job, READY)
                heappush(self._back, seq)
                came = True
        return came

    def take(self, count: int, live_seqs: Callable[[int, int], Sequence[int]], below: int | None = None) -> list[Job]:
        """Up to `count` ready jobs in claim order, now CLAIMING. `live_seqs(seq, n)` gives the next n live seqs from
        `seq` on; with `below` only jobs with a lower seq are taken."""
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
                if seq not in jobs:
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
        """Jobs just taken are held for something else than a lease."""
        for job in jobs:
            self._to(job, HELD)

    def hold_seqs(self, seqs: Iterable[int]) -> list[Job]:
        """These jobs, which are ready, are held for something else than a lease."""
        jobs = [self._job(seq) for seq in seqs]
        self.hold(jobs)
        return jobs

    def put_back(self, jobs: Iterable[Job]) -> None:
        """What was decided about these did not happen: they are what they were."""
        for job in jobs:
            if self.jobs.get(job.seq) is not job:
                continue
            if job.state == LEASED:
                job.busy = False
                heappush(self._ends, (job.deadline, job.seq))
            elif job.state in (CLAIMING, HELD):
                self._settle_in(job)

    def put_off(self, job: Job, ready_at: int) -> None:
        """A job just taken cannot be handed out before then."""
        job.ready_at = ready_at
        self._settle_in(job)

    def expired(self, now_ms: int) -> list[Job]:
        """Jobs whose lease is over: now > deadline. They are busy from here on."""
        found: list[Job] = []
        ends = self._ends
        while ends and ends[0][0] < now_ms:
            deadline, seq = heappop(ends)
            job = self.jobs.get(seq)
            if job is not None and _ends(job, deadline):
                job.busy = True
                found.append(job)
        return found

    def held_by(self, seq: int, node: str, lease_id: int, now_ms: int) -> Job | None:
        """The job if `node` holds it now, under this token (0: whatever it is)."""
        job = self.jobs.get(seq)
        if job is None or job.state != LEASED or job.node != node or now_ms > job.deadline:
            return None
        return job if lease_id in (0, job.lease_id) else None

    def repeat(self, node: str, key: str, now_ms: int) -> list[Job] | None:
        """The jobs of an earlier claim with this attempt_key that are still leased under it; None = no such claim."""
        attempt = self.attempts.get((node, key))
        if attempt is None:
            return None
        jobs = [self.held_by(seq, node, lease_id, now_ms) for seq, lease_id in attempt.jobs]
        return [job for job in jobs if job is not None] or None

    # -- what is committed -------------------------------------------------------------------------------------------

    def apply(self, value: Lease, node: str) -> None:
        """Take what a Lease frame says; the same again changes nothing."""
        match value.event:
            case "claimed":
                self._claimed(value, node)
            case "extended":
                for seq, _, deadline, *_ in value.jobs:
                    job = self.jobs.get(seq)
                    if job is not None and job.state == LEASED:
                        job.deadline, job.busy = deadline, False
                        heappush(self._ends, (deadline, seq))
            case "released" | "expired":
                for row in value.jobs:
                    self._released(row, value.reason)
            case "dead":
                for row in value.jobs:
                    job = self._job(row[0])
                    job.deliveries, job.forgiven, job.reason = row[3], row[5], value.reason
                    self._end_lease(job)
                    self._to(job, DEAD)
                    self.dying.discard(row[0])
            case _:
                pass  # acked: the Delete decides
        self._trim()

    def _claimed(self, value: Lease, node: str) -> None:
        attempt = None
        if value.attempt_key is not None:
            attempt = Attempt(node, value.attempt_key, [(row[0], row[1]) for row in value.jobs])
            self.attempts[node, value.attempt_key] = attempt
        ends, jobs, counts = self._ends, self.jobs, self.counts
        for seq, lease_id, deadline, deliveries, _, forgiven in value.jobs:
            job = jobs.get(seq)
            if job is None:
                job = self._job(seq)
            elif job.state == LEASED:
                self._end_lease(job)
            counts[job.state] -= 1
            counts[LEASED] += 1
            job.state = LEASED
            job.lease_id, job.deadline, job.node = lease_id, deadline, node
            job.deliveries, job.forgiven, job.ready_at = deliveries, forgiven, 0
            job.attempt = attempt
            heappush(ends, (deadline, seq))

    def _released(self, row: JobRow, reason: str | None) -> None:
        seq, _, _, deliveries, ready_at, forgiven = row
        job = self._job(seq)
        self._end_lease(job)
        job.deliveries, job.forgiven, job.ready_at, job.reason = deliveries, forgiven, ready_at, reason
        if job.gone:
            self._drop(job)
        else:
            self._settle_in(job)

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

    def delay(self, delays: Iterable[tuple[int, int]]) -> None:
        """Records were appended that are not to be handed out before their time: (seq, ms since the epoch)."""
        for seq, ready_at in delays:
            if seq not in self.jobs:
                job = self._job(seq)
                job.ready_at = ready_at
                self._settle_in(job)

    def settled(self, seqs: Iterable[int]) -> None:
        """These jobs are done: their Delete is committed."""
        for seq in seqs:
            job = self.jobs.get(seq)
            if job is not None:
                self.dead_lettered += job.state == DEAD and job.deliveries > 0
                self._end_lease(job)
                self._drop(job)

    def deleted(self, seq: int) -> None:
        """The record is gone. Who holds its lease goes on holding it."""
        job = self.jobs.get(seq)
        if job is None or job.gone:
            return
        if job.state in (LEASED, CLAIMING):
            job.gone = True
            self.gone += 1
        else:
            self._drop(job)

    def floor_raised(self, floor: int) -> None:
        """All records below `floor` are gone."""
        low = self._low
        while low and low[0] < floor:
            self.deleted(heappop(low))

    def review(self, limits: Limits) -> None:
        """Other limits hold: what has been delivered too often is dead, what has not is no longer."""
        self.limits = limits
        for job in list(self.jobs.values()):
            if job.state in (READY, DELAYED):
                if limits.exhausted(job.deliveries, job.forgiven):
                    self._settle_in(job)
            elif job.state == DEAD and job.seq in self.dying:
                self.dying.discard(job.seq)
                self._settle_in(job)

    # -- the whole ---------------------------------------------------------------------------------------------------

    def die(self, seq: int, deliveries: int, reason: str | None) -> None:
        """A move of this job is open, whatever else is known of it."""
        job = self._job(seq)
        job.deliveries, job.reason = deliveries, reason
        self._end_lease(job)
        self._to(job, DEAD)
        self.dying.discard(seq)

    def forget_leases(self) -> None:
        """After a crash of a queue whose leases are not durable: none is held, nothing was delivered yet. What an
        append delayed stays so; open moves are the caller's to put back (`die`)."""
        delayed = [(job.seq, job.ready_at) for job in self.jobs.values() if not job.deliveries and job.ready_at]
        lost, dead_lettered = self.lost, self.dead_lettered
        LeaseTable.__init__(self, self.limits)
        self.lost, self.dead_lettered = lost, dead_lettered
        self.delay(delayed)

    def prune(self, holds: Callable[[int], bool]) -> None:
        """Recovery is over: of records that are not there only leases are left."""
        for seq in [seq for seq in self.jobs if not holds(seq)]:
            self.deleted(seq)

    def put(self, job: Job) -> None:
        """Take in a job as a snapshot has it."""
        self.jobs[job.seq] = job
        heappush(self._low, job.seq)
        self.counts[READY] += 1
        if job.lease_id:
            self._to(job, LEASED)
            heappush(self._ends, (job.deadline, job.seq))
        else:
            self._settle_in(job)

    def published(self) -> Iterator[Job]:
        """Every job; what is only decided shows in no field but `state` and `busy`."""
        return iter(self.jobs.values())

    # -- parts -------------------------------------------------------------------------------------------------------

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
        limit = 2 * len(self.jobs) + _SLACK
        if len(self._low) > limit:
            self._low = list(self.jobs)
            heapify(self._low)
        if len(self._ends) > limit:
            self._ends = [(job.deadline, seq) for seq, job in self.jobs.items() if job.state == LEASED]
            heapify(self._ends)
        if len(self._due) > limit:
            self._due = [(job.ready_at, seq) for seq, job in self.jobs.items() if job.state == DELAYED]
            heapify(self._due)
        if len(self._back) > limit:
            self._back = [seq for seq, job in self.jobs.items() if job.state == READY]
            heapify(self._back)


def _ends(job: Job, deadline: int) -> bool:
    return job.state == LEASED and not job.busy and job.deadline == deadline


#: Jobs in one of the frames that `lease_frames` makes.
_FRAME_JOBS = 10_000


def lease_frames(table: LeaseTable) -> list[tuple[Lease, str]]:
    """(frame, node): all that is known of the jobs of a table of which nothing is on its way."""
    found: list[tuple[Lease, str]] = []
    leased: dict[tuple[str, Attempt | None], list[JobRow]] = {}
    others: list[JobRow] = []
    for job in table.jobs.values():
        if job.state == LEASED:
            leased.setdefault((job.node, job.attempt), []).append(job.row())
        elif job.state in (READY, DELAYED) and (job.deliveries or job.ready_at):
            others.append(job.row())
    for (node, attempt), rows in leased.items():
        key = attempt.key if attempt is not None else None
        found += [(Lease(event="claimed", jobs=part, attempt_key=key), node) for part in _parts(rows)]
    found += [(Lease(event="released", jobs=part), "") for part in _parts(others)]
    return found


def _parts(rows: list[JobRow]) -> Iterator[list[JobRow]]:
    for begin in range(0, len(rows), _FRAME_JOBS):
        yield rows[begin : begin + _FRAME_JOBS]
