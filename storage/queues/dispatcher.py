"""Delivers taken jobs to claims: reads them, writes their leases to the log when leases are durable, then answers.

After any failure the jobs are put back.

Source: docs/reference/api.md#queues.
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
from storage.queues import batch_delivery, reading
from storage.queues.claims import Claim, Claimed
from storage.queues.commits import try_commit
from storage.state.queues.job import Job, LeaseEntry
from storage.state.queues.lease_batch import LeaseBatch
from storage.state.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.lease_queue import LeaseQueue
    from storage.queues.queues import Queues

_log = structlog.get_logger("storage")

#: A job whose record is corrupt or unreadable is deferred for this long, so that it does not block the others.
CORRUPT_WAIT_MS = 60_000
#: After this many failed reads for one claim, it gets the error; the next claim tries the other jobs.
MOST_FAILURES = 64
#: Jobs of an unreadable segment that are deferred at once.
MOST_AT_ONCE = 1000

Assignment: TypeAlias = tuple[Claim, list[Job]]


class Dispatcher:
    """Of one queue. `works`: tasks in progress."""

    def __init__(self, queue: LeaseQueue, queues: Queues) -> None:
        self._queue = queue
        self._topic = queue.topic
        self._table = queue.table
        self._queues = queues
        self._engine = queues.engine
        self.works: set[asyncio.Future[Any]] = set()

    def work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._engine.loop.create_task(work)
        self.works.add(task)
        task.add_done_callback(self.works.discard)
        return task

    def dispatch(self, assignments: list[Assignment]) -> None:
        for claim, _ in assignments:
            claim.dispatched = True
        if not self._topic.leases_durable:
            seqs = sorted(job.seq for _, jobs in assignments for job in jobs)
            read = reading.cached(self._engine, self._topic, seqs)
            if read is not None:
                self._deliver(assignments, read.found(), self._leases(assignments))
                return
        self.work(self._dispatch_later(assignments))

    def dispatch_batch(self, claim: Claim, batch: LeaseBatch, now: int) -> None:
        claim.dispatched = True
        try:
            read = reading.cached(self._engine, self._topic, batch.seqs)
            if read is None:
                read = self._queues.ahead.take(self._topic, batch.seqs)
            if read is None:
                self.work(self._dispatch_batch_later(claim, batch))
            else:
                self._deliver_batch(claim, batch, read, now)
        except Exception as error:  # whatever the error is, these jobs must not be lost
            self._not_given(claim, batch, error)

    async def _dispatch_batch_later(self, claim: Claim, batch: LeaseBatch) -> None:
        try:
            read: reading.Read | reading.Found | None = reading.cached(self._engine, self._topic, batch.seqs)
            if read is None:
                read = await self._queues.ahead.read(self._topic, batch.seqs)
            whole = read if isinstance(read, reading.Read) else reading.whole(read, batch.seqs)
            if whole is None or claim.gone or batch.separate is not None:
                found = read if isinstance(read, reading.Found) else read.found()
                await self._dispatch_found([(claim, self._table.take_apart(batch))], found)
                return
            self._deliver_batch(claim, batch, whole, self._engine.now_ms())
        except Exception as error:  # as above
            self._not_given(claim, batch, error)
        self._queue.serve_all()

    def _deliver_batch(self, claim: Claim, batch: LeaseBatch, read: reading.Read, now: int) -> None:
        """At once, or when the leases are durable."""
        topic, log = self._topic, self._topic.log
        delivery = batch_delivery.new_delivery(batch, claim, now)
        if not topic.leases_durable:
            self._table.lease_batch(batch, delivery.lease_ids, delivery.deadline, claim.node, claim.attempt_key)
            batch_delivery.complete_claim(self._queues, self._queue, delivery, read)
            return
        if not log.in_memory_only and self._engine.catalog.by_id.get(topic.topic_id) is topic:
            needs_sync = topic.config.durability is Durability.FSYNC
            encoded = encode_controls([delivery.frame()], log.topic_id, now, durable=needs_sync, nodes=[claim.node])
            written = partial(self._written, delivery, read)
            if try_commit(self._engine, log, encoded, now, self.works, written, needs_sync=needs_sync):
                return
        self.work(self._write(delivery, read))

    async def _write(self, delivery: batch_delivery.BatchDelivery, read: reading.Read) -> None:
        try:
            await self._queues.commit(self._topic, [delivery.frame()], [delivery.claim.node])
        except Exception as error:  # as above
            self._written(delivery, read, error)
        else:
            self._written(delivery, read, None)

    def _written(self, delivery: batch_delivery.BatchDelivery, read: reading.Read, error: Exception | None) -> None:
        """The outcome of leases on their way to the log."""
        try:
            if error is not None:
                raise error
            batch_delivery.complete_claim(self._queues, self._queue, delivery, read)
        except Exception as failure:  # as above
            self._not_given(delivery.claim, delivery.batch, failure)
        self._queue.serve_all()

    def _not_given(self, claim: Claim, batch: LeaseBatch, error: Exception) -> None:
        self._table.put_back_batch(batch)
        self._failed([(claim, [])], error)

    async def _read(self, seqs: list[int]) -> reading.Found:
        read = reading.cached(self._engine, self._topic, seqs)
        return read.found() if read is not None else await reading.read(self._engine, self._topic, seqs)

    async def _dispatch_later(self, assignments: list[Assignment]) -> None:
        jobs = [job for _, assigned in assignments for job in assigned]
        try:
            found = await self._read(sorted(job.seq for job in jobs))
        except Exception as error:  # as above
            self._table.put_back(jobs)
            self._failed(assignments, error)
            self._queue.serve_all()
            return
        await self._dispatch_found(assignments, found)

    async def _dispatch_found(self, assignments: list[Assignment], found: reading.Found) -> None:
        jobs = [job for _, assigned in assignments for job in assigned]
        try:
            assignments = self._readable(assignments, found)
            jobs = [job for _, assigned in assignments for job in assigned]  # the others may be leased to others by now
            leases = self._leases(assignments)
            if leases and self._topic.leases_durable:
                await self._queues.commit(self._topic, [value for value, _ in leases], [node for _, node in leases])
            self._deliver(assignments, found, leases)
        except Exception as error:  # as above
            self._table.put_back(jobs)
            self._failed(assignments, error)
        self._queue.serve_all()

    def _failed(self, assignments: list[Assignment], error: Exception) -> None:
        if not isinstance(error, StorageError):
            _log.error("claim_failed", topic=self._topic.name, exc_info=error)
        self._fail(assignments, error)

    def _fail(self, assignments: list[Assignment], error: Exception) -> None:
        if self._engine.catalog.by_id.get(self._topic.topic_id) is not self._topic:
            error = TopicNotFound(self._topic.name)
        for claim, _ in assignments:
            if not claim.answer.done():
                claim.answer.set_exception(error)

    def _readable(self, assignments: list[Assignment], found: reading.Found) -> list[Assignment]:
        """The assignments without jobs that cannot be delivered (any more), and without claims that nobody waits
        for."""
        found_assignments: list[Assignment] = []
        corrupt = frozenset(found.corrupt)
        for claim, jobs in assignments:
            assigned = [] if claim.gone else [job for job in jobs if job.seq in found.records and not job.gone]
            bad = [job for job in jobs if job.seq in corrupt]
            unreadable = [job for job in jobs if job.seq in found.unreadable]
            self._table.put_back(
                [job for job in jobs if job not in assigned and job not in bad and job not in unreadable]
            )
            self._put_off(bad)
            if unreadable:
                claim.failed += dict.fromkeys(found.unreadable[job.seq] for job in unreadable)
                behind = [] if assigned else self._behind(claim.failed)
                self._put_off(unreadable + behind, claim.failed[-1])
            if assigned:
                found_assignments.append((claim, assigned))
            elif claim.answer.done():
                continue
            elif bad:
                claim.answer.set_exception(reading.corrupt(self._topic.name, bad[0].seq))
            elif len(claim.failed) >= MOST_FAILURES:
                claim.answer.set_exception(claim.failed[0])
            else:
                self._queue.again(claim)
        return found_assignments

    def _put_off(self, jobs: list[Job], error: StorageError | None = None) -> None:
        self._queues.stats.unreadable += len(jobs)
        for job in jobs:
            self._table.put_off(job, self._engine.now_ms() + CORRUPT_WAIT_MS)
        if error is not None:
            first = min(job.seq for job in jobs)
            _log.warning("jobs_deferred", topic=self._topic.name, jobs=len(jobs), first_seq=first, error=error.message)

    def _behind(self, failed: list[Unreadable]) -> list[Job]:
        """The next jobs in a segment whose last few reads failed: they are not read one by one."""
        detail = failed[-1].detail
        ranges = [each.detail.get("to_seq") for each in failed[-reading.MOST_FAILURES :]]
        if "to_seq" not in detail or ranges != [detail["to_seq"]] * reading.MOST_FAILURES:
            return []
        taken = self._table.take(MOST_AT_ONCE, self._topic.log.live_seqs, below=detail["to_seq"] + 1)
        self._table.put_back([job for job in taken if job.seq < detail["from_seq"]])
        return [job for job in taken if job.seq >= detail["from_seq"]]

    def _leases(self, assignments: list[Assignment]) -> list[tuple[Lease, str]]:
        now = self._engine.now_ms()
        leases: list[tuple[Lease, str]] = []
        for claim, jobs in assignments:
            deadline = now + claim.lease_ms
            entries: list[LeaseEntry] = [
                (job.seq, token, deadline, job.deliveries + 1, 0, job.forgiven)
                for job, token in zip(jobs, batch_delivery.fresh_tokens(len(jobs)), strict=True)
            ]
            leases.append((Lease(event="claimed", jobs=entries, attempt_key=claim.attempt_key), claim.node))
        return leases

    def _deliver(
        self, assignments: list[Assignment], found: reading.Found, leases: Sequence[tuple[Lease, str]]
    ) -> None:
        """Answer the claims. Leases that are frames have been applied by now."""
        durable, stats = self._topic.leases_durable, self._queues.stats
        records, sizes = found.records, found.sizes
        if not durable:
            for value, node in leases:
                self._table.apply(value, node)
        ready = self._queue.ready
        for (claim, jobs), (value, _) in zip(assignments, leases, strict=True):
            given: list[ClaimedJob] = []
            for job, entry in zip(jobs, value.jobs, strict=True):
                job.size = sizes[job.seq]
                job.holder = claim.holder
                given.append(ClaimedJob(records[job.seq], entry[1], entry[2], entry[3]))
            stats.claims += 1
            stats.claimed += len(given)
            stats.redelivered += sum(entry[3] > 1 for entry in value.jobs)
            claimed = Claimed(self._queue, claim, given, ready)
            if claim.answer.done():
                claimed.undo()
            else:
                claim.answer.set_result(claimed)
