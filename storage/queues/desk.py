"""The desk of one queue: claims that wait, jobs that are handed out, leases that run out. Belongs to the event loop.

Deciding is `LeaseTable`'s; here it is carried out: what is taken is read, written to the log when leases are durable,
and only then handed out. Whatever fails on the way is put back. Source: api.md §6.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from storage.catalog import Topic
from storage.errors import StorageError, TopicNotFound
from storage.format.control import Lease
from storage.queues import reading, together
from storage.queues.claims import Claim, Claimed
from storage.queues.cohort import deal
from storage.queues.grant import Grant
from storage.queues.job import Job, JobRow
from storage.queues.policy import backoff_ms
from storage.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.queues import Queues

_log = structlog.get_logger("storage")

#: A lease that could not be ended (the disk was full) is tried again after so long.
RETRY_MS = 1000
#: A job whose record cannot be read is not tried again for so long: it must not keep the others back.
CORRUPT_WAIT_MS = 60_000


Hand = tuple[Claim, list[Job]]


class Desk:
    """See the module."""

    def __init__(self, queues: Queues, topic: Topic) -> None:
        table = topic.log.queue
        assert table is not None
        self.topic = topic
        self.table = table
        self._queues = queues
        self._engine = queues.engine
        self._waiting: deque[Claim] = deque()
        #: When the claims that wait are served together; None: no window is open.
        self._window_ms: int | None = None
        self._retry_ms = 0
        self._works: set[asyncio.Task[Any]] = set()
        #: Lease frames of expiries on their way.
        self._expiring = 0
        #: Answers on their way to claims with an attempt_key, by (node, key).
        self.attempts: dict[tuple[str, str], asyncio.Future[Claimed]] = {}
        #: Frames on their way that end or change leases.
        self.settling: set[asyncio.Future[Any]] = set()
        self.closed = False

    # -- waiting -----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def queue_up(self, claim: Claim) -> None:
        """Serve the claim, now or when there is something for it."""
        self._waiting.append(claim)
        jitter = self.topic.config.claim_jitter_ms
        if jitter and self._window_ms is None:
            self._window_ms = self._engine.now_ms() + jitter
        self.serve()
        if not jitter and not claim.dealt and not claim.patient and not self.ending:
            self.leave(claim)

    @property
    def ending(self) -> bool:
        """Whether leases that have run out are on their way back."""
        return self._expiring > 0

    def leave(self, claim: Claim) -> None:
        """It waits no longer; a claim that nobody has dealt to gets nothing."""
        if claim in self._waiting:
            self._waiting.remove(claim)
        if not claim.dealt and not claim.answer.done():
            claim.answer.set_result(self._nothing(claim))

    def _nothing(self, claim: Claim) -> Claimed:
        return Claimed(self, claim, [], self.ready)

    @property
    def ready(self) -> int:
        """Jobs that can be claimed now."""
        return self.table.ready(self.topic.log.count)

    def send_away(self, error: StorageError | None) -> None:
        """Everybody who waits is told: there is nothing (at shutdown), or why (the topic is gone)."""
        while self._waiting:
            claim = self._waiting.popleft()
            if claim.answer.done():
                continue
            if error is None:
                claim.answer.set_result(self._nothing(claim))
            else:
                claim.answer.set_exception(error)

    async def close(self) -> None:
        """Nothing is handed out any more; what is on its way has ended on return."""
        self.closed = True
        await self.quiet()

    async def quiet(self) -> None:
        """Nothing that was decided is waiting for the log."""
        while self._works or self.settling:
            await asyncio.wait([*self._works, *self.settling])

    async def repeat(self, jobs: list[Job], node: str, key: str) -> Claimed | None:
        """The answer to a claim once more, as far as its leases stand; None when its records are gone."""
        self.serve()  # what else has run out by now is ready
        tokens = {job.seq: (job.lease_id, job.deadline, job.deliveries) for job in jobs}
        found = await reading.read(self._engine, self.topic, sorted(tokens))
        claim = Claim(self._engine.loop.create_future(), node, 0, 0, patient=False, attempt_key=key)
        given = [ClaimedJob(found.records[seq], *tokens[seq]) for seq in tokens if seq in found.records]
        return Claimed(self, claim, given, self.ready) if given else None

    # -- serving -----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Let time pass, and hand out what is ready. Called whenever something may have become so."""
        if self.closed or self.topic.topic_id in self._engine.changing:
            return
        now = self._engine.now_ms()
        self.table.advance(now)
        self._expire(now)
        if self._waiting and not self.topic.paused:
            self._serve(now)
        if self.table.dying:
            self._queues.mover.kick(self.topic)
        self._set_alarm(now)

    def _serve(self, now: int) -> None:
        if self.topic.config.claim_jitter_ms or self._window_ms is not None:
            self._serve_cohort(now)
            return
        while self._waiting:
            claim = self._waiting[0]
            if not claim.gone and (grant := self.table.take_together(claim.max, self.topic.log.live_seqs)) is not None:
                self._waiting.popleft()
                self._deal_together(claim, grant)
                continue
            jobs = self.table.take(claim.max, self.topic.log.live_seqs) if not claim.gone else []
            if not jobs and not claim.gone:
                return
            self._waiting.popleft()
            if jobs:
                self._deal([(claim, jobs)])

    def _serve_cohort(self, now: int) -> None:
        if self._window_ms is None:
            if self.ready > 0:
                self._window_ms = now + self.topic.config.claim_jitter_ms
            return
        if now < self._window_ms:
            return
        self._window_ms = None
        members = [claim for claim in self._waiting if not claim.gone]
        jobs = self.table.take(sum(claim.max for claim in members), self.topic.log.live_seqs)
        hands = deal(jobs, [claim.max for claim in members])
        self._waiting.clear()
        dealt: list[Hand] = []
        for claim, hand in zip(members, hands, strict=True):
            if hand:
                dealt.append((claim, hand))
            elif claim.patient:
                self._waiting.append(claim)
            else:
                self.leave(claim)
        if dealt:
            self._deal(dealt)

    def _set_alarm(self, now: int) -> None:
        times = [at for at in (self.table.next_change(), self._window_ms) if at is not None]
        if times:
            self._queues.alarms.set(self.topic.topic_id, max(min(times), self._retry_ms))

    # -- handing out -------------------------------------------------------------------------------------------------

    def _deal(self, hands: list[Hand]) -> None:
        for claim, _ in hands:
            claim.dealt = True
        if not self.topic.leases_durable:
            seqs = sorted(job.seq for _, jobs in hands for job in jobs)
            read = reading.cached(self._engine, self.topic, seqs)
            if read is not None:
                self._hand_out(hands, read.found(), self._leases(hands))
                return
        self._work(self._deal_later(hands))

    def _deal_together(self, claim: Claim, grant: Grant) -> None:
        claim.dealt = True
        if not self.topic.leases_durable:
            read = reading.cached(self._engine, self.topic, grant.seqs)
            if read is None:
                read = self._queues.ahead.take(self.topic, grant.seqs)
            if read is not None:
                dealt = together.deal(grant, claim, self._engine.now_ms())
                self.table.lease_together(grant, dealt.lease_ids, dealt.deadline, claim.node, claim.attempt_key)
                together.hand_out(self._queues, self, dealt, read)
                return
        self._work(self._deal_together_later(claim, grant))

    async def _deal_together_later(self, claim: Claim, grant: Grant) -> None:
        try:
            read: reading.Read | reading.Found | None = reading.cached(self._engine, self.topic, grant.seqs)
            if read is None:
                read = await self._queues.ahead.read(self.topic, grant.seqs)
            whole = read if isinstance(read, reading.Read) else reading.whole(read, grant.seqs)
            if whole is None or claim.gone or grant.singles is not None:
                found = read if isinstance(read, reading.Found) else read.found()
                await self._deal_found([(claim, self.table.take_apart(grant))], found)
                return
            dealt = together.deal(grant, claim, self._engine.now_ms())
            if self.topic.leases_durable:
                await self._queues.commit(self.topic, [dealt.frame()], [claim.node])
            else:
                self.table.lease_together(grant, dealt.lease_ids, dealt.deadline, claim.node, claim.attempt_key)
            together.hand_out(self._queues, self, dealt, whole)
        except Exception as error:  # as below
            self.table.put_back_together(grant)
            self._failed([(claim, [])], error)
        self._serve_all()

    async def _read(self, seqs: list[int]) -> reading.Found:
        read = reading.cached(self._engine, self.topic, seqs)
        return read.found() if read is not None else await reading.read(self._engine, self.topic, seqs)

    def _work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._engine.loop.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task

    async def _deal_later(self, hands: list[Hand]) -> None:
        jobs = [job for _, hand in hands for job in hand]
        try:
            found = await self._read(sorted(job.seq for job in jobs))
        except Exception as error:  # whatever it is, these jobs must not be lost to it
            self.table.put_back(jobs)
            self._failed(hands, error)
            self._serve_all()
            return
        await self._deal_found(hands, found)

    async def _deal_found(self, hands: list[Hand], found: reading.Found) -> None:
        jobs = [job for _, hand in hands for job in hand]
        try:
            hands = self._readable(hands, found)
            jobs = [job for _, hand in hands for job in hand]  # the others may be somebody else's by now
            leases = self._leases(hands)
            if leases and self.topic.leases_durable:
                await self._queues.commit(self.topic, [value for value, _ in leases], [node for _, node in leases])
            self._hand_out(hands, found, leases)
        except Exception as error:  # as above
            self.table.put_back(jobs)
            self._failed(hands, error)
        self._serve_all()

    def _failed(self, hands: list[Hand], error: Exception) -> None:
        if not isinstance(error, StorageError):
            _log.error("claim_failed", topic=self.topic.name, exc_info=error)
        self._fail(hands, error)

    def _fail(self, hands: list[Hand], error: Exception) -> None:
        if self._engine.catalog.by_id.get(self.topic.topic_id) is not self.topic:
            error = TopicNotFound(self.topic.name)
        for claim, _ in hands:
            if not claim.answer.done():
                claim.answer.set_exception(error)

    def _readable(self, hands: list[Hand], found: reading.Found) -> list[Hand]:
        """The hands without jobs that are not to be had, and without claims that nobody waits for."""
        kept: list[Hand] = []
        corrupt = frozenset(found.corrupt)
        for claim, jobs in hands:
            hand = [] if claim.gone else [job for job in jobs if job.seq in found.records]
            bad = [job for job in jobs if job.seq in corrupt]
            self.table.put_back([job for job in jobs if job not in hand and job not in bad])
            for job in bad:
                self._queues.stats.unreadable += 1
                self.table.put_off(job, self._engine.now_ms() + CORRUPT_WAIT_MS)
            if hand:
                kept.append((claim, hand))
            elif bad and not claim.answer.done():
                claim.answer.set_exception(reading.corrupt(self.topic.name, bad[0].seq))
            elif not claim.answer.done():
                self._again(claim)
        return kept

    def _again(self, claim: Claim) -> None:
        """What was taken for it went away while it was read (deleted, or expired): it gets what else there is."""
        claim.dealt = False
        if not self.closed and (claim.patient or not self.topic.config.claim_jitter_ms):
            self._waiting.appendleft(claim)
        else:
            self.leave(claim)

    def _leases(self, hands: list[Hand]) -> list[tuple[Lease, str]]:
        now = self._engine.now_ms()
        leases: list[tuple[Lease, str]] = []
        for claim, jobs in hands:
            deadline = now + claim.lease_ms
            rows: list[JobRow] = [
                (job.seq, token, deadline, job.deliveries + 1, 0, job.forgiven)
                for job, token in zip(jobs, together.fresh_tokens(len(jobs)), strict=True)
            ]
            leases.append((Lease(event="claimed", jobs=rows, attempt_key=claim.attempt_key), claim.node))
        return leases

    def _hand_out(self, hands: list[Hand], found: reading.Found, leases: Sequence[tuple[Lease, str]]) -> None:
        """Answer the claims; where leases are frames, they have been applied by now."""
        durable, stats = self.topic.leases_durable, self._queues.stats
        records, sizes = found.records, found.sizes
        if not durable:
            for value, node in leases:
                self.table.apply(value, node)
        ready = self.ready
        for (claim, jobs), (value, _) in zip(hands, leases, strict=True):
            given: list[ClaimedJob] = []
            for job, row in zip(jobs, value.jobs, strict=True):
                job.size = sizes[job.seq]
                job.holder = claim.holder
                given.append(ClaimedJob(records[job.seq], row[1], row[2], row[3]))
            stats.claims += 1
            stats.claimed += len(given)
            claimed = Claimed(self, claim, given, ready)
            if claim.answer.done():
                claimed.undo()
            else:
                claim.answer.set_result(claimed)

    # -- leases that end ---------------------------------------------------------------------------------------------

    def released(
        self, job: Job, *, penalty: bool = True, delay_ms: int | None = None, chance: float | None = None
    ) -> JobRow:
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
        """End these leases (seq, token) as far as they stand: forgiven and at once, or as a nack would."""
        jobs = [job for seq, token in leases if (job := self._current(seq, token)) is not None]
        if not jobs:
            return
        rows = [self.released(job, penalty=not forgiven, delay_ms=0 if forgiven else None) for job in jobs]
        value = Lease(event="released", jobs=rows)
        if not self.topic.leases_durable:
            self.table.apply(value, node)
            self.serve()
            return
        for job in jobs:
            job.busy = True
        self._ends(jobs, value, node)

    def _current(self, seq: int, token: int) -> Job | None:
        job = self.table.find(seq)
        return job if job is not None and job.lease_id == token and not job.busy else None

    def _ends(self, jobs: list[Job], value: Lease, node: str) -> None:
        task = self._work(self._end(jobs, value, node))
        self.settling.add(task)
        task.add_done_callback(self.settling.discard)

    async def _end(self, jobs: list[Job], value: Lease, node: str) -> None:
        try:
            await self._queues.commit(self.topic, [value], [node])
        except Exception as error:  # whatever it is, nobody may be left waiting for these jobs
            # The leases stand; those that have run out are tried again, as long as anybody can say so.
            self.table.put_back(jobs)
            self._retry_ms = self._engine.now_ms() + RETRY_MS
            _log.warning("leases_not_ended", topic=self.topic.name, jobs=len(jobs), error=str(error))
        if value.event == "expired":
            self._expiring -= 1
        self._serve_all()

    def _serve_all(self) -> None:
        """Claims that only waited for what was on its way get what there is now, or nothing."""
        self.serve()
        if not self.topic.config.claim_jitter_ms and not self.ending:
            for claim in [claim for claim in self._waiting if not claim.patient]:
                self.leave(claim)
