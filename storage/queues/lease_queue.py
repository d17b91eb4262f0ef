"""One queue at run time: waiting claims, leased jobs, expiring leases. Belongs to the event loop.

`LeaseTable` decides; this class carries the decisions out. Jobs that were taken are read, their leases are written
to the log when leases are durable, and only then are they delivered. After any failure they are put back. Source:
docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import structlog

from storage.errors import StorageError
from storage.format.control import Lease
from storage.queues import reading
from storage.queues.claims import Claim, Claimed
from storage.queues.dispatcher import Assignment, Dispatcher
from storage.queues.round_robin import distribute
from storage.state.catalog import Topic
from storage.state.queues.job import Job, LeaseEntry
from storage.state.queues.policy import backoff_ms
from storage.state.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.queues import Queues

_log = structlog.get_logger("storage")

#: A lease that could not be ended (the disk was full) is tried again after this time.
RETRY_MS = 1000


class LeaseQueue:
    """See the module."""

    def __init__(self, queues: Queues, topic: Topic) -> None:
        table = topic.log.queue
        assert table is not None
        self.topic = topic
        self.table = table
        self._queues = queues
        self._engine = queues.engine
        self._waiting: deque[Claim] = deque()
        #: When the waiting claims are served as a group; None: no window is open.
        self._window_ms: int | None = None
        self._retry_ms = 0
        self._dispatcher = Dispatcher(self, queues)
        #: Lease frames of expiries in flight.
        self._expiring = 0
        #: Pending answers of claims with an attempt_key, by (node, key).
        self.attempts: dict[tuple[str, str], asyncio.Future[Claimed]] = {}
        #: Frames in flight that end or change leases.
        self.pending_commits: set[asyncio.Future[Any]] = set()
        #: Tasks that give leases back once frames in flight have completed: no change has to wait for them.
        self._later: set[asyncio.Task[None]] = set()
        self.closed = False

    # -- waiting -----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def queue_up(self, claim: Claim) -> None:
        """Serve the claim, now or when there are jobs."""
        self._waiting.append(claim)
        jitter = self.topic.config.claim_jitter_ms
        if jitter and self._window_ms is None:
            self._window_ms = self._engine.now_ms() + jitter
        self.serve()
        if not jitter and not claim.dispatched and not claim.patient and not self.ending:
            self.leave(claim)

    @property
    def ending(self) -> bool:
        """Whether expired leases are being ended."""
        return self._expiring > 0

    def leave(self, claim: Claim) -> None:
        """It stops waiting; a claim that no job was taken for gets nothing."""
        if claim in self._waiting:
            self._waiting.remove(claim)
        if not claim.dispatched and not claim.answer.done():
            self._give_nothing(claim)

    def _give_nothing(self, claim: Claim) -> None:
        """There are no jobs for it, or none that can be read."""
        if claim.failed:
            claim.answer.set_exception(claim.failed[0])
        else:
            claim.answer.set_result(Claimed(self, claim, [], self.ready))

    @property
    def ready(self) -> int:
        """Jobs that can be claimed now."""
        return self.table.ready(self.topic.log.count)

    def send_away(self, error: StorageError | None) -> None:
        """Answer every waiting claim: with nothing (at shutdown), or with the error (the topic is gone)."""
        while self._waiting:
            claim = self._waiting.popleft()
            if claim.answer.done():
                continue
            if error is None:
                self._give_nothing(claim)
            else:
                claim.answer.set_exception(error)

    async def close(self) -> None:
        """Deliver nothing more; on return nothing is in flight."""
        self.closed = True
        await self.quiet()
        while self._later:
            await asyncio.wait(set(self._later))

    async def quiet(self) -> None:
        """Wait until nothing decided is still on its way to the log."""
        while self._dispatcher.works or self.pending_commits:
            await asyncio.wait([*self._dispatcher.works, *self.pending_commits])

    async def wait_dispatched(self) -> None:
        """Wait until the deliveries that had begun when the queue was paused have ended."""
        while self._dispatcher.works and self.topic.paused:  # a read that ends may be followed by a write
            await asyncio.wait(set(self._dispatcher.works))

    async def repeat(self, jobs: list[Job], node: str, key: str) -> Claimed | None:
        """The answer to a claim once more, as far as its leases stand; None when its records are gone."""
        self.serve()  # jobs that have expired by now become ready
        tokens = {job.seq: (job.lease_id, job.deadline, job.deliveries) for job in jobs}
        found = await reading.read(self._engine, self.topic, sorted(tokens))
        for error in found.unreadable.values():
            raise error  # the leases stand: it may be asked for again
        claim = Claim(self._engine.loop.create_future(), node, 0, 0, patient=False, attempt_key=key)
        given = [ClaimedJob(found.records[seq], *tokens[seq]) for seq in tokens if seq in found.records]
        return Claimed(self, claim, given, self.ready) if given else None

    # -- serving -----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Apply the passing of time, and deliver ready jobs. Called whenever jobs may have become ready."""
        if self.closed or self.topic.topic_id in self._engine.changing:
            return
        now = self._engine.now_ms()
        self.table.advance(now)
        self._expire(now)
        if self._waiting and not self.topic.paused:
            self._serve(now)
        elif self._window_ms is not None and now >= self._window_ms:
            self._close_window()
        if self.table.dying:
            self._queues.mover.kick(self.topic)
        self._set_alarm()

    def catch_up(self) -> None:
        """`serve`, if time alone has changed anything since."""
        if self.table.is_due(self._engine.now_ms()):
            self.serve()

    def _serve(self, now: int) -> None:
        if self.topic.config.claim_jitter_ms or self._window_ms is not None:
            self._serve_cohort(now)
            return
        while self._waiting:
            claim = self._waiting[0]
            most = self._most(claim)
            if not claim.gone and (batch := self.table.take_batch(most, self.topic.log.live_seqs)) is not None:
                self._waiting.popleft()
                self._dispatcher.dispatch_batch(claim, batch, now)
                continue
            jobs = self.table.take(most, self.topic.log.live_seqs) if not claim.gone else []
            if not jobs and not claim.gone:
                return
            self._waiting.popleft()
            if jobs:
                self._dispatcher.dispatch([(claim, jobs)])

    def _most(self, claim: Claim) -> int:
        """How many jobs it is given: by the mean size of the queue's records as many as `max_bytes` are, or one."""
        log = self.topic.log
        if not claim.max_bytes or not log.bytes:
            return claim.max
        return max(1, min(claim.max, claim.max_bytes * log.count // log.bytes))

    def _serve_cohort(self, now: int) -> None:
        if self._window_ms is None:
            if self.ready > 0:
                self._window_ms = now + self.topic.config.claim_jitter_ms
            return
        if now < self._window_ms:
            return
        self._window_ms = None
        members = [claim for claim in self._waiting if not claim.gone]
        wanted = [self._most(claim) for claim in members]
        jobs = self.table.take(sum(wanted), self.topic.log.live_seqs)
        shares = distribute(jobs, wanted)
        self._waiting.clear()
        assignments: list[Assignment] = []
        for claim, share in zip(members, shares, strict=True):
            if share:
                assignments.append((claim, share))
            elif claim.patient:
                self._waiting.append(claim)
            else:
                self.leave(claim)
        if assignments:
            self._dispatcher.dispatch(assignments)

    def _close_window(self) -> None:
        """Close the window without assigning jobs: nobody waits, or the queue is paused. Claims that do not wait get
        nothing."""
        self._window_ms = None
        for claim in [claim for claim in self._waiting if not claim.patient]:
            self.leave(claim)

    def _set_alarm(self) -> None:
        at = self.table.next_change()
        if self._window_ms is not None:
            at = self._window_ms if at is None else min(at, self._window_ms)
        if at is not None:
            self._queues.alarms.set(self.topic.topic_id, max(at, self._retry_ms))

    def again(self, claim: Claim) -> None:
        """The jobs taken for it went away during the read (deleted, or expired), or cannot be read now: it gets
        other jobs."""
        claim.dispatched = False
        if not self.closed and (claim.patient or not self.topic.config.claim_jitter_ms):
            self._waiting.appendleft(claim)
        else:
            self.leave(claim)

    # -- leases that end ---------------------------------------------------------------------------------------------

    def released(
        self, job: Job, *, penalty: bool = True, delay_ms: int | None = None, chance: float | None = None
    ) -> LeaseEntry:
        """The job as it is when its lease ends now."""
        forgiven = job.forgiven + (not penalty)
        wait = delay_ms
        if wait is None:
            drawn = random.random() if chance is None else chance
            wait = backoff_ms(self.topic.config, job.deliveries - forgiven, drawn)
        return (job.seq, 0, 0, job.deliveries, self._engine.now_ms() + wait if wait > 0 else 0, forgiven)

    def _expire(self, now: int) -> None:
        if now < self._retry_ms:
            return
        jobs = self.table.expired(now)
        if not jobs:
            return
        self._queues.stats.expired += len(jobs)
        value = Lease(event="expired", jobs=[self.released(job) for job in jobs])
        if not self.topic.leases_durable:
            self.table.apply(value, "")
            return
        self._expiring += 1
        self._ends(jobs, value, "")

    def give_back(self, leases: Sequence[tuple[int, int]], node: str, *, forgiven: bool) -> None:
        """End these leases (seq, token) if they stand: at once and without counting the delivery, or like a nack.
        Leases with a frame in flight end after it. During a change of the topic all of them end after it, because
        the change may be writing them down.
        """
        standing = [job for seq, token in leases if (job := self._current(seq, token)) is not None]
        changing = self.topic.topic_id in self._engine.changing
        jobs = [job for job in standing if not job.busy and not changing]
        others = [(job.seq, job.lease_id) for job in standing if job.busy or changing]
        if others:
            task = self._engine.loop.create_task(self._give_back_later(others, node, forgiven))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
        if not jobs:
            return
        entries = [self.released(job, penalty=not forgiven, delay_ms=0 if forgiven else None) for job in jobs]
        value = Lease(event="released", jobs=entries)
        if not self.topic.leases_durable:
            self.table.apply(value, node)
            self.serve()
            return
        for job in jobs:
            job.busy = True
        self._ends(jobs, value, node)

    async def _give_back_later(self, leases: Sequence[tuple[int, int]], node: str, forgiven: bool) -> None:
        changing = self._engine.changing.get(self.topic.topic_id)
        if changing is not None:
            await asyncio.wait([changing])
        elif self.pending_commits:
            await asyncio.wait(set(self.pending_commits))
        if not self.closed:
            self.give_back(leases, node, forgiven=forgiven)

    def _current(self, seq: int, token: int) -> Job | None:
        job = self.table.find(seq) if self.table.lease_of(seq) == token else None
        return job if job is not None and job.lease_id == token else None

    def _ends(self, jobs: list[Job], value: Lease, node: str) -> None:
        task = self._dispatcher.work(self._end(jobs, value, node))
        self.pending_commits.add(task)
        task.add_done_callback(self.pending_commits.discard)

    async def _end(self, jobs: list[Job], value: Lease, node: str) -> None:
        try:
            await self._queues.commit(self.topic, [value], [node])
        # Whatever the error is, nobody may be left waiting for these jobs. The leases stand; expired ones are
        # tried again.
        except Exception as error:
            # The leases stand; those that have run out are tried again, as long as anybody can say so.
            self.table.put_back(jobs)
            self._retry_ms = self._engine.now_ms() + RETRY_MS
            _log.warning("leases_not_ended", topic=self.topic.name, jobs=len(jobs), error=str(error))
        if value.event == "expired":
            self._expiring -= 1
        self.serve_all()

    def serve_all(self) -> None:
        """Claims that waited only for frames in flight get the jobs that are ready now, or nothing."""
        self.serve()
        if not self.topic.config.claim_jitter_ms and not self.ending:
            for claim in [claim for claim in self._waiting if not claim.patient]:
                self.leave(claim)
