"""The jobs of one queue that have been touched: holders, deadlines, order. Pure: no I/O, no clock.

A job that nobody has claimed yet and that is not delayed needs nothing here: it is a live record of the log from
`taken` on. Every other job has a `Job` or is part of a `Grant`. There are two kinds of change. `apply` takes a Lease
frame, on the live path and in recovery. A decision that is not committed yet (CLAIMING, HELD, `busy`) is undone by
`put_back` when its frame fails. Every operation costs O(log jobs) for each job.

Source: docs/reference/api.md#queues, docs/reference/format.md#lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from storage.format.control import Lease
from storage.state.queues.job import CLAIMING, DEAD, DELAYED, HELD, LEASED, READY, Attempt, Job, LeaseEntry
from storage.state.queues.job_table import JobTable
from storage.state.queues.lease_batch import LeaseBatch, uniform_columns
from storage.state.queues.policy import Limits


class LeaseTable(JobTable):
    """See the module."""

    __slots__ = ()

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
        """Up to `count` jobs like `take`, if all that come next were never touched; None: use `take`."""
        if self.first_back() is not None:
            return None
        found: list[int] = []
        while len(found) < count and (seqs := live_seqs(self.taken, count - len(found))):
            self.taken = seqs[-1] + 1
            found += [seq for seq in seqs if not self.knows_any((seq,))] if self.knows_any(seqs) else seqs
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
        """Undo a decision about these jobs: they are as before. For a batch: `put_back_batch`."""
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
        """A job just taken cannot be delivered before then."""
        job.ready_at = ready_at
        self._requeue(job)

    def expired(self, now_ms: int) -> list[Job]:
        """Jobs whose lease is over: now > deadline. They are busy from here on."""
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
        batch = self.whole(seqs)
        if batch is None or batch.state != LEASED or batch.busy or batch.node != node or now_ms > batch.deadline:
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
                self._claimed(value, node)
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
                    if job.gone:  # deleted while this was in flight: there is nothing to move
                        self._drop(job)
                        continue
                    self._to(job, DEAD)
                    self.dying.discard(entry[0])
            case _:
                pass  # acked: the Delete decides
        self._trim()

    def _claimed(self, value: Lease, node: str) -> None:
        columns = uniform_columns(value.jobs) if value.jobs else None
        if columns is not None:
            seqs, lease_ids, deadline = columns
            batch = self.whole(seqs)
            if batch is None and not self.knows_any(seqs):
                batch = self.add_batch(seqs)
            if batch is not None:
                self.lease_batch(batch, lease_ids, deadline, node, value.attempt_key)
                return
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
        batch.attempt = self._attempt(node, attempt_key, zip(batch.seqs, lease_ids, strict=True))
        heappush(self._ends, (deadline, batch.seqs[0]))
        self._trim()

    def _lease_anew(self, held: Job | LeaseBatch, *, same: bool) -> None:
        """The leased jobs are about to be leased. The `same` lease again (from a frame that states the present)
        continues: its holder is not told of an end, and frames in flight stay valid."""
        holder, busy = (held.holder, held.busy) if same else (None, False)
        if same:
            held.holder = None
        if isinstance(held, LeaseBatch):
            self._end_batch(held)
        else:
            self._end_lease(held)
        held.holder, held.busy = holder, busy

    def _attempt(self, node: str, key: str | None, jobs: Iterable[tuple[int, int]]) -> Attempt | None:
        if key is None:
            return None
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
        batch = self.whole(seqs)
        if batch is not None and batch.state == LEASED:
            self._end_batch(batch)
            self._drop_batch(batch)
            return
        for seq in seqs:
            job = self.find(seq)
            if job is not None:
                self.dead_lettered += job.state == DEAD and job.deliveries > 0
                self._end_lease(job)
                self._drop(job)

    def all_deleted(self, seqs: Sequence[int]) -> None:
        """`deleted` for each."""
        if self.knows_any(seqs):
            for seq in seqs:
                self.deleted(seq)

    def deleted(self, seq: int) -> None:
        """The record is gone. The holder of its lease keeps the lease."""
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
        """The limits have changed: jobs delivered too often are dead now, others no longer are."""
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
        """A move of this job is open, whatever else is known of it."""
        job = self._job(seq)
        job.deliveries, job.reason = deliveries, reason
        self._end_lease(job)
        self._to(job, DEAD)
        self.dying.discard(seq)

    def forget_leases(self) -> None:
        """After a crash of a queue whose leases are not durable: no job is held, nothing was delivered yet. Delays
        set by an append remain; the caller restores open moves (`die`)."""
        delayed = [(job.seq, job.ready_at) for job in self.jobs.values() if not job.deliveries and job.ready_at]
        lost, dead_lettered = self.lost, self.dead_lettered
        LeaseTable.__init__(self, self.limits)
        self.lost, self.dead_lettered = lost, dead_lettered
        self.delay(delayed)

    def prune(self, holds: Callable[[int], bool]) -> None:
        """Recovery is over: of records that do not exist, only leases remain."""
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
