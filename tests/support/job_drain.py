"""Takes every job out of the queues of a recovered engine. A job that cannot be claimed is stranded, and one that comes
twice is wrong."""

from __future__ import annotations

import msgspec

from storage import Engine
from storage.queues.lease_queue import ClaimedJob
from storage.state.queues.values import JobState
from tests.support.crash_ledger import Outcome
from tests.support.crash_view import view
from tests.support.job_check import listing
from tests.support.job_ledger import JobLedger, Sent, parts_of
from tests.support.job_session import JobSession

ROUNDS = 60
CLAIM = 3


async def drain(session: JobSession) -> list[str]:
    """What went wrong. Afterwards the ledger has every job as acked or as a dead letter."""
    return await _Drain(session).run()


class _Drain:
    def __init__(self, session: JobSession) -> None:
        self.session = session
        self.engine: Engine = session.engine
        self.ledger: JobLedger = session.ledger
        self.queues = [
            queue.name
            for queue in self.ledger.queues.values()
            if not queue.holds_dead and any(state.topic == queue.name for state in self.engine.topics())
        ]
        self.by_data = {job.data: job for job in self.ledger.jobs}
        self.problems: list[str] = []

    async def run(self) -> list[str]:
        await self._make_room()
        for name in self.queues:
            await self._try_tokens(name)
            await self.engine.queues.resume(name)
            self.ledger.queues[name].paused = {False}
        for _ in range(ROUNDS):
            await self.session.settle()
            taken = [await self._take(name) for name in self.queues]
            if not any(taken):
                if not any(listing(self.engine, name) for name in self.queues):
                    break
                self._let_time_pass()
        for name in self.queues:
            if left := listing(self.engine, name):
                self.problems.append(f"stranded in {name}: {left}")
            figures = self.engine.queues.figures(name)
            if (figures.ready, figures.in_flight, figures.delayed, figures.dead_pending) != (0, 0, 0, 0):
                self.problems.append(f"{name} is empty, and says {figures}")
        await self._look_at_the_rest()
        return self.problems

    async def _make_room(self) -> None:
        """Make room in the dead letter topic, so that it accepts what it refused."""
        for queue in self.ledger.queues.values():
            there = any(state.topic == queue.name for state in self.engine.topics())
            if queue.holds_dead and queue.bounded and there:
                config = msgspec.structs.replace(queue.config, cap_records=0)
                await self.engine.put_topic(queue.name, config)
                queue.configs = [(config, Outcome.DONE)]

    async def _try_tokens(self, name: str) -> None:
        """Tokens of current leases count, and no others."""
        now_ms = self.session.now_ms
        for index, job in enumerate(self.ledger.of(name)):
            if job.gone or not job.seq:
                continue
            await self._try_void(name, job)
            lease = job.lease
            if lease is None or not lease.token or lease.deadline < now_ms:
                continue
            done = await self.engine.queues.ack(name, lease.node, [job.seq], lease_ids=[lease.token ^ 1])
            if done.done:
                self.problems.append(f"job {job.seq} of {name} was acked with a token nobody has")
            if index % 2:
                done = await self.engine.queues.ack(name, lease.node, [job.seq], lease_ids=[lease.token])
                if not done.done:
                    self.problems.append(f"the token of job {job.seq} of {name} does not count any more")
                self._acked(job)

    async def _try_void(self, name: str, job: Sent) -> None:
        current = job.lease.token if job.lease else 0
        if job.lease is not None and not current:
            return  # leased to a caller who was never told: any of its tokens may be the right one
        for node, token in job.tokens:
            if token == current:
                continue
            done = await self.engine.queues.ack(name, node, [job.seq], lease_ids=[token])
            if done.done:
                self.problems.append(f"job {job.seq} of {name} was acked with a token of a lease that is over")
                self._acked(job)

    async def _take(self, name: str) -> int:
        """Claim some jobs and ack them. Returns how many."""
        claimed = await self.engine.queues.claim(name, "a", max=CLAIM)
        for each in claimed.jobs:
            await self._took(name, each)
        return len(claimed.jobs)

    async def _took(self, name: str, each: ClaimedJob) -> None:
        job = self.by_data.get(parts_of(each.record.body)[0])
        if job is None:
            self.problems.append(f"{name} gives {each}, which was never sent")
            return
        if job.gone or job.rejected is Outcome.DONE:
            self.problems.append(f"{name} gives job {job.seq}, which is gone for good: {job}")
        if each.lease_id in self.ledger.tokens:
            self.problems.append(f"{name} gives job {job.seq} with a token that was given before: {each.lease_id}")
        self.ledger.tokens.add(each.lease_id)
        if each.deliveries != job.deliveries + 1 and not self.ledger.redriven:
            self.problems.append(
                f"{name} gives job {job.seq} as delivery {each.deliveries}, {job.deliveries} were known"
            )
        job.lease, job.deliveries, job.lease_safe = None, each.deliveries, self.session.is_safe(name)
        job.seq = each.record.seq
        await self._try_void(name, job)
        if not job.gone:
            done = await self.engine.queues.ack(name, "a", [job.seq], lease_ids=[each.lease_id], strict=True)
            assert done.done == [job.seq]
        self._acked(job)

    def _acked(self, job: Sent) -> None:
        job.acked = Outcome.DONE
        job.end_safe = job.lease_safe = self.session.is_safe(job.queue)
        job.lease = None

    def _let_time_pass(self) -> None:
        """Move time to the next moment at which something ends or is due. By then moves are tried again."""
        now_ms = self.session.now_ms
        times = [
            (each.deadline + 1 if each.deadline is not None else each.ready_at) or 0
            for name in self.queues
            for each in listing(self.engine, name).values()
            if each.state is not JobState.DEAD
        ]
        self.session.clock.tick(max(1, min(times, default=now_ms + 5000) - now_ms))

    async def _look_at_the_rest(self) -> None:
        """Every job that was not taken out is a dead letter, once."""
        there: dict[bytes, list[str]] = {}
        topics = await view(self.engine)
        for name, topic in topics.items():
            for record in topic.records:
                there.setdefault(parts_of(record.body)[0], []).append(name)
        for job in self.ledger.jobs:
            places = there.get(job.data, [])
            dead = [name for name in places if self.ledger.queues[name].holds_dead]
            if job.gone and places:
                self.problems.append(f"job {job.seq} of {job.queue} was acked, and is in {places}")
            elif not job.gone and not places and self.ledger.queues[job.queue].bounded:
                lost = topics[job.queue].tombstone_over(job.seq)
                if lost is None:
                    self.problems.append(f"job {job.seq} of {job.queue} is gone, and nothing says why")
                job.purged, job.end_safe = Outcome.DONE, self.session.is_safe(job.queue)
            elif not job.gone and (len(places) != 1 or places != dead):
                self.problems.append(f"job {job.seq} of {job.queue} was not to be had, it is in {places}")
