"""One queue at run time: its waiting claims, how they get jobs, and how leases end. Used only on the event loop.

`LeaseTable` decides, and this module carries the decisions out. A claim passes these steps:

    queue_up         it waits with the others
    serve            time passes in the table; ready jobs are taken for the claims that wait
    _dispatch...     the jobs' records are read, from memory at once or in a task
    _deliver...      their leases are written to the log where leases are durable
    _complete        the claim is answered

After any failure the jobs are put back, and the claim gets other jobs or the error.

Source: docs/reference/api.md#queues, docs/reference/guarantees.md#durability-classes.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import msgspec
import structlog

from storage.errors import LeaseLost, StorageError, TopicNotFound, Unreadable
from storage.format import Control, Delete, FrameType, Lease
from storage.log import EncodedUnit, Logs, Submission, encode_controls
from storage.queues import job_records
from storage.queues.alarms import Alarms
from storage.queues.read_ahead import ReadAhead
from storage.reads import Reader
from storage.records import Durability, StoredRecord
from storage.state import FoundRecords, LookedUp, SizedRecords, Topic, leases_durable
from storage.state.queues import Holder, Job, LeaseBatch, LeaseEntry, QueueStats, Settled, backoff_ms, lease_entries
from storage.topics import TopicAdmin

_log = structlog.get_logger("storage")

T = TypeVar("T")

#: A lease that could not be ended (for example because the disk was full) is tried again after this time.
RETRY_MS = 1000
#: A job whose record is corrupt or unreadable is deferred for this long, so that it does not block the others.
CORRUPT_WAIT_MS = 60_000
#: After this many failed reads for one claim, the claim gets the error. The next claim tries the other jobs.
MOST_FAILURES = 64
#: How many jobs of an unreadable segment are deferred at once.
MOST_AT_ONCE = 1000
#: The `flushed` of FoundRecords. It is correct for any position of the flusher, and causes no search of a segment.
EVERYTHING = 1 << 62


# -- claims and their results --------------------------------------------------------------------------------------


class ClaimedJob(NamedTuple):
    """One job given to a claim. `lease_id` is the token of this lease, never 0. The lease has expired if now >
    deadline."""

    record: StoredRecord
    lease_id: int
    deadline: int
    deliveries: int


#: Creates the tuple without a Python call.
_claimed_job: Callable[[Iterable[Any]], ClaimedJob] = partial(tuple.__new__, ClaimedJob)  # pyright: ignore


class ClaimedBatch(Sequence[ClaimedJob]):
    """The jobs given to one claim, each for the first time. Each object is created on access, and not kept."""

    __slots__ = ("deadline", "lease_ids", "records")

    def __init__(self, records: Sequence[StoredRecord], lease_ids: Sequence[int], deadline: int) -> None:
        self.records = records
        self.lease_ids = lease_ids
        self.deadline = deadline

    def __len__(self) -> int:
        return len(self.lease_ids)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return map(_claimed_job, zip(self.records, self.lease_ids, repeat(self.deadline), repeat(1), strict=False))

    @overload
    def __getitem__(self, index: int) -> ClaimedJob: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[ClaimedJob]: ...

    def __getitem__(self, index: int | slice) -> ClaimedJob | Sequence[ClaimedJob]:
        if isinstance(index, slice):
            return [*self][index]
        return ClaimedJob(self.records[index], self.lease_ids[index], self.deadline, 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]  # pyright: ignore[reportUnknownArgumentType]


class Claim(msgspec.Struct, eq=False):
    """A claim in progress. `patient`: it waits if there are no jobs. `max_bytes`: see `Queues.claim`."""

    answer: asyncio.Future[Claimed]
    node: str
    max: int
    lease_ms: int
    patient: bool
    attempt_key: str | None = None
    holder: Holder | None = None
    max_bytes: int = 0
    #: Whether jobs were taken for it. If so, it is answered with them or with an error.
    dispatched: bool = False
    #: Reads for it that the disk failed. The first error is the answer if no job can be read.
    failed: list[Unreadable] = []

    @property
    def gone(self) -> bool:
        """Whether the caller is gone, and no repeat will ask for the answer."""
        return self.attempt_key is None and self.answer.done()


class Claimed(msgspec.Struct, eq=False):
    """The result of a claim. `ready`: how many jobs could be claimed then. Call `undo` if it cannot be delivered."""

    topic: str
    jobs: Sequence[ClaimedJob]
    ready: int
    queue: LeaseQueue
    node: str
    attempt_key: str | None

    def stands(self, job: ClaimedJob) -> bool:
        """Whether the lease of one of `jobs` is still in force."""
        return self.queue.table.lease_of(job.record.seq) == job.lease_id

    def undo(self) -> None:
        """Give all jobs back at once, without counting the delivery. With an attempt_key the leases stay, for a
        repeat."""
        if self.attempt_key is None and self.jobs:
            self.queue.give_back([(job.record.seq, job.lease_id) for job in self.jobs], self.node, forgiven=True)
        self.jobs = ()


Assignment: TypeAlias = tuple[Claim, list[Job]]


class Delivery(NamedTuple):
    """A batch of jobs on its way to a claim: their records, and their leases, which last until `deadline`."""

    claim: Claim
    batch: LeaseBatch
    read: SizedRecords
    lease_ids: tuple[int, ...]
    deadline: int


def fresh_tokens(count: int) -> tuple[int, ...]:
    """This many random lease ids that cannot be guessed."""
    tokens = struct.unpack(f"<{count}Q", os.urandom(8 * count))
    return tokens if all(tokens) else tuple(token or 1 for token in tokens)


def distribute(jobs: Sequence[T], wanted: Sequence[int]) -> list[list[T]]:
    """One list for each number in `wanted`, with at most that many jobs. Jobs are assigned round-robin, in their
    order."""
    shares: list[list[T]] = [[] for _ in wanted]
    open_shares = [index for index, count in enumerate(wanted) if count > 0]
    at = 0
    while open_shares and at < len(jobs):
        for index in list(open_shares):
            if at == len(jobs):
                break
            shares[index].append(jobs[at])
            at += 1
            if len(shares[index]) == wanted[index]:
                open_shares.remove(index)
    return shares


# -- queues --------------------------------------------------------------------------------------------------------


class SharedQueues:
    """What the queues of an engine share: the log, readers, timers, counters."""

    def __init__(self, logs: Logs, reader: Reader, topics: TopicAdmin, ring: Callable[[int], None]) -> None:
        """`ring` is called with a topic_id when its alarm is due."""
        self.logs = logs
        self.reader = reader
        self.topics = topics
        self.stats = QueueStats()
        self.alarms = Alarms(logs.clock, logs.now_ms, ring)
        self.ahead = ReadAhead(logs, reader)

    async def commit(
        self, topic: Topic, values: Sequence[Control], nodes: Sequence[str] = (), *, sync: bool = False
    ) -> None:
        """Apply control frames of a queue: through its log, or at once if the queue is ephemeral. Raises Unavailable.

        On return they are as durable as the topic, or synced if `sync` is set.
        """
        logs, log = self.logs, topic.log
        if logs.catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)
        if log.in_memory_only:
            for value, node in zip(values, nodes or [""] * len(values), strict=True):
                type_ = FrameType.LEASE if isinstance(value, Lease) else FrameType.DELETE
                logs.catalog.apply(type_, log.topic_id, logs.now_ms(), value, 0, node)
            logs.publisher.wake(log.topic_id)
            return
        config = topic.config
        needs_sync = sync or config.durability is Durability.FSYNC or logs.syncs_leases(config)
        encoded = encode_controls(values, log.topic_id, logs.now_ms(), durable=needs_sync, nodes=nodes)
        shard = logs.shards[log.shard]
        while not shard.has_room(encoded.frames, len(encoded.payload), internal=True):
            await shard.wait_room(encoded.frames, len(encoded.payload))
        if logs.catalog.by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic.name)
        await asyncio.shield(logs.submit_controls(log, encoded, frees=True, needs_sync=needs_sync))


class LeaseQueue:
    """See the module."""

    def __init__(self, shared: SharedQueues, topic: Topic, kick: Callable[[Topic], None]) -> None:
        """`kick` is called when there are dead jobs to move."""
        table = topic.log.queue
        assert table is not None
        self.topic = topic
        self.log = topic.log
        self.table = table
        self._shared = shared
        self._logs = shared.logs
        self._now_ms = shared.logs.now_ms
        self._kick = kick
        #: Claims that no job was taken for yet.
        self.waiting: deque[Claim] = deque()
        #: When the waiting claims are served as a group. None if no window is open.
        self._window_ms: int | None = None
        self._retry_ms = 0
        #: Frames in flight that expire leases.
        self._expiring = 0
        #: Pending answers of claims with an attempt_key, by (node, key).
        self.attempts: dict[tuple[str, str], asyncio.Future[Claimed]] = {}
        #: Deliveries and expiries in progress.
        self._works: set[asyncio.Future[Any]] = set()
        #: Frames in flight that end or change leases.
        self.pending_commits: set[asyncio.Future[Any]] = set()
        #: Tasks that give leases back once frames in flight have completed. A change does not have to wait for them.
        self._later: set[asyncio.Task[None]] = set()
        self.closed = False

    # -- waiting -----------------------------------------------------------------------------------------------------

    def queue_up(self, claim: Claim) -> None:
        """Serve the claim, now or when there are jobs."""
        self.waiting.append(claim)
        jitter = self.topic.config.claim_jitter_ms
        if jitter and self._window_ms is None:
            self._window_ms = self._now_ms() + jitter
        self.serve()
        # There will be jobs when the expired leases have been ended.
        if not jitter and not claim.dispatched and not claim.patient and not self._expiring:
            self.leave(claim)

    def leave(self, claim: Claim) -> None:
        """The claim stops waiting. It gets nothing if no job was taken for it."""
        if claim in self.waiting:
            self.waiting.remove(claim)
        if not claim.dispatched and not claim.answer.done():
            self._give_nothing(claim)

    def _give_nothing(self, claim: Claim) -> None:
        """There are no jobs for the claim, or none that can be read."""
        if claim.failed:
            claim.answer.set_exception(claim.failed[0])
        else:
            claim.answer.set_result(self._claimed(claim, []))

    def send_away(self, error: StorageError | None) -> None:
        """Answer every waiting claim: with nothing (at shutdown), or with the error (the topic is gone)."""
        while self.waiting:
            claim = self.waiting.popleft()
            if claim.answer.done():
                continue
            if error is None:
                self._give_nothing(claim)
            else:
                claim.answer.set_exception(error)

    async def close(self) -> None:
        """Deliver nothing more. On return nothing is in flight."""
        self.closed = True
        await self.wait_decided()
        while self._later:
            await asyncio.wait(set(self._later))

    async def wait_decided(self) -> None:
        """Wait until every decision has been written to the log."""
        while self._works or self.pending_commits:
            await asyncio.wait([*self._works, *self.pending_commits])

    async def wait_dispatched(self) -> None:
        """Wait until the deliveries that had begun when the queue was paused have ended."""
        while self._works and self.topic.paused:  # a read that has ended may be followed by a write
            await asyncio.wait(set(self._works))

    async def repeat(self, jobs: list[Job], node: str, key: str) -> Claimed | None:
        """The answer to a repeated claim: the jobs whose leases are still in force. None if their records are gone."""
        self.serve()  # jobs that have expired by now become ready
        tokens = {job.seq: (job.lease_id, job.deadline, job.deliveries) for job in jobs}
        found = await job_records.read(self._shared.reader, self.topic, sorted(tokens))
        for error in found.unreadable.values():
            raise error  # the leases stand: it may be asked for again
        claim = Claim(self._logs.runtime.loop.create_future(), node, 0, 0, patient=False, attempt_key=key)
        given = [ClaimedJob(found.records[seq], *tokens[seq]) for seq in tokens if seq in found.records]
        return self._claimed(claim, given) if given else None

    def _claimed(self, claim: Claim, jobs: Sequence[ClaimedJob]) -> Claimed:
        ready = self.table.ready(self.log.count)
        return Claimed(self.topic.name, jobs, ready, self, claim.node, claim.attempt_key)

    # -- serving -----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Apply the passing of time, and deliver ready jobs. Called whenever jobs may have become ready."""
        if self.closed or self.topic.topic_id in self._logs.changing:
            return
        now, table, waiting = self._now_ms(), self.table, self.waiting
        if table.is_due(now):
            table.advance(now)
            self._expire(now)
        if not waiting or self.topic.paused:
            if self._window_ms is not None and now >= self._window_ms:
                self._close_window()
        elif self._window_ms is not None or self.topic.config.claim_jitter_ms:
            self._serve_cohort(now)
        else:
            live_seqs = self.log.live_seqs
            while waiting:
                claim = waiting[0]
                if claim.attempt_key is None and claim.answer.done():  # `claim.gone`
                    waiting.popleft()
                    continue
                most = self._most(claim) if claim.max_bytes else claim.max
                if (batch := table.take_batch(most, live_seqs)) is not None:
                    waiting.popleft()
                    self._dispatch_batch(claim, batch, now)
                elif jobs := table.take(most, live_seqs):
                    waiting.popleft()
                    self._dispatch([(claim, jobs)], now)
                else:
                    break
        if table.dying:
            self._kick(self.topic)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Set the alarm that calls `serve` when time alone changes something."""
        table = self.table
        alarm_ms = self._shared.alarms.times.get(self.topic.topic_id)
        if alarm_ms is not None and self._window_ms is None and not table.is_due(alarm_ms - 1):
            return  # it rings before anything changes
        at = table.next_change()
        if self._window_ms is not None:
            at = self._window_ms if at is None else min(at, self._window_ms)
        if at is not None:
            self._shared.alarms.set(self.topic.topic_id, max(at, self._retry_ms))

    def serve_all(self) -> None:
        """Claims that waited only for frames in flight get the jobs that are ready now, or nothing."""
        self.serve()
        if self.waiting and not self.topic.config.claim_jitter_ms and not self._expiring:
            for claim in [claim for claim in self.waiting if not claim.patient]:
                self.leave(claim)

    def _most(self, claim: Claim) -> int:
        """How many jobs the claim gets: as many as fit into `max_bytes` by the mean record size of the queue, but at
        least one."""
        log = self.log
        if not claim.max_bytes or not log.bytes:
            return claim.max
        return max(1, min(claim.max, claim.max_bytes * log.count // log.bytes))

    def _serve_cohort(self, now: int) -> None:
        if self._window_ms is None:
            if self.table.ready(self.log.count) > 0:
                self._window_ms = now + self.topic.config.claim_jitter_ms
            return
        if now < self._window_ms:
            return
        self._window_ms = None
        members = [claim for claim in self.waiting if not claim.gone]
        wanted = [self._most(claim) for claim in members]
        jobs = self.table.take(sum(wanted), self.log.live_seqs)
        shares = distribute(jobs, wanted)
        self.waiting.clear()
        assignments: list[Assignment] = []
        for claim, share in zip(members, shares, strict=True):
            if share:
                assignments.append((claim, share))
            elif claim.patient:
                self.waiting.append(claim)
            else:
                self.leave(claim)
        if assignments:
            self._dispatch(assignments, now)

    def _close_window(self) -> None:
        """Close the window without assigning jobs: nobody waits, or the queue is paused. Claims that do not wait get
        nothing."""
        self._window_ms = None
        for claim in [claim for claim in self.waiting if not claim.patient]:
            self.leave(claim)

    def _again(self, claim: Claim) -> None:
        """The jobs taken for the claim went away during the read (deleted or expired), or cannot be read now. It gets
        other jobs."""
        claim.dispatched = False
        if not self.closed and (claim.patient or not self.topic.config.claim_jitter_ms):
            self.waiting.appendleft(claim)
        else:
            self.leave(claim)

    # -- delivering a batch: jobs that were never claimed before -------------------------------------------------------

    def _dispatch_batch(self, claim: Claim, batch: LeaseBatch, now: int) -> None:
        claim.dispatched = True
        try:
            read = self.log.read_cached(batch.seqs, job_records.MAX_BYTES, now, self.topic.config.ttl_ms)
            if read is None:
                read = self._shared.ahead.take(self.topic, batch.seqs)
            if read is None:
                self._work(self._dispatch_batch_later(claim, batch))
            else:
                self._deliver_batch(claim, batch, read, now)
        except Exception as error:  # whatever the error is, these jobs must be put back
            self._batch_failed(claim, batch, error)

    async def _dispatch_batch_later(self, claim: Claim, batch: LeaseBatch) -> None:
        try:
            read: SizedRecords | job_records.FoundJobs | None = self.log.read_cached(
                batch.seqs, job_records.MAX_BYTES, self._now_ms(), self.topic.config.ttl_ms
            )
            if read is None:
                read = await self._shared.ahead.read(self.topic, batch.seqs)
            whole = read if isinstance(read, SizedRecords) else job_records.whole(read, batch.seqs)
            if whole is None or claim.gone or batch.separate is not None:
                found = read if isinstance(read, job_records.FoundJobs) else job_records.by_seq(read)
                await self._dispatch_found([(claim, self.table.take_apart(batch))], found)
                return
            self._deliver_batch(claim, batch, whole, self._now_ms())
        except Exception as error:  # as above
            self._batch_failed(claim, batch, error)
        self.serve_all()

    def _deliver_batch(self, claim: Claim, batch: LeaseBatch, read: SizedRecords, now: int) -> None:
        """Deliver at once, or when the leases are durable."""
        topic = self.topic
        delivery = Delivery(claim, batch, read, fresh_tokens(len(batch.seqs)), now + claim.lease_ms)
        if not leases_durable(topic.config):
            self.table.lease_batch(batch, delivery.lease_ids, delivery.deadline, claim.node, claim.attempt_key)
            self._complete(delivery)
            return
        jobs = lease_entries(batch.seqs, delivery.lease_ids, delivery.deadline)
        frame = Lease(event="claimed", jobs=jobs, attempt_key=claim.attempt_key)
        if self._logs.catalog.by_id.get(topic.topic_id) is topic:
            config = topic.config
            needs_sync = config.durability is Durability.FSYNC or self._logs.syncs_leases(config)
            encoded = encode_controls([frame], topic.topic_id, now, durable=needs_sync, nodes=[claim.node])
            written = partial(self._written, delivery)
            if self._submit(encoded, now, self._works, written, needs_sync=needs_sync):
                return
        self._work(self._write(delivery, frame))

    async def _write(self, delivery: Delivery, frame: Lease) -> None:
        try:
            await self._shared.commit(self.topic, [frame], [delivery.claim.node])
        except Exception as error:  # as above
            self._written(delivery, None, error)
        else:
            self._written(delivery, None, None)

    def _written(self, delivery: Delivery, ended: asyncio.Future[None] | None, outcome: object) -> None:
        """The result of writing leases to the log: an exception, or anything else if they are in force."""
        if ended is not None:
            ended.set_result(None)
        try:
            if isinstance(outcome, Exception):
                raise outcome
            self._complete(delivery)
        except Exception as failure:  # as above
            self._batch_failed(delivery.claim, delivery.batch, failure)
            self.serve_all()
            return
        if self.waiting:
            self.serve_all()
        else:
            self._set_alarm()  # it rings when these leases end

    def _complete(self, delivery: Delivery) -> None:
        """Answer the claim. Its leases are in force."""
        claim, batch, read, lease_ids, deadline = delivery
        # Jobs that were acked or nacked one by one meanwhile.
        for job, size in zip(batch.separate or (), read.sizes, strict=False):
            job.size, job.holder = size, claim.holder
        batch.sizes, batch.holder = read.sizes, claim.holder
        stats = self._shared.stats
        stats.claims += 1
        stats.claimed += len(lease_ids)
        jobs, ready = ClaimedBatch(read.records, lease_ids, deadline), self.table.ready(self.log.count)
        claimed = Claimed(self.topic.name, jobs, ready, self, claim.node, claim.attempt_key)
        if claim.answer.done():
            claimed.undo()
        else:
            claim.answer.set_result(claimed)

    def _batch_failed(self, claim: Claim, batch: LeaseBatch, error: Exception) -> None:
        self.table.put_back_batch(batch)
        self._failed([(claim, [])], error)

    # -- delivering jobs one by one ----------------------------------------------------------------------------------

    def _dispatch(self, assignments: list[Assignment], now: int) -> None:
        for claim, _ in assignments:
            claim.dispatched = True
        if not leases_durable(self.topic.config):
            seqs = sorted(job.seq for _, jobs in assignments for job in jobs)
            read = self.log.read_cached(seqs, job_records.MAX_BYTES, now, self.topic.config.ttl_ms)
            if read is not None:
                self._deliver(assignments, job_records.by_seq(read), self._leases(assignments))
                return
        self._work(self._dispatch_later(assignments))

    async def _dispatch_later(self, assignments: list[Assignment]) -> None:
        jobs = [job for _, assigned in assignments for job in assigned]
        try:
            seqs = sorted(job.seq for job in jobs)
            read = self.log.read_cached(seqs, job_records.MAX_BYTES, self._now_ms(), self.topic.config.ttl_ms)
            if read is not None:
                found = job_records.by_seq(read)
            else:
                found = await job_records.read(self._shared.reader, self.topic, seqs)
        except Exception as error:  # as above
            self.table.put_back(jobs)
            self._failed(assignments, error)
            self.serve_all()
            return
        await self._dispatch_found(assignments, found)

    async def _dispatch_found(self, assignments: list[Assignment], found: job_records.FoundJobs) -> None:
        jobs = [job for _, assigned in assignments for job in assigned]
        try:
            assignments = self._readable(assignments, found)
            jobs = [job for _, assigned in assignments for job in assigned]  # the others may be leased again by now
            leases = self._leases(assignments)
            if leases and leases_durable(self.topic.config):
                await self._shared.commit(self.topic, [value for value, _ in leases], [node for _, node in leases])
            self._deliver(assignments, found, leases)
        except Exception as error:  # as above
            self.table.put_back(jobs)
            self._failed(assignments, error)
        self.serve_all()

    def _failed(self, assignments: list[Assignment], error: Exception) -> None:
        if not isinstance(error, StorageError):
            _log.error("claim_failed", topic=self.topic.name, exc_info=error)
        self._fail(assignments, error)

    def _fail(self, assignments: list[Assignment], error: Exception) -> None:
        if self._logs.catalog.by_id.get(self.topic.topic_id) is not self.topic:
            error = TopicNotFound(self.topic.name)
        for claim, _ in assignments:
            if not claim.answer.done():
                claim.answer.set_exception(error)

    def _readable(self, assignments: list[Assignment], found: job_records.FoundJobs) -> list[Assignment]:
        """The assignments without jobs that cannot be delivered and without claims whose caller is gone."""
        found_assignments: list[Assignment] = []
        corrupt = frozenset(found.corrupt)
        for claim, jobs in assignments:
            assigned = [] if claim.gone else [job for job in jobs if job.seq in found.records and not job.gone]
            bad = [job for job in jobs if job.seq in corrupt]
            unreadable = [job for job in jobs if job.seq in found.unreadable]
            self.table.put_back(
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
                claim.answer.set_exception(job_records.corrupt(self.topic.name, bad[0].seq))
            elif len(claim.failed) >= MOST_FAILURES:
                claim.answer.set_exception(claim.failed[0])
            else:
                self._again(claim)
        return found_assignments

    def _put_off(self, jobs: list[Job], error: StorageError | None = None) -> None:
        self._shared.stats.unreadable += len(jobs)
        for job in jobs:
            self.table.put_off(job, self._now_ms() + CORRUPT_WAIT_MS)
        if error is not None:
            first = min(job.seq for job in jobs)
            _log.warning("jobs_deferred", topic=self.topic.name, jobs=len(jobs), first_seq=first, error=error.message)

    def _behind(self, failed: list[Unreadable]) -> list[Job]:
        """The next jobs in a segment whose last few reads failed. They are not read one by one."""
        detail = failed[-1].detail
        ranges = [each.detail.get("to_seq") for each in failed[-job_records.MOST_FAILURES :]]
        if "to_seq" not in detail or ranges != [detail["to_seq"]] * job_records.MOST_FAILURES:
            return []
        taken = self.table.take(MOST_AT_ONCE, self.log.live_seqs, below=detail["to_seq"] + 1)
        self.table.put_back([job for job in taken if job.seq < detail["from_seq"]])
        return [job for job in taken if job.seq >= detail["from_seq"]]

    def _leases(self, assignments: list[Assignment]) -> list[tuple[Lease, str]]:
        now = self._now_ms()
        leases: list[tuple[Lease, str]] = []
        for claim, jobs in assignments:
            deadline = now + claim.lease_ms
            entries: list[LeaseEntry] = [
                (job.seq, token, deadline, job.deliveries + 1, 0, job.forgiven)
                for job, token in zip(jobs, fresh_tokens(len(jobs)), strict=True)
            ]
            leases.append((Lease(event="claimed", jobs=entries, attempt_key=claim.attempt_key), claim.node))
        return leases

    def _deliver(
        self, assignments: list[Assignment], found: job_records.FoundJobs, leases: Sequence[tuple[Lease, str]]
    ) -> None:
        """Answer the claims. Leases that are written as frames have been applied before."""
        durable, stats = leases_durable(self.topic.config), self._shared.stats
        records, sizes = found.records, found.sizes
        if not durable:
            for value, node in leases:
                self.table.apply(value, node)
        for (claim, jobs), (value, _) in zip(assignments, leases, strict=True):
            given: list[ClaimedJob] = []
            for job, entry in zip(jobs, value.jobs, strict=True):
                job.size = sizes[job.seq]
                job.holder = claim.holder
                given.append(ClaimedJob(records[job.seq], entry[1], entry[2], entry[3]))
            stats.claims += 1
            stats.claimed += len(given)
            stats.redelivered += sum(entry[3] > 1 for entry in value.jobs)
            claimed = self._claimed(claim, given)
            if claim.answer.done():
                claimed.undo()
            else:
                claim.answer.set_result(claimed)

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
        return (job.seq, 0, 0, job.deliveries, self._now_ms() + wait if wait > 0 else 0, forgiven)

    def _expire(self, now: int) -> None:
        if now < self._retry_ms:
            return
        jobs = self.table.expired(now)
        if not jobs:
            return
        self._shared.stats.expired += len(jobs)
        value = Lease(event="expired", jobs=[self.released(job) for job in jobs])
        if not leases_durable(self.topic.config):
            self.table.apply(value, "")
            return
        self._expiring += 1
        self._ends(jobs, value, "")

    def give_back(self, leases: Sequence[tuple[int, int]], node: str, *, forgiven: bool) -> None:
        """End these leases (seq, token) if they are in force: at once and without counting the delivery, or like a
        nack. Leases with a frame in flight end after it. While the topic is being changed, all of them end after the
        change, because it may be writing them.
        """
        standing = [job for seq, token in leases if (job := self._current(seq, token)) is not None]
        changing = self.topic.topic_id in self._logs.changing
        jobs = [job for job in standing if not job.busy and not changing]
        others = [(job.seq, job.lease_id) for job in standing if job.busy or changing]
        if others:
            task = self._logs.runtime.loop.create_task(self._give_back_later(others, node, forgiven))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
        if not jobs:
            return
        entries = [self.released(job, penalty=not forgiven, delay_ms=0 if forgiven else None) for job in jobs]
        value = Lease(event="released", jobs=entries)
        if not leases_durable(self.topic.config):
            self.table.apply(value, node)
            self.serve()
            return
        for job in jobs:
            job.busy = True
        self._ends(jobs, value, node)

    async def _give_back_later(self, leases: Sequence[tuple[int, int]], node: str, forgiven: bool) -> None:
        changing = self._logs.changing.get(self.topic.topic_id)
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
        task = self._work(self._end(jobs, value, node))
        self.pending_commits.add(task)
        task.add_done_callback(self.pending_commits.discard)

    async def _end(self, jobs: list[Job], value: Lease, node: str) -> None:
        try:
            await self._shared.commit(self.topic, [value], [node])
        except Exception as error:
            # Whatever the error is, the leases stand. Expired ones are tried again after RETRY_MS.
            self.table.put_back(jobs)
            self._retry_ms = self._now_ms() + RETRY_MS
            _log.warning("leases_not_ended", topic=self.topic.name, jobs=len(jobs), error=str(error))
        if value.event == "expired":
            self._expiring -= 1
        self.serve_all()

    # -- operations of workers that hold jobs --------------------------------------------------------------------------

    def try_ack(
        self,
        node: str,
        seqs: Sequence[int],
        lease_ids: Sequence[int],
        arrived_ms: int,
        on_result: Callable[[Settled | Exception], None],
    ) -> bool:
        """Ack a whole batch without a task. False if that is impossible; then nothing was done."""
        batch = self.table.held_batch(seqs, lease_ids, node, arrived_ms)
        if batch is None or self.log.ephemeral:
            return False
        _, known = self._deletion(batch)
        if known is None:
            return False
        config = self.topic.config
        needs_sync = config.durability is Durability.FSYNC or self._logs.syncs_leases(config)
        encoded = encode_controls([known], self.topic.topic_id, arrived_ms, durable=needs_sync)
        acked = partial(self._acked, batch, on_result)
        if not self._submit(encoded, arrived_ms, self.pending_commits, acked, needs_sync=needs_sync):
            return False
        batch.busy = True
        return True

    def _acked(
        self,
        batch: LeaseBatch,
        on_result: Callable[[Settled | Exception], None],
        ended: asyncio.Future[None],
        outcome: object,
    ) -> None:
        """The result of a `try_ack`: an exception, or anything else if the jobs are deleted."""
        ended.set_result(None)
        if isinstance(outcome, Exception):
            self.table.put_back_batch(batch)
            self.serve()
            on_result(outcome)
        else:
            self._shared.stats.acked += len(batch.seqs)
            on_result(self.outcome(batch.seqs, []))

    async def ack_batch(self, batch: LeaseBatch) -> None:
        """The jobs of a batch are done."""
        request, known = self._deletion(batch)
        batch.busy = True
        await self.commit_shielded(lambda: self._delete(request, known), lambda: self.table.put_back_batch(batch))
        self._shared.stats.acked += len(batch.seqs)

    def _deletion(self, batch: LeaseBatch) -> tuple[Delete, LookedUp | None]:
        """The Delete frame of an ack of all its jobs, and the same with the sizes of the records, if they are known."""
        request = Delete(bound_head=self.log.head, seqs=[*batch.seqs], ack=True)
        if batch.sizes is None:
            return request, None
        return request, LookedUp(request, FoundRecords(EVERYTHING, [*batch.seqs], [*batch.sizes]))

    async def delete(self, jobs: list[Job]) -> None:
        """Delete the jobs permanently, in one frame."""
        seqs = [job.seq for job in jobs]
        request = Delete(bound_head=self.log.head, seqs=seqs, ack=True)
        known = None
        if all(job.size >= 0 for job in jobs):  # so all of these were delivered since the start
            known = LookedUp(request, FoundRecords(EVERYTHING, seqs, [job.size for job in jobs]))
        await self.hold(jobs, lambda: self._delete(request, known))

    async def _delete(self, request: Delete, known: LookedUp | None) -> None:
        await self._shared.topics.delete_jobs(self.topic, request, known, sync=False)

    async def split_held(
        self, node: str, tokens: dict[int, int], now_ms: int, *, strict: bool
    ) -> tuple[list[Job], list[int]]:
        """The jobs that `node` holds, and the seqs that it does not hold. With `strict`, raises LeaseLost if there are
        such seqs. Waits for frames in flight about these jobs."""
        while True:
            jobs = [self.table.held_by(seq, node, token, now_ms) for seq, token in tokens.items()]
            if not any(job is not None and job.busy for job in jobs):
                break
            await asyncio.wait(self.pending_commits)
        skipped = [seq for seq, job in zip(tokens, jobs, strict=True) if job is None]
        if strict and skipped:
            raise LeaseLost(f"The leases of {len(skipped)} jobs are not held by {node}.", seqs=skipped)
        return [job for job in jobs if job is not None], skipped

    async def change(self, jobs: list[Job], value: Lease, node: str) -> None:
        """Apply a Lease to jobs: at once, or when it is as durable as the topic."""
        if leases_durable(self.topic.config):
            await self.hold(jobs, lambda: self._shared.commit(self.topic, [value], [node]))
        else:
            self.table.apply(value, node)

    async def hold(self, jobs: list[Job], commit: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Commit. Until then nothing else happens to these jobs."""
        for job in jobs:
            job.busy = True
        await self.commit_shielded(commit, lambda: self.table.put_back(jobs))

    async def commit_shielded(
        self, commit: Callable[[], Coroutine[Any, Any, None]], put_back: Callable[[], None]
    ) -> None:
        """Commit a decision. It continues if its caller goes away. `put_back` is called if it fails."""
        task = asyncio.ensure_future(commit())
        self.pending_commits.add(task)

        def committed(done: asyncio.Future[None]) -> None:
            self.pending_commits.discard(task)
            if done.cancelled() or done.exception() is not None:
                put_back()
            self.serve()

        task.add_done_callback(committed)
        await asyncio.shield(task)

    def outcome(self, done: Sequence[int], skipped: list[int], *, deadlines: dict[int, int] | None = None) -> Settled:
        """The answer to an operation on the jobs `done`, with current figures."""
        if self.table.is_due(self._now_ms()):
            self.serve()
        return Settled(
            topic=self.topic.name,
            done=[*done],
            skipped=skipped,
            ready=self.table.ready(self.log.count),
            in_flight=self.table.in_flight,
            deadlines=deadlines or {},
        )

    # -- tasks and frames ----------------------------------------------------------------------------------------------

    def _work(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._logs.runtime.loop.create_task(work)
        self._works.add(task)
        task.add_done_callback(self._works.discard)
        return task

    def _submit(
        self,
        encoded: EncodedUnit,
        now_ms: int,
        pending: set[asyncio.Future[Any]],
        on_result: Callable[[asyncio.Future[None], object], None],
        *,
        needs_sync: bool,
    ) -> bool:
        """Submit a unit to the log without a task. False, and nothing was done, when there is no room at once.

        `on_result` is called in a later iteration of the loop: with an exception, or with anything else when the unit
        is committed; and with a future that it completes. `pending` holds the future until then.
        """
        log, loop = self.log, self._logs.runtime.loop
        shard = self._logs.shards[log.shard]
        if not shard.has_room(encoded.frames, len(encoded.payload), internal=True):
            return False
        ended: asyncio.Future[None] = loop.create_future()
        pending.add(ended)
        ended.add_done_callback(pending.discard)
        submission = Submission(
            encoded.unit,
            encoded.payload,
            frames=encoded.frames,
            topic_id=log.topic_id,
            ts=now_ms,
            needs_sync=needs_sync,
            frees=True,
            internal=True,
        )
        shard.enqueue(submission, partial(loop.call_soon, on_result, ended))  # pyright: ignore[reportArgumentType]
        return True
