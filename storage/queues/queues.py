"""The lease queues of an engine: all operations.

All methods belong to the loop that started the engine. In addition to the errors that each one lists, they raise
TopicNotFound, NotAQueue, InvalidRequest (detail.field) and Unavailable; then nothing has happened. After StorageFailed
the outcome is unknown.

`LeaseQueue` runs one queue, `LeaseTable` is its state.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from storage.errors import BatchTooLarge, InvalidRequest, NotAQueue, ShuttingDown, TopicNotFound
from storage.format import Control, Delete, Lease
from storage.log import MAX_DELAY_MS, MAX_U64, Appender, Logs, check_text, check_topic_name
from storage.options import Options
from storage.platform import CALL_S
from storage.queues import views
from storage.queues.arrivals import ASK_EVERY_S, Arrivals
from storage.queues.dead_letter import Mover
from storage.queues.lease_queue import Claim, Claimed, LeaseQueue, SharedQueues
from storage.queues.redrive import ScannedRecords, redrive
from storage.queues.targets import Target
from storage.queues.work import Worker
from storage.reads import Reader
from storage.records import MAX_LEASE_MS, MIN_LEASE_MS, QueueFigures
from storage.state import Log, Topic
from storage.state.queues import Holder, Job, JobState, JobView, LeaseTable, Redriven, Settled
from storage.telemetry import Tracer
from storage.topics import Expiry, Placing, TopicAdmin

#: The most jobs in one claim, ack, nack or extend.
MAX_JOBS = 1000
MAX_WAIT_MS = 30_000
MAX_ATTEMPT_KEY_BYTES = 128
MAX_REASON_BYTES = 1024
#: How many jobs one frame of a purge deletes.
_PURGED_AT_ONCE = 10_000


class Queues:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        reader: Reader,
        topics: TopicAdmin,
        placing: Placing,
        expiry: Expiry,
        appender: Appender,
        tracer: Callable[[], Tracer | None],
    ) -> None:
        """`tracer`: see `Mover`."""
        self._logs = logs
        self._topics = topics
        self._placing = placing
        self._expiry = expiry
        self._shared = shared = SharedQueues(logs, reader, topics, self._ring)
        self.stats, self.alarms, self.ahead = shared.stats, shared.alarms, shared.ahead
        self.mover = Mover(shared, appender, placing, tracer)
        #: The methods that other cells call to move records here.
        self.arrivals = Arrivals(shared, self.mover.targets, self)
        #: The records examined by the last redrive.
        self.seen: ScannedRecords | None = None
        self._queues: dict[int, LeaseQueue] = {}
        #: The engine is stopping: claims no longer wait.
        self.leaving = False
        self.workers: set[Worker] = set()

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """After recovery: expire leases and continue open moves."""
        for topic in list(self._logs.catalog.topics.values()):
            if topic.log.queue is not None and topic.log.queue.touched:
                self.queue_of(topic).serve()
            if topic.log.moves.out:
                self.mover.kick(topic)
        if self._logs.neighbours is not None:
            self._logs.runtime.supervisor.start("arrivals", ASK_EVERY_S, self.arrivals.ask)

    def begin_shutdown(self) -> None:
        """Answer waiting claims with nothing, and end workers."""
        self.leaving = True
        for queue in self._queues.values():
            queue.send_away(None)
        for worker in self.workers:
            worker.wake()

    async def stop(self) -> None:
        """Stop all activity. On return nothing is in flight."""
        self.begin_shutdown()
        await self.alarms.stop()
        await self.mover.stop()
        for queue in self._queues.values():
            await queue.close()
        await self.ahead.stop()

    def queue_of(self, topic: Topic) -> LeaseQueue:
        """The run-time object of a queue, created on first use."""
        found = self._queues.get(topic.topic_id)
        if found is None or found.topic is not topic:
            found = self._queues[topic.topic_id] = LeaseQueue(self._shared, topic, self.mover.kick)
        return found

    def _ring(self, topic_id: int) -> None:
        queue = self._queues.get(topic_id)
        if queue is not None:
            queue.serve()

    def on_commit(self, log: Log) -> None:
        """Frames of this log were committed: there may be jobs for waiting claims."""
        if log.queue is not None:
            queue = self._queues.get(log.topic_id)
            if queue is not None:
                if queue.waiting or log.queue.dying:
                    queue.serve()
            elif log.queue.dying and self._logs.ready:
                self.queue_of(self._logs.catalog.by_id[log.topic_id]).serve()

    async def wait_decided(self, topic: Topic) -> None:
        """Wait until every decision about the queue's jobs has been written to the log."""
        await self.queue_of(topic).wait_decided()

    def on_changed(self, topic_id: int) -> None:
        """A change of a topic's settings has ended: continue what waited for it."""
        topic = self._logs.catalog.by_id.get(topic_id)
        if topic is not None and topic.log.queue is not None:
            self.queue_of(topic).serve()

    def on_deleted(self, topic_id: int, name: str) -> None:
        """The topic was deleted. All waiting claims get the error."""
        queue = self._queues.pop(topic_id, None)
        if queue is not None:
            queue.closed = True
            queue.send_away(TopicNotFound(name))
            for job in list(queue.table.everything()):
                if job.holder is not None:
                    job.holder.lease_ended(job.seq)
        self.alarms.forget(topic_id)
        self.ahead.forget(topic_id)

    async def open(self, name: str) -> LeaseQueue:
        """The queue, once no change of it is in progress."""
        check_topic_name(name)
        while True:
            topic = self._logs.topic(name)
            table_of(topic)
            changing = self._logs.changing.get(topic.topic_id)
            if changing is None:
                return self.queue_of(topic)
            await asyncio.wait([changing])

    # -- claims ------------------------------------------------------------------------------------------------------

    async def claim(
        self,
        name: str,
        node: str,
        *,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        attempt_key: str | None = None,
        holder: Holder | None = None,
        max_bytes: int = 0,
    ) -> Claimed:
        """Lease up to `max` (1..1000) jobs to `node`, waiting up to `wait_ms` for the first. `max_bytes`: no more jobs
        than have this size, by the mean record size of the queue, but at least one; 0 = no limit.

        Durable leases are as durable on return as the topic. A cancelled call has claimed nothing, unless it has an
        `attempt_key`: then its leases stay, and a repeat gets the same jobs until they end. `holder` is called when a
        lease ends. `Claimed.stands` tells which leases ended before this returned.
        """
        self.check_claim(node, max, wait_ms, attempt_key)
        queue = await self.open(name)
        if queue.topic.config.ttl_ms:
            # Expired jobs must not be taken and then dropped: the claim would get fewer than there are.
            await self._expiry.expire_if_possible(queue.topic)
            queue = await self.open(name)
        lease_ms = lease_time(lease_ms, queue.topic.config.lease_ms)
        while attempt_key is not None:
            again = await self._repeated(queue, node, attempt_key)
            if again is not None:
                return again
            queue = await self.open(name)  # it may have been deleted or created again meanwhile
            if _pending(queue, node, attempt_key) is None:
                break
        answer: asyncio.Future[Claimed] = self._logs.runtime.loop.create_future()
        claim = Claim(
            answer,
            node,
            min(max or 1, MAX_JOBS),
            lease_ms,
            patient=wait_ms > 0 and not self.leaving,
            attempt_key=attempt_key,
            holder=holder,
            max_bytes=max_bytes,
        )
        return await self._wait(queue, claim, answer, min(wait_ms, MAX_WAIT_MS))

    def try_claim(
        self, name: str, node: str, max: int, lease_ms: int | None, on_result: Callable[..., None], max_bytes: int = 0
    ) -> bool:
        """A `claim` without waiting and without a task. True: `on_result` is called with Claimed or an exception.

        False: nothing was done, because there is nothing to claim, or more than `max_bytes` (0 = no limit), or
        something has to be waited for first, or there is no such queue. Call `claim`.
        """
        logs = self._logs
        topic = logs.catalog.topics.get(name)
        if topic is None or topic.provisional or not logs.ready or logs.closing:
            return False
        check_node(node, logs.options)
        topic_id, config, log = topic.topic_id, topic.config, topic.log
        table = log.queue
        if table is None:
            return False
        lease_ms = config.lease_ms if lease_ms is None else lease_time(lease_ms, 0)
        if topic_id in logs.changing or topic.paused or config.ttl_ms or config.claim_jitter_ms or max < 0:
            return False
        if topic_id in logs.catalog.routes.into:
            return False  # records on their way to this topic are waited for
        ready = table.ready(log.count)
        if max_bytes and min(max, ready) * log.bytes > max_bytes * log.count:
            return False
        if ready <= 0 or logs.shards[log.shard].log.failed is not None:
            return False
        answer: asyncio.Future[Claimed] = logs.runtime.loop.create_future()
        answer.add_done_callback(partial(_pass_on, on_result))
        self.queue_of(topic).queue_up(Claim(answer, node, min(max or 1, MAX_JOBS), lease_ms, patient=False))
        return True

    def check_claim(self, node: str, max: int, wait_ms: int, attempt_key: str | None) -> None:
        """Raises InvalidRequest, NotReady, ShuttingDown: the errors that refuse a claim before its queue is looked
        up."""
        self._logs.check_open()
        check_node(node, self._logs.options)
        check_attempt_key(attempt_key)
        for field, value in (("max", max), ("wait_ms", wait_ms)):
            if value < 0:
                raise InvalidRequest(f"{field} must not be negative.", field=field)

    def claimable_bytes(self, name: str, max: int) -> tuple[int, int]:
        """The mean size of one job of a queue in bytes, and the size of the jobs that a claim of `max` would get now.

        Raises TopicNotFound, NotAQueue.
        """
        topic = self._logs.topic(name)
        count = topic.log.count
        ready = table_of(topic).ready(count)
        if ready <= 0 or count <= 0:
            return 0, 0
        return topic.log.bytes // count, min(max, ready) * topic.log.bytes // count

    async def claim_for(self, worker: Worker, count: int, max_bytes: int) -> Claimed:
        """A claim of a worker, which waits without a limit. Raises ShuttingDown."""
        queue = await self.open(worker.topic)
        if self.leaving:
            raise ShuttingDown()
        answer: asyncio.Future[Claimed] = self._logs.runtime.loop.create_future()
        claim = Claim(answer, worker.node, count, worker.lease_ms, patient=True, holder=worker, max_bytes=max_bytes)
        try:
            self._refuse_when_failed(queue.topic)
            queue.queue_up(claim)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandon(queue, claim, answer)
            raise

    async def _wait(self, queue: LeaseQueue, claim: Claim, answer: asyncio.Future[Claimed], wait_ms: int) -> Claimed:
        self._refuse_when_failed(queue.topic)
        key = (claim.node, claim.attempt_key) if claim.attempt_key is not None else None
        if key is not None:
            queue.attempts[key] = answer
        try:
            queue.queue_up(claim)
            if claim.patient and not answer.done():
                await asyncio.wait([answer], timeout=wait_ms / 1000)
                claim.patient = False
                queue.leave(claim)
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._abandon(queue, claim, answer)
            raise
        finally:
            if key is not None and answer.done():
                _forget(queue, key, answer)

    def _abandon(self, queue: LeaseQueue, claim: Claim, answer: asyncio.Future[Claimed]) -> None:
        """The caller is gone."""
        if answer.done():
            if not answer.cancelled() and answer.exception() is None:
                answer.result().undo()
        elif claim.dispatched and claim.attempt_key is not None:
            # Its leases stay, so that a repeat can ask for them. If its jobs went away, nobody else ends its wait.
            claim.patient = False
            key = (claim.node, claim.attempt_key)
            answer.add_done_callback(lambda done: (_forget(queue, key, done), done.cancelled() or done.exception()))
        else:
            queue.leave(claim)
            answer.cancel()

    async def _repeated(self, queue: LeaseQueue, node: str, key: str) -> Claimed | None:
        """The jobs of an earlier claim with this key that it still holds."""
        while (pending := _pending(queue, node, key)) is not None:  # if one got nothing, another may follow
            await asyncio.wait([pending])
        jobs = queue.table.repeat(node, key, self._logs.now_ms())
        return await queue.repeat(jobs, node, key) if jobs else None

    def _refuse_when_failed(self, topic: Topic) -> None:
        shard = self._logs.shards[topic.log.shard]
        if shard.log.failed is not None:
            raise shard.log.failure()

    def work(self, name: str, node: str, *, max: int = 1, lease_ms: int | None = None) -> Worker:
        """A worker that receives jobs as they become ready: see `Worker`."""
        check_node(node, self._logs.options)
        if max < 0:
            raise InvalidRequest("max must not be negative.", field="max")
        topic = self._logs.topic(name)
        table_of(topic)
        usual = topic.config.lease_ms
        return Worker(self, name, node, min(max or 1, MAX_JOBS), lease_time(lease_ms, usual))

    def give_back(self, name: str, node: str, leases: Sequence[tuple[int, int]], *, forgiven: bool = False) -> None:
        """End the leases (seq, token) of a worker that is gone: like a nack, or, if `forgiven`, at once and without
        counting the delivery."""
        topic = self._logs.catalog.topics.get(name)
        queue = self._queues.get(topic.topic_id) if topic is not None else None
        if queue is not None and not queue.closed:
            queue.give_back(leases, node, forgiven=forgiven)

    def try_ack(
        self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None, on_result: Callable[..., None]
    ) -> bool:
        """`ack` without a task. True: `on_result` is called with Settled or an exception.

        False: nothing was done, because the jobs need individual checks, something has to be waited for, or this is not
        a queue. Call `ack`.
        """
        logs = self._logs
        topic = logs.catalog.topics.get(name)
        if topic is None or topic.provisional or not logs.ready or logs.closing:
            return False
        check_node(node, logs.options)
        check_seqs(seqs, lease_ids)
        if topic.log.queue is None or topic.topic_id in logs.changing:
            return False
        return self.queue_of(topic).try_ack(node, seqs, lease_ids or (), logs.now_ms(), on_result)

    # -- ack, nack, reject, extend
    # ---------------------------------------------------------------------------------------

    async def ack(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int | None] | None = None,
        strict: bool = False,
    ) -> Settled:
        """The jobs are done: delete them permanently, in one frame. On return that is as durable as the topic."""
        arrived = self._arrived(node, seqs, lease_ids)
        queue = await self.open(name)
        # `lease_ids` may have None for a token. Then they are checked one by one.
        batch = queue.table.held_batch(seqs, lease_ids or (), node, arrived)  # pyright: ignore[reportArgumentType]
        if batch is not None:
            await queue.ack_batch(batch)
            return queue.outcome(seqs, [])
        jobs, skipped = await queue.split_held(node, tokens_of(seqs, lease_ids), arrived, strict=strict)
        if jobs:
            await queue.delete(jobs)
            self.stats.acked += len(jobs)
        return queue.outcome([job.seq for job in jobs], skipped)

    async def nack(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        *,
        delay_ms: int | None = None,
        lease_ids: Sequence[int | None] | None = None,
        penalty: bool = True,
        reason: str | None = None,
        strict: bool = False,
    ) -> Settled:
        """Give the jobs back. They can be claimed again after `delay_ms`, or else after the queue's backoff."""
        arrived = self._arrived(node, seqs, lease_ids)
        check_delay(delay_ms)
        check_reason(reason)
        queue, jobs, skipped = await self._split_held(name, node, tokens_of(seqs, lease_ids), arrived, strict=strict)
        if jobs:
            entries = [queue.released(job, penalty=penalty, delay_ms=delay_ms) for job in jobs]
            value = Lease(event="released", jobs=entries, reason=reason or None)
            await queue.change(jobs, value, node)
            self.stats.nacked += len(jobs)
            queue.serve()
        return queue.outcome([job.seq for job in jobs], skipped)

    async def reject(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int | None] | None = None,
        reason: str | None = None,
        strict: bool = False,
    ) -> Settled:
        """The jobs can never be done. They go to the dead letter topic whatever their delivery count, or are deleted if
        the queue has none. Synced on return if they will be moved, otherwise durable like an ack."""
        arrived = self._arrived(node, seqs, lease_ids)
        check_reason(reason)
        tokens = tokens_of(seqs, lease_ids)
        while True:
            dest = await self.mover.dead_letter_topic((await self.open(name)).topic)
            queue, jobs, skipped = await self._split_held(name, node, tokens, arrived, strict=strict)
            if self._goes_to(queue.topic, dest):
                break
        if jobs:
            await self._reject(queue, jobs, dest, reason or None)
        return queue.outcome([job.seq for job in jobs], skipped)

    def _goes_to(self, topic: Topic, dest: Target | None) -> bool:
        """Whether dead jobs of this queue go there now. That may have changed during a wait."""
        if dest is None:
            return topic.config.dead_letter is None
        return topic.config.dead_letter == dest.name and dest.exists

    async def _reject(self, queue: LeaseQueue, jobs: list[Job], dest: Target | None, reason: str | None) -> None:
        """With a dead letter topic this is the first step of a move (see `storage.state.queues.moves`), for jobs that
        are still leased. The mover takes the other steps, also after a crash."""
        moved = [job for job in jobs if not job.gone] if dest is not None else []
        deleted = [job for job in jobs if dest is None or job.gone]
        work: list[Coroutine[Any, Any, None]] = [queue.delete(deleted)] if deleted else []
        if dest is not None and moved:
            entries = [(job.seq, 0, 0, job.deliveries, 0, job.forgiven) for job in moved]
            value = Lease(event="dead", jobs=entries, dest_id=dest.topic_id, reason=reason)

            async def open_moves() -> None:
                await self._shared.commit(queue.topic, [value], sync=True)
                self.mover.kick(queue.topic)

            work.append(queue.hold(moved, open_moves))
        await asyncio.gather(*work)
        self.stats.rejected += len(jobs)

    async def extend(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        lease_ms: int,
        *,
        lease_ids: Sequence[int | None] | None = None,
        strict: bool = False,
    ) -> Settled:
        """Extend the leases to `lease_ms` from now."""
        arrived = self._arrived(node, seqs, lease_ids)
        lease_ms = lease_time(lease_ms, 0)
        queue, jobs, skipped = await self._split_held(name, node, tokens_of(seqs, lease_ids), arrived, strict=strict)
        deadline = self._logs.now_ms() + lease_ms
        if jobs:
            entries = [(job.seq, job.lease_id, deadline, job.deliveries, 0, job.forgiven) for job in jobs]
            await queue.change(jobs, Lease(event="extended", jobs=entries), node)
            self.stats.extended += len(jobs)
            queue.serve()
        done = [job.seq for job in jobs]
        return queue.outcome(done, skipped, deadlines=dict.fromkeys(done, deadline))

    async def _split_held(
        self, name: str, node: str, tokens: dict[int, int], arrived: int, *, strict: bool
    ) -> tuple[LeaseQueue, list[Job], list[int]]:
        """`LeaseQueue.split_held`, for a queue that is not being changed when this returns."""
        while True:
            queue = await self.open(name)
            held = await queue.split_held(node, tokens, arrived, strict=strict)
            if queue.topic.topic_id not in self._logs.changing:  # a change may have begun during the wait
                return queue, *held

    def _arrived(self, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> int:
        """Check a request of `node` about its leases, and return when it arrived."""
        self._logs.check_open()
        check_node(node, self._logs.options)
        check_seqs(seqs, lease_ids)
        return self._logs.now_ms()

    # -- the whole queue ---------------------------------------------------------------------------------------------

    async def pause(self, name: str) -> bool:
        """Deliver nothing until `resume`, also after restarts. Returns True."""
        return await self._set_paused(name, True)

    async def resume(self, name: str) -> bool:
        """Continue after `pause`. Returns False."""
        return await self._set_paused(name, False)

    async def _set_paused(self, name: str, paused: bool) -> bool:
        self._logs.check_open()
        queue = await self.open(name)
        await self._topics.set_paused(queue.topic, paused)
        if paused:
            await queue.wait_dispatched()  # jobs taken before the pause are delivered before this returns
        return paused

    async def purge(
        self,
        name: str,
        states: Sequence[str] = ("ready", "delayed"),
        *,
        max: int | None = None,
        through_seq: int | None = None,
    ) -> int:
        """Delete jobs in these states (ready, delayed), up to `through_seq` or the current head. Silent.

        Returns their number; it is less than `max` only if none is left. After a crash some of them may remain.
        """
        self._logs.check_open()
        unknown = [state for state in states if state not in (JobState.READY, JobState.DELAYED)]
        if unknown or not states:
            raise InvalidRequest('states: a list of "ready" and "delayed".', field="states")
        queue = await self.open(name)
        log, table = queue.log, queue.table
        below, purged = (log.head if through_seq is None else min(through_seq, log.head)) + 1, 0
        queue.serve()  # jobs that are due by now become ready
        while True:
            jobs: list[Job] = []
            most = _PURGED_AT_ONCE if max is None else min(_PURGED_AT_ONCE, max - purged)
            if "ready" in states:
                jobs = table.take(most, log.live_seqs, below)
                table.hold(jobs)
            if "delayed" in states and len(jobs) < most:
                jobs += table.take_delayed(most - len(jobs), below)
            if not jobs:
                return purged
            request = Delete(bound_head=log.head, seqs=sorted(job.seq for job in jobs))
            # The caller may go: jobs being deleted are held until the outcome is known.
            delete = partial(self._topics.delete_jobs, queue.topic, request, None, sync=False)
            await queue.commit_shielded(delete, partial(table.put_back, jobs))
            purged += len(jobs)
            if purged == max:
                return purged

    async def redrive(
        self,
        name: str,
        *,
        source: str | None = None,
        max: int = 1000,
        rate_per_s: float | None = None,
        dry_run: bool = False,
        seqs: Sequence[int] | None = None,
    ) -> Redriven:
        """Move jobs that came from this queue back from its dead letter topic, each exactly once even across crashes.

        `seqs`: only these records of that topic. Records that are not there, or that were not jobs of this queue, are
        not counted.
        """
        self._logs.check_open()
        queue = await self.open(name)
        if source is None and (source := queue.topic.config.dead_letter) is None:
            raise InvalidRequest(f"{name} has no dead letter topic: name the source in `from`.", field="from")
        check_topic_name(source)
        cell = await self._cell_of(source)
        if cell is not None:  # moves begin where the records are
            wanted = [*seqs] if seqs is not None else None
            argument = [queue.topic.topic_id, name, source, max, rate_per_s, dry_run, wanted]
            timeout_s = CALL_S + (max / rate_per_s if rate_per_s else 0.0)
            neighbours = self._logs.neighbours
            assert neighbours is not None
            moved, remaining = await neighbours.call(cell, "moves_redrive", argument, timeout_s=timeout_s)
            return Redriven(moved=moved, remaining=remaining)
        dest = await self.mover.targets.find(queue.topic.topic_id)
        if dest is None:
            raise TopicNotFound(name)
        return await redrive(self._shared, self, dest, source, max, rate_per_s, dry_run=dry_run, seqs=seqs)

    async def _cell_of(self, name: str) -> int | None:
        """The other cell that has the topic of that name. None if this cell has it, or would have it. Raises
        StorageError."""
        neighbours = self._logs.neighbours
        if neighbours is None or name in self._logs.catalog.topics:
            return None
        cell, _ = await self._placing.find(name)
        return None if cell == neighbours.me else cell

    def figures(self, name: str) -> QueueFigures:
        """The current figures of a queue."""
        topic = self._logs.topic(name)
        table_of(topic)
        return self.figures_of(topic)

    def figures_of(self, topic: Topic) -> QueueFigures:
        """The same for a topic that is known to be a queue."""
        self._let_time_pass(topic)
        queue = self._queues.get(topic.topic_id)
        return views.figures(topic, self._logs.now_ms(), waiting=len(queue.waiting) if queue is not None else 0)

    def leases(self, name: str, state: JobState | None = None, after: int = 0, limit: int = 100) -> list[JobView]:
        """Up to `limit` jobs that are not done, by seq, from those with a seq > `after`. `state`: only jobs in this
        state."""
        topic = self._logs.topic(name)
        table_of(topic)
        self._let_time_pass(topic)
        return views.jobs(topic.log, state, after, limit)

    def _let_time_pass(self, topic: Topic) -> None:
        queue = self._queues.get(topic.topic_id)
        if queue is not None:
            queue.serve()
        else:
            table_of(topic).advance(self._logs.now_ms())

    # -- for the modules of this package
    # ---------------------------------------------------------------------------------

    async def commit(
        self, topic: Topic, values: Sequence[Control], nodes: Sequence[str] = (), *, sync: bool = False
    ) -> None:
        """Apply control frames of a queue: through its log, or at once if the queue is ephemeral. Raises Unavailable.

        On return they are as durable as the topic, or synced if `sync` is set.
        """
        await self._shared.commit(topic, values, nodes, sync=sync)


def _pass_on(on_result: Callable[[Claimed | BaseException], None], answer: asyncio.Future[Claimed]) -> None:
    error = answer.exception()
    on_result(answer.result() if error is None else error)


def _pending(queue: LeaseQueue, node: str, key: str) -> asyncio.Future[Claimed] | None:
    """The pending answer of another claim with this key."""
    answer = queue.attempts.get((node, key))
    return answer if answer is not None and not answer.done() else None


def _forget(queue: LeaseQueue, key: tuple[str, str], answer: asyncio.Future[Claimed]) -> None:
    """The answer has arrived. A later claim with this key may have replaced this one, and forgets its own."""
    if queue.attempts.get(key) is answer:
        del queue.attempts[key]


# -- checks of arguments: all except `check_seqs` raise InvalidRequest, which names the field -------------------------


def check_node(node: str, options: Options) -> None:
    if not node:
        raise InvalidRequest("node: required, and not empty.", field="node")
    if not node.isascii() or len(node) > options.max_node_bytes:  # ASCII has as many bytes as characters
        check_text(node, "node", options.max_node_bytes)


def check_attempt_key(key: str | None) -> None:
    if key is not None:
        check_text(key, "attempt_key", MAX_ATTEMPT_KEY_BYTES)


def check_reason(reason: str | None) -> None:
    if reason and len(check_text(reason, "reason", MAX_U64)) > MAX_REASON_BYTES:
        raise InvalidRequest(f"reason: at most {MAX_REASON_BYTES} bytes.", field="reason")


def check_delay(delay_ms: int | None) -> None:
    if delay_ms is not None and not 0 <= delay_ms <= MAX_DELAY_MS:
        raise InvalidRequest(f"delay_ms: at most 366 days ({MAX_DELAY_MS} ms).", field="delay_ms")


def lease_time(lease_ms: int | None, usual: int) -> int:
    """The duration of a lease, clamped like a topic's setting."""
    if lease_ms is None:
        return usual
    if lease_ms < 0:
        raise InvalidRequest("lease_ms must not be negative.", field="lease_ms")
    return max(MIN_LEASE_MS, min(MAX_LEASE_MS, lease_ms))


def check_seqs(seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> None:
    """Raises BatchTooLarge, InvalidRequest."""
    if len(seqs) > MAX_JOBS:
        raise BatchTooLarge(f"seqs: at most {MAX_JOBS}, these are {len(seqs)}.", field="seqs", max=MAX_JOBS)
    if lease_ids and len(lease_ids) != len(seqs):
        raise InvalidRequest(
            f"lease_ids: one for each of the {len(seqs)} seqs, or none at all, but there are {len(lease_ids)}.",
            field="lease_ids",
        )
    if seqs and (min(seqs) < 0 or max(seqs) > MAX_U64):
        raise InvalidRequest("seqs: each must be a number from 0 to 2^64 - 1.", field="seqs")


def tokens_of(seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> dict[int, int]:
    """Token by seq (0: none given). A seq that is named twice counts once. For arguments that have passed
    `check_seqs`."""
    if not lease_ids:
        return dict.fromkeys(seqs, 0)
    return {seq: token or 0 for seq, token in zip(seqs, lease_ids, strict=True)}


def table_of(topic: Topic) -> LeaseTable:
    """Raises NotAQueue."""
    if topic.log.queue is None:
        raise NotAQueue(f"{topic.name} is a log, not a queue.", topic=topic.name)
    return topic.log.queue
