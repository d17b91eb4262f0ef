"""Hands jobs out to claims: what was taken is read, written to the log when leases are durable, and only then given.

Whatever fails on the way is put back. Source: api.md §6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from storage.config import Durability
from storage.errors import StorageError, TopicNotFound, Unreadable
from storage.format.control import Lease
from storage.log.encode import encode_controls
from storage.queues import reading, together
from storage.queues.carrying_out import commit_now
from storage.queues.claims import Claim, Claimed
from storage.state.queues.grant import Grant
from storage.state.queues.job import Job, JobRow
from storage.state.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.desk import Desk
    from storage.queues.queues import Queues

_log = structlog.get_logger("storage")

#: A job whose record is corrupt or cannot be read is not tried again for so long: it must not keep the others back.
CORRUPT_WAIT_MS = 60_000
#: So many reads for one claim that the disk fails, and it is told so: the others are the next one's.
MOST_FAILURES = 64
#: Jobs of an unreadable segment that are put off in one go.
MOST_AT_ONCE = 1000

Hand: TypeAlias = tuple[Claim, list[Job]]


class Dealer:
    """Of one desk. `works`: what is under way."""

    def __init__(self, desk: Desk, queues: Queues) -> None:
        self._desk = desk
        self._topic = desk.topic
        self._table = desk.table
        self._queues = queues
        self._engine = queues.engine
        self.works: set[asyncio.Future[Any]] = set()

    def work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._engine.loop.create_task(work)
        self.works.add(task)
        task.add_done_callback(self.works.discard)
        return task

    def deal(self, hands: list[Hand]) -> None:
        for claim, _ in hands:
            claim.dealt = True
        if not self._topic.leases_durable:
            seqs = sorted(job.seq for _, jobs in hands for job in jobs)
            read = reading.cached(self._engine, self._topic, seqs)
            if read is not None:
                self._hand_out(hands, read.found(), self._leases(hands))
                return
        self.work(self._deal_later(hands))

    def deal_together(self, claim: Claim, grant: Grant, now: int) -> None:
        claim.dealt = True
        try:
            read = reading.cached(self._engine, self._topic, grant.seqs)
            if read is None:
                read = self._queues.ahead.take(self._topic, grant.seqs)
            if read is None:
                self.work(self._together(claim, grant))
            else:
                self._give_together(claim, grant, read, now)
        except Exception as error:  # whatever it is, these jobs must not be lost to it
            self._not_given(claim, grant, error)

    async def _together(self, claim: Claim, grant: Grant) -> None:
        try:
            read: reading.Read | reading.Found | None = reading.cached(self._engine, self._topic, grant.seqs)
            if read is None:
                read = await self._queues.ahead.read(self._topic, grant.seqs)
            whole = read if isinstance(read, reading.Read) else reading.whole(read, grant.seqs)
            if whole is None or claim.gone or grant.singles is not None:
                found = read if isinstance(read, reading.Found) else read.found()
                await self._deal_found([(claim, self._table.take_apart(grant))], found)
                return
            self._give_together(claim, grant, whole, self._engine.now_ms())
        except Exception as error:  # as above
            self._not_given(claim, grant, error)
        self._desk.serve_all()

    def _give_together(self, claim: Claim, grant: Grant, read: reading.Read, now: int) -> None:
        """At once, or when the log says so."""
        topic, log = self._topic, self._topic.log
        dealt = together.deal(grant, claim, now)
        if not topic.leases_durable:
            self._table.lease_together(grant, dealt.lease_ids, dealt.deadline, claim.node, claim.attempt_key)
            together.hand_out(self._queues, self._desk, dealt, read)
            return
        if not log.in_memory_only and self._engine.catalog.by_id.get(topic.topic_id) is topic:
            needs_sync = topic.config.durability is Durability.FSYNC
            encoded = encode_controls([dealt.frame()], log.topic_id, now, durable=needs_sync, nodes=[claim.node])
            written = partial(self._written, dealt, read)
            if commit_now(self._engine, log, encoded, now, self.works, written, needs_sync=needs_sync):
                return
        self.work(self._write(dealt, read))

    async def _write(self, dealt: together.Deal, read: reading.Read) -> None:
        try:
            await self._queues.commit(self._topic, [dealt.frame()], [dealt.claim.node])
        except Exception as error:  # as above
            self._written(dealt, read, error)
        else:
            self._written(dealt, read, None)

    def _written(self, dealt: together.Deal, read: reading.Read, error: Exception | None) -> None:
        """What has become of leases on their way to the log."""
        try:
            if error is not None:
                raise error
            together.hand_out(self._queues, self._desk, dealt, read)
        except Exception as failure:  # as above
            self._not_given(dealt.claim, dealt.grant, failure)
        self._desk.serve_all()

    def _not_given(self, claim: Claim, grant: Grant, error: Exception) -> None:
        self._table.put_back_together(grant)
        self._failed([(claim, [])], error)

    async def _read(self, seqs: list[int]) -> reading.Found:
        read = reading.cached(self._engine, self._topic, seqs)
        return read.found() if read is not None else await reading.read(self._engine, self._topic, seqs)

    async def _deal_later(self, hands: list[Hand]) -> None:
        jobs = [job for _, hand in hands for job in hand]
        try:
            found = await self._read(sorted(job.seq for job in jobs))
        except Exception as error:  # as above
            self._table.put_back(jobs)
            self._failed(hands, error)
            self._desk.serve_all()
            return
        await self._deal_found(hands, found)

    async def _deal_found(self, hands: list[Hand], found: reading.Found) -> None:
        jobs = [job for _, hand in hands for job in hand]
        try:
            hands = self._readable(hands, found)
            jobs = [job for _, hand in hands for job in hand]  # the others may be somebody else's by now
            leases = self._leases(hands)
            if leases and self._topic.leases_durable:
                await self._queues.commit(self._topic, [value for value, _ in leases], [node for _, node in leases])
            self._hand_out(hands, found, leases)
        except Exception as error:  # as above
            self._table.put_back(jobs)
            self._failed(hands, error)
        self._desk.serve_all()

    def _failed(self, hands: list[Hand], error: Exception) -> None:
        if not isinstance(error, StorageError):
            _log.error("claim_failed", topic=self._topic.name, exc_info=error)
        self._fail(hands, error)

    def _fail(self, hands: list[Hand], error: Exception) -> None:
        if self._engine.catalog.by_id.get(self._topic.topic_id) is not self._topic:
            error = TopicNotFound(self._topic.name)
        for claim, _ in hands:
            if not claim.answer.done():
                claim.answer.set_exception(error)

    def _readable(self, hands: list[Hand], found: reading.Found) -> list[Hand]:
        """The hands without jobs that are not to be had (any more), and without claims that nobody waits for."""
        kept: list[Hand] = []
        corrupt = frozenset(found.corrupt)
        for claim, jobs in hands:
            hand = [] if claim.gone else [job for job in jobs if job.seq in found.records and not job.gone]
            bad = [job for job in jobs if job.seq in corrupt]
            unreadable = [job for job in jobs if job.seq in found.unreadable]
            self._table.put_back([job for job in jobs if job not in hand and job not in bad and job not in unreadable])
            self._put_off(bad)
            if unreadable:
                claim.failed += dict.fromkeys(found.unreadable[job.seq] for job in unreadable)
                behind = [] if hand else self._behind(claim.failed)
                self._put_off(unreadable + behind, claim.failed[-1])
            if hand:
                kept.append((claim, hand))
            elif claim.answer.done():
                continue
            elif bad:
                claim.answer.set_exception(reading.corrupt(self._topic.name, bad[0].seq))
            elif len(claim.failed) >= MOST_FAILURES:
                claim.answer.set_exception(claim.failed[0])
            else:
                self._desk.again(claim)
        return kept

    def _put_off(self, jobs: list[Job], error: StorageError | None = None) -> None:
        self._queues.stats.unreadable += len(jobs)
        for job in jobs:
            self._table.put_off(job, self._engine.now_ms() + CORRUPT_WAIT_MS)
        if error is not None:
            first = min(job.seq for job in jobs)
            _log.warning("jobs_put_off", topic=self._topic.name, jobs=len(jobs), first_seq=first, error=error.message)

    def _behind(self, failed: list[Unreadable]) -> list[Job]:
        """Jobs that come next, of a segment that failed the last few reads: they are not asked for one by one."""
        detail = failed[-1].detail
        ranges = [each.detail.get("to_seq") for each in failed[-reading.MOST_FAILURES :]]
        if "to_seq" not in detail or ranges != [detail["to_seq"]] * reading.MOST_FAILURES:
            return []
        taken = self._table.take(MOST_AT_ONCE, self._topic.log.live_seqs, below=detail["to_seq"] + 1)
        self._table.put_back([job for job in taken if job.seq < detail["from_seq"]])
        return [job for job in taken if job.seq >= detail["from_seq"]]

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
        durable, stats = self._topic.leases_durable, self._queues.stats
        records, sizes = found.records, found.sizes
        if not durable:
            for value, node in leases:
                self._table.apply(value, node)
        ready = self._desk.ready
        for (claim, jobs), (value, _) in zip(hands, leases, strict=True):
            given: list[ClaimedJob] = []
            for job, row in zip(jobs, value.jobs, strict=True):
                job.size = sizes[job.seq]
                job.holder = claim.holder
                given.append(ClaimedJob(records[job.seq], row[1], row[2], row[3]))
            stats.claims += 1
            stats.claimed += len(given)
            stats.redelivered += sum(row[3] > 1 for row in value.jobs)
            claimed = Claimed(self._desk, claim, given, ready)
            if claim.answer.done():
                claimed.undo()
            else:
                claim.answer.set_result(claimed)
