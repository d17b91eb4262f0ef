"""Lease queues of an engine: every operation, and the life of the desks behind them. Source: api.md §6.

All methods belong to the loop that started the engine. Raises, beside what each says: TopicNotFound, NotAQueue,
InvalidRequest (detail.field), Unavailable; then nothing has happened, but for StorageFailed, which leaves it open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from storage.errors import InvalidRequest, TopicNotFound
from storage.format.control import Control, Delete, Lease
from storage.log.validation import check_topic_name
from storage.queues import checks, rejecting, settling, views
from storage.queues.alarms import Alarms
from storage.queues.carrying_out import commit
from storage.queues.claiming import Claiming
from storage.queues.claims import Claimed
from storage.queues.dead_letter import Mover
from storage.queues.desk import Desk
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
        #: What the last redrive has seen.
        self.seen: Seen | None = None
        self.ahead = ReadAhead(engine)
        self._desks: dict[int, Desk] = {}
        #: Nobody is given anything to wait for any more.
        self.leaving = False
        self.workers: set[Worker] = set()

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """After recovery: leases go on running out, open moves go on."""
        for topic in list(self.engine.catalog.topics.values()):
            if topic.log.queue is not None and topic.log.queue.touched:
                self.desk(topic).serve()
            if topic.log.moves.out:
                self.mover.kick(topic)

    def begin_shutdown(self) -> None:
        """Claims that wait are answered with nothing, and workers end."""
        self.leaving = True
        for desk in self._desks.values():
            desk.send_away(None)
        for worker in self.workers:
            worker.wake()

    async def stop(self) -> None:
        """Nothing changes by itself any more; what is on its way has ended on return."""
        self.begin_shutdown()
        await self.alarms.stop()
        await self.mover.stop()
        for desk in self._desks.values():
            await desk.close()
        await self.ahead.stop()

    def desk(self, topic: Topic) -> Desk:
        """The desk of a queue, opened when first needed."""
        found = self._desks.get(topic.topic_id)
        if found is None or found.topic is not topic:
            found = self._desks[topic.topic_id] = Desk(self, topic)
        return found

    def _ring(self, topic_id: int) -> None:
        desk = self._desks.get(topic_id)
        if desk is not None:
            desk.serve()

    def on_commit(self, log: Log) -> None:
        """Something of this log was committed: perhaps there are jobs for those who wait."""
        if log.queue is not None:
            desk = self._desks.get(log.topic_id)
            if desk is not None:
                if desk.waiting or log.queue.dying:
                    desk.serve()
            elif log.queue.dying and self.engine.ready:
                self.desk(self.engine.catalog.by_id[log.topic_id]).serve()

    def on_changed(self, topic_id: int) -> None:
        """A topic's settings have been changed, or not: those who were held back go on."""
        topic = self.engine.catalog.by_id.get(topic_id)
        if topic is not None and topic.log.queue is not None:
            self.desk(topic).serve()

    def on_deleted(self, topic_id: int, name: str) -> None:
        """The topic is gone, and all who wait are told."""
        desk = self._desks.pop(topic_id, None)
        if desk is not None:
            desk.closed = True
            desk.send_away(TopicNotFound(name))
            for job in list(desk.table.everything()):
                if job.holder is not None:
                    job.holder.lease_ended(job.seq)
        self.alarms.forget(topic_id)
        self.ahead.forget(topic_id)

    async def open(self, name: str) -> Desk:
        """The desk of a queue that is not being changed."""
        check_topic_name(name)
        while True:
            topic = self.engine.topic(name)
            checks.table_of(topic)
            changing = self.engine.changing.get(topic.topic_id)
            if changing is None:
                return self.desk(topic)
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

    def claim_now(
        self, name: str, node: str, max: int, lease_ms: int | None, told: Callable[..., None], max_bytes: int = 0
    ) -> bool:
        """`claim` of what there is, without a task: True, and `told` is called with Claimed or an exception.

        False: nothing was done, because there is nothing, or more than `max_bytes` (0 = no bound), or something has to
        be waited for first: call `claim`.
        """
        return self.claiming.claim_now(name, node, max, lease_ms, told, max_bytes)

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
        """A worker that is pushed jobs as they come: see `Worker`."""
        checks.check_node(node, self.engine.options)
        if max < 0:
            raise InvalidRequest("max must not be negative.", field="max")
        topic = self.engine.topic(name)
        checks.table_of(topic)
        usual = topic.config.lease_ms
        return Worker(self, name, node, min(max or 1, checks.MAX_JOBS), checks.lease_time(lease_ms, usual))

    def give_back(self, name: str, node: str, leases: Sequence[tuple[int, int]], *, forgiven: bool = False) -> None:
        """A worker has gone: what it holds, (seq, token), is ended as a nack would; `forgiven`: at once, and not held
        against the jobs."""
        topic = self.engine.catalog.topics.get(name)
        desk = self._desks.get(topic.topic_id) if topic is not None else None
        if desk is not None and not desk.closed:
            desk.give_back(leases, node, forgiven=forgiven)

    def ack_now(
        self, name: str, node: str, seqs: Sequence[int], lease_ids: Sequence[int] | None, told: Callable[..., None]
    ) -> bool:
        """`ack` without a task: True, and `told` is called with Settled or an exception.

        False: nothing was done, because the jobs have to be looked at one by one, or something has to be waited for
        first: call `ack`.
        """
        arrived = self._arrived(node, seqs, lease_ids)
        topic = self.engine.topic(name)
        checks.table_of(topic)
        if topic.topic_id in self.engine.changing:
            return False
        return settling.ack_now(self, self.desk(topic), node, seqs, lease_ids or (), arrived, told)

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
        """The jobs are done: gone for good, as durably on return as the topic is. One frame for all of them."""
        arrived = self._arrived(node, seqs, lease_ids)
        desk = await self.open(name)
        # `lease_ids` may have None for a token: then it is no grant's, and each is looked at.
        grant = desk.table.held_together(seqs, lease_ids or (), node, arrived)  # pyright: ignore[reportArgumentType]
        if grant is not None:
            await settling.ack_together(self, desk, grant)
            return settling.answer(desk, seqs, [])
        jobs, skipped = await settling.judge(desk, node, checks.tokens_of(seqs, lease_ids), arrived, strict=strict)
        if jobs:
            await settling.ack(self, desk, jobs)
        return settling.answer(desk, [job.seq for job in jobs], skipped)

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
        """Give the jobs back: to be claimed again after `delay_ms`, else after the queue's backoff."""
        arrived = self._arrived(node, seqs, lease_ids)
        checks.check_delay(delay_ms)
        checks.check_reason(reason)
        desk, jobs, skipped = await self.judged(name, node, checks.tokens_of(seqs, lease_ids), arrived, strict=strict)
        if jobs:
            rows = [desk.released(job, penalty=penalty, delay_ms=delay_ms) for job in jobs]
            value = Lease(event="released", jobs=rows, reason=reason or None)
            await settling.change(self, desk, jobs, value, node)
            self.stats.nacked += len(jobs)
            desk.serve()
        return settling.answer(desk, [job.seq for job in jobs], skipped)

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
        """The jobs can never be done: they go to the dead letter topic, however often they were delivered, or are
        deleted where the queue has none. Synced on return if they are to be moved, else as an ack."""
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
        desk, jobs, skipped = await self.judged(name, node, checks.tokens_of(seqs, lease_ids), arrived, strict=strict)
        deadline = self.engine.now_ms() + lease_ms
        if jobs:
            rows = [(job.seq, job.lease_id, deadline, job.deliveries, 0, job.forgiven) for job in jobs]
            await settling.change(self, desk, jobs, Lease(event="extended", jobs=rows), node)
            self.stats.extended += len(jobs)
            desk.serve()
        done = [job.seq for job in jobs]
        return settling.answer(desk, done, skipped, deadlines=dict.fromkeys(done, deadline))

    async def judged(
        self, name: str, node: str, tokens: dict[int, int], arrived: int, *, strict: bool
    ) -> tuple[Desk, list[Job], list[int]]:
        """`settling.judge`, of a queue that is not being changed when it is done."""
        while True:
            desk = await self.open(name)
            judged = await settling.judge(desk, node, tokens, arrived, strict=strict)
            if desk.topic.topic_id not in self.engine.changing:  # it may have begun while others were waited for
                return desk, *judged

    def _arrived(self, node: str, seqs: Sequence[int], lease_ids: Sequence[int | None] | None) -> int:
        """What time it is for what `node` says of its leases now."""
        self.engine.check_open()
        checks.check_node(node, self.engine.options)
        checks.check_seqs(seqs, lease_ids)
        return self.engine.now_ms()

    # -- the whole queue ---------------------------------------------------------------------------------------------

    async def pause(self, name: str) -> bool:
        """Hand out nothing until `resume`, over restarts, too. True."""
        return await self._set_paused(name, True)

    async def resume(self, name: str) -> bool:
        """Go on after `pause`. False."""
        return await self._set_paused(name, False)

    async def _set_paused(self, name: str, paused: bool) -> bool:
        self.engine.check_open()
        desk = await self.open(name)
        await self.engine.admin.set_paused(desk.topic, paused)
        if paused:
            await desk.dealt()  # what was taken before is given before
        return paused

    async def purge(self, name: str, states: Sequence[str] = ("ready", "delayed")) -> int:
        """Delete jobs in these states (ready, delayed), up to the head as it is now. Silent; how many went."""
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
        desk = await self.open(name)
        return await redrive(self, desk.topic, source, max, rate_per_s, dry_run=dry_run)

    def figures(self, name: str) -> QueueFigures:
        """A queue's figures now."""
        topic = self.engine.topic(name)
        checks.table_of(topic)
        return self.figures_of(topic)

    def figures_of(self, topic: Topic) -> QueueFigures:
        """The same of a topic that is known to be a queue."""
        self._let_time_pass(topic)
        desk = self._desks.get(topic.topic_id)
        return views.figures(topic, self.engine.now_ms(), waiting=desk.waiting if desk is not None else 0)

    def leases(self, name: str, state: JobState | None = None, after: int = 0, limit: int = 100) -> list[JobView]:
        """Up to `limit` jobs that are not done (those in `state`), by seq, those with a seq > `after`."""
        topic = self.engine.topic(name)
        checks.table_of(topic)
        self._let_time_pass(topic)
        return views.jobs(topic.log, state, after, limit)

    def _let_time_pass(self, topic: Topic) -> None:
        desk = self._desks.get(topic.topic_id)
        if desk is not None:
            desk.serve()
        else:
            checks.table_of(topic).advance(self.engine.now_ms())

    # -- for the parts -----------------------------------------------------------------------------------------------

    async def commit(
        self, topic: Topic, values: Sequence[Control], nodes: Sequence[str] = (), *, sync: bool = False
    ) -> None:
        """Carry out control frames of a queue: through its log, or at once where there is none. Raises Unavailable.

        On return they are as durable as the topic is, or synced when `sync`.
        """
        await commit(self.engine, topic, values, nodes, sync=sync)

    async def delete(self, topic: Topic, request: Delete, known: LookedUp | None, *, sync: bool = False) -> None:
        """`commit` of a Delete{seqs}. `known`: the same, with what it needs to know looked up."""
        await self.engine.admin.delete_jobs(topic, request, known, sync=sync)
