"""The lease queues of an engine: all operations.

All methods belong to the loop that started the engine. Beside what each says, they raise TopicNotFound, NotAQueue,
InvalidRequest (detail.field), Unavailable. Then nothing has happened; after StorageFailed the outcome is unknown.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from storage.errors import InvalidRequest, TopicNotFound
from storage.format.control import Control, Delete, Lease
from storage.log.validation import check_topic_name
from storage.queues import acks, checks, rejecting, views
from storage.queues.alarms import Alarms
from storage.queues.claiming import Claiming
from storage.queues.claims import Claimed
from storage.queues.commits import commit
from storage.queues.dead_letter import Mover
from storage.queues.lease_queue import LeaseQueue
from storage.queues.purge import purge
from storage.queues.read_ahead import ReadAhead
from storage.queues.redrive import Seen, redrive
from storage.queues.work import Worker
from storage.records.values import QueueFigures
from storage.state.catalog import Topic
from storage.state.log import Log
from storage.state.lookup import LookedUp
from storage.state.queues.job import Holder, Job
from storage.state.queues.stats import QueueStats
from storage.state.queues.values import JobState, JobView, Redriven, Settled

if TYPE_CHECKING:
    from storage.engine import Engine


class Queues:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.stats = QueueStats()
        self.claiming = Claiming(self)
        self.alarms = Alarms(engine.clock, engine.now_ms, self._ring)
        self.mover = Mover(self)
        #: The records examined by the last redrive.
        self.seen: Seen | None = None
        self.ahead = ReadAhead(engine)
        self._queues: dict[int, LeaseQueue] = {}
        #: The engine is stopping: claims no longer wait.
        self.leaving = False
        self.workers: set[Worker] = set()

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """After recovery: leases expire and open moves continue."""
        for topic in list(self.engine.catalog.topics.values()):
            if topic.log.queue is not None and topic.log.queue.touched:
                self.queue_of(topic).serve()
            if topic.log.moves.out:
                self.mover.kick(topic)

    def begin_shutdown(self) -> None:
        """Answer waiting claims with nothing, and end workers."""
        self.leaving = True
        for queue in self._queues.values():
            queue.send_away(None)
        for worker in self.workers:
            worker.wake()

    async def stop(self) -> None:
        """Stop all activity; on return nothing is in flight."""
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
            found = self._queues[topic.topic_id] = LeaseQueue(self, topic)
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
            elif log.queue.dying and self.engine.ready:
                self.queue_of(self.engine.catalog.by_id[log.topic_id]).serve()

    async def quiet(self, topic: Topic) -> None:
        """Wait until nothing that is decided about the queue's jobs is on its way to the log."""
        await self.queue_of(topic).quiet()

    def on_changed(self, topic_id: int) -> None:
        """A change of a topic's settings has ended: continue what waited for it."""
        topic = self.engine.catalog.by_id.get(topic_id)
        if topic is not None and topic.log.queue is not None:
            self.queue_of(topic).serve()

    def on_deleted(self, topic_id: int, name: str) -> None:
        """The topic was deleted; all waiting claims get the error."""
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
            topic = self.engine.topic(name)
            checks.table_of(topic)
            changing = self.engine.changing.get(topic.topic_id)
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
        """Lease up to `max` (1..1000) jobs to `node`, waiting up to `wait_ms` for one. `max_bytes`: about as many as
        are so large together, by the mean size of the queue's records, and one at least; 0 = no bound.

        With durable leases they are as durable on return as the topic is. A cancelled call has claimed nothing, unless
        it carries an `attempt_key`: then its leases stand, and a repeat within them is given the same again. `holder`
        is told of each lease's end; of those that ended before this returned `Claimed.stands` tells.
        """
        return await self.claiming.claim(
            name,
            node,
            max=max,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            attempt_key=attempt_key,
            holder=holder,
            max_bytes=max_bytes,
        )

    def try_claim(
        self, name: str, node: str, max: int, lease_ms: int | None, on_result: Callable[..., None], max_bytes: int = 0
    ) -> bool:
        """`claim` of what there is, without a task: True, and `on_result` is called with Claimed or an exception.

        False: nothing was done, because there is nothing, or more than `max_bytes` (0 = no bound), or something has to
        be waited for first: call `claim`.
        """
        return self.claiming.try_claim(name, node, max, lease_ms, on_result, max_bytes)

    def claimable_bytes(self, name: str, max: int) -> tuple[int, int]:
        """How large one job of a queue is in the mean, and as many as a claim of `max` would be given now.

        Raises TopicNotFound, NotAQueue.
        """
        topic = self.engine.topic(name)
        count = topic.log.count
        ready = checks.table_of(topic).ready(count)
        if ready <= 0 or count <= 0:
            return 0, 0
        return topic.log.bytes // count, min(max, ready) * topic.log.bytes // count

    def work(self, name: str, node: str, *, max: int = 1, lease_ms: int | None = None) -> Worker:
        """A worker that receives jobs as they become ready: see `Worker`."""
        checks.check_node(node, self.engine.options)
        if max < 0:
            raise InvalidRequest("max must not be negative.", field="max")
        topic = self.engine.topic(name)
        checks.table_of(topic)
        usual = topic.config.lease_ms
        return Worker(self, name, node, min(max or 1, checks.MAX_JOBS), checks.lease_time(lease_ms, usual))

    def give_back(self, name: str, node: str, leases: Sequence[tuple[int, int]], *, forgiven: bool = False) -> None:
        """A worker is gone: its leases, (seq, token), end like a nack; with `forgiven`, at once and without counting
        the delivery."""
        topic = self.engine.catalog.topics.get(name)
        queue = self._queues.get(topic.topic_id) if topic is not None else None
        if queue is not None and not queue.closed:
            queue.give_back(leases, node, forgiven=forgiven)

    def try_ack(
        self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None, on_result: Callable[..., None]
    ) -> bool:
        """`ack` without a task: True, and `on_result` is called with Settled or an exception.

        False: nothing was done, because the jobs need individual checks, or it would have to wait: call `ack`.
        """
        arrived = self._arrived(node, seqs, lease_ids)
        topic = self.engine.topic(name)
        checks.table_of(topic)
        if topic.topic_id in self.engine.changing:
            return False
        return acks.try_ack(self, self.queue_of(topic), node, seqs, lease_ids or (), arrived, on_result)

    # -- what becomes of them ----------------------------------------------------------------------------------------

    async def ack(
        self,
        name: str,
        node: str,
        seqs: Sequence[int],
        *,
        lease_ids: Sequence[int | None] | None = None,
        strict: bool = False,
    ) -> Settled:
        """The jobs are done: permanently deleted, as durably on return as the topic. One frame for all of them."""
        arrived = self._arrived(node, seqs, lease_ids)
        queue = await self.open(name)
        # `lease_ids` may have None for a token: then they are checked one by one.
        batch = queue.table.held_batch(seqs, lease_ids or (), node, arrived)  # pyright: ignore[reportArgumentType]
        if batch is not None:
            await acks.ack_batch(self, queue, batch)
            return acks.answer(queue, seqs, [])
        jobs, skipped = await acks.judge(queue, node, checks.tokens_of(seqs, lease_ids), arrived, strict=strict)
        if jobs:
            await acks.ack(self, queue, jobs)
        return acks.answer(queue, [job.seq for job in jobs], skipped)

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
        """Give the jobs back: to be claimed again after `delay_ms`, or else after the queue's backoff."""
        arrived = self._arrived(node, seqs, lease_ids)
        checks.check_delay(delay_ms)
        checks.check_reason(reason)
        queue, jobs, skipped = await self.judged(name, node, checks.tokens_of(seqs, lease_ids), arrived, strict=strict)
        if jobs:
            entries = [queue.released(job, penalty=penalty, delay_ms=delay_ms) for job in jobs]
            value = Lease(event="released", jobs=entries, reason=reason or None)
            await acks.change(self, queue, jobs, value, node)
            self.stats.nacked += len(jobs)
            queue.serve()
        return acks.answer(queue, [job.seq for job in jobs], skipped)

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
        """The jobs can never be done: they go to the dead letter topic whatever their delivery count, or are deleted
        where the queue has none. Synced on return if they are to be moved, otherwise durable like an ack."""
        arrived = self._arrived(node, seqs, lease_ids)
        checks.check_reason(reason)
        tokens = checks.tokens_of(seqs, lease_ids)
        return await rejecting.reject(self, name, node, tokens, reason or None, arrived, strict=strict)

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
        """The leases last `lease_ms` from now."""
        arrived = self._arrived(node, seqs, lease_ids)
        lease_ms = checks.lease_time(lease_ms, 0)
        queue, jobs, skipped = await self.judged(name, node, checks.tokens_of(seqs, lease_ids), arrived, strict=strict)
        deadline = self.engine.now_ms() + lease_ms
        if jobs:
            entries = [(job.seq, job.lease_id, deadline, job.deliveries, 0, job.forgiven) for job in jobs]
            await acks.change(self, queue, jobs, Lease(event="extended", jobs=entries), node)
            self.stats.extended += len(jobs)
            queue.serve()
        done = [job.seq for job in jobs]
        return acks.answer(queue, done, skipped, deadlines=dict.fromkeys(done, deadline))

    async def judged(
        self, name: str, node: str, tokens: dict[int, int], arrived: int, *, strict: bool
    ) -> tuple[LeaseQueue, list[Job], list[int]]:
        """`acks.judge`, of a queue that is not being changed at the end of it."""
        while True:
            queue = await self.open(name)
            judged = await acks.judge(queue, node, tokens, arrived, strict=strict)
            if queue.topic.topic_id not in self.engine.changing:  # a change may have begun during the wait
                return queue, *judged

    def _arrived(self, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> int:
        """The time of arrival of what `node` says of its leases."""
        self.engine.check_open()
        checks.check_node(node, self.engine.options)
        checks.check_seqs(seqs, lease_ids)
        return self.engine.now_ms()

    # -- the whole queue ---------------------------------------------------------------------------------------------

    async def pause(self, name: str) -> bool:
        """Deliver nothing until `resume`, also after restarts. True."""
        return await self._set_paused(name, True)

    async def resume(self, name: str) -> bool:
        """Continue after `pause`. False."""
        return await self._set_paused(name, False)

    async def _set_paused(self, name: str, paused: bool) -> bool:
        self.engine.check_open()
        queue = await self.open(name)
        await self.engine.admin.set_paused(queue.topic, paused)
        if paused:
            await queue.wait_dispatched()  # jobs taken before are delivered before
        return paused

    async def purge(self, name: str, states: Sequence[str] = ("ready", "delayed")) -> int:
        """Delete jobs in these states (ready, delayed), up to the current head. Silent; returns their number."""
        self.engine.check_open()
        unknown = [state for state in states if state not in (JobState.READY, JobState.DELAYED)]
        if unknown or not states:
            raise InvalidRequest('states: a list of "ready" and "delayed".', field="states")
        return await purge(self, await self.open(name), frozenset(states))

    async def redrive(
        self,
        name: str,
        *,
        source: str | None = None,
        max: int = 1000,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> Redriven:
        """Move jobs that came from this queue back from its dead letter topic, each exactly once over crashes."""
        self.engine.check_open()
        queue = await self.open(name)
        return await redrive(self, queue.topic, source, max, rate_per_s, dry_run=dry_run)

    def figures(self, name: str) -> QueueFigures:
        """A queue's figures now."""
        topic = self.engine.topic(name)
        checks.table_of(topic)
        return self.figures_of(topic)

    def figures_of(self, topic: Topic) -> QueueFigures:
        """The same for a topic that is known to be a queue."""
        self._let_time_pass(topic)
        queue = self._queues.get(topic.topic_id)
        return views.figures(topic, self.engine.now_ms(), waiting=queue.waiting if queue is not None else 0)

    def leases(self, name: str, state: JobState | None = None, after: int = 0, limit: int = 100) -> list[JobView]:
        """Up to `limit` jobs that are not done (those in `state`), by seq, those with a seq > `after`."""
        topic = self.engine.topic(name)
        checks.table_of(topic)
        self._let_time_pass(topic)
        return views.jobs(topic.log, state, after, limit)

    def _let_time_pass(self, topic: Topic) -> None:
        queue = self._queues.get(topic.topic_id)
        if queue is not None:
            queue.serve()
        else:
            checks.table_of(topic).advance(self.engine.now_ms())

    # -- for the parts -----------------------------------------------------------------------------------------------

    async def commit(
        self, topic: Topic, values: Sequence[Control], nodes: Sequence[str] = (), *, sync: bool = False
    ) -> None:
        """Apply control frames of a queue: through its log, or at once when it is ephemeral. Raises Unavailable.

        On return they are as durable as the topic, or synced when `sync`.
        """
        await commit(self.engine, topic, values, nodes, sync=sync)

    async def delete(self, topic: Topic, request: Delete, known: LookedUp | None, *, sync: bool = False) -> None:
        """`commit` of a Delete{seqs}. `known`: the same, with the looked up records."""
        await self.engine.admin.delete_jobs(topic, request, known, sync=sync)
