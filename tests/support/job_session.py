"""An engine on a simulated disk whose answers about jobs go into a ledger. Queue workloads are written with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from storage import Durability, Engine, Options, TopicConfig
from storage.errors import StorageError, StorageFailed
from storage.segments.errors import SegmentError
from tests.support.crash_ledger import Outcome
from tests.support.crash_session import ROOT
from tests.support.fake_clock import FakeClock
from tests.support.job_ledger import JobLedger, Lease, Queue, Sent, parts_of
from tests.support.sim_disk import SimDisk


class JobSession:
    """One process. Operations on jobs that an earlier refusal left without a lease do nothing."""

    def __init__(
        self,
        disk: SimDisk,
        options: Options,
        *,
        clock: FakeClock | None = None,
        ledger: JobLedger | None = None,
    ) -> None:
        self.disk = disk
        self.options = options
        self.clock = clock or FakeClock()
        self.ledger = ledger or JobLedger()
        self.engine = self._made()
        self.refusals: list[StorageError] = []

    def _made(self) -> Engine:
        return Engine(ROOT, self.options, fs=self.disk, clock=self.clock, threaded=False)

    @property
    def now_ms(self) -> int:
        return self.clock.wall_ms()

    async def start(self) -> None:
        """Open the directory, or open it again after `close`."""
        if self.engine.closing:
            self.engine = self._made()
        await self.engine.start()

    async def close(self) -> None:
        """A clean stop."""
        self.ledger.perhaps_clean = True
        before = self.engine.snapshotter.taken
        await self.engine.close()
        if self.engine.snapshotter.taken == before:
            # Not a clean stop after all: leases that are not durable may be void from here on.
            self._doubt([job for job in self.ledger.jobs if not self.ledger.queues[job.queue].config.leases_durable])
        if not self.engine.failed_shards:
            self.ledger.all_safe()

    async def pass_time(self, ms: float) -> None:
        """Let the workers run. What was answered before is then hardened, if no shard has stopped."""
        self._touch()  # leases may expire
        await self.clock.advance(ms)
        if ms >= 3 * self.options.disk_sync_ms and not self.engine.failed_shards:
            self.ledger.all_safe()

    async def mark_flushed(self) -> None:
        with contextlib.suppress(OSError, SegmentError):
            await self._ask(self.engine.segment_worker.flush_all())

    async def snapshot(self) -> None:
        with contextlib.suppress(OSError):
            await self._ask(self.engine.snapshotter.take())
        if self.disk.make_base is not None:
            with contextlib.suppress(OSError):
                await self._ask(self.disk.make_base(self.engine))

    async def together(self, *operations: Awaitable[Any]) -> None:
        """Run several at once, begun in the order given."""
        await asyncio.gather(*operations)

    async def settle(self, turns: int = 40) -> None:
        """Let background work continue while time stands still."""
        for _ in range(turns):
            await asyncio.sleep(0)

    # -- queues ------------------------------------------------------------------------------------------------------

    async def put(self, name: str, config: TopicConfig) -> None:
        """Create the queue or change its config. That may create its dead letter topic too."""
        queue = self.ledger.queues.setdefault(name, Queue(name, []))
        place = len(queue.configs)
        queue.configs.append((config, Outcome.OPEN))
        if config.dead_letter and config.dead_letter not in self.ledger.queues:
            dead = TopicConfig(durability=config.durability)
            self.ledger.queues[config.dead_letter] = Queue(config.dead_letter, [(dead, Outcome.OPEN)], holds_dead=True)
        self._touch()
        outcome, _ = await self._ask(self.engine.put_topic(name, config))
        queue.configs[place] = (config, outcome)

    async def put_dead(self, name: str, config: TopicConfig) -> None:
        """Make the topic for dead letters."""
        queue = self.ledger.queues.setdefault(name, Queue(name, [], holds_dead=True))
        queue.configs.append((config, Outcome.OPEN))
        outcome, _ = await self._ask(self.engine.put_topic(name, config))
        queue.configs[-1] = (config, outcome)

    async def drop(self, name: str) -> None:
        """Delete the queue. Its name is only used again if this was answered."""
        if not self._has(name):
            return
        for job in self.ledger.of(name):
            job.purged = job.purged or Outcome.OPEN
        self.ledger.queues[name].configs = [
            (config, Outcome.OPEN if outcome is Outcome.DONE else outcome)
            for config, outcome in self.ledger.queues[name].configs
        ]
        outcome, _ = await self._ask(self.engine.delete_topic(name))
        if outcome is Outcome.DONE:
            for job in self.ledger.of(name):
                job.purged, job.end_safe = Outcome.DONE, True
                job.queue = f"{name} (deleted)"
            del self.ledger.queues[name]

    def _has(self, name: str) -> bool:
        return any(state.topic == name for state in self.engine.topics())

    async def pause(self, name: str, paused: bool = True) -> None:
        if not self._has(name):
            return
        self._touch()
        queue = self.ledger.queues[name]
        before = set(queue.paused)
        queue.paused.add(paused)
        outcome, _ = await self._ask(self.engine.queues.pause(name) if paused else self.engine.queues.resume(name))
        if outcome is not Outcome.OPEN:
            queue.paused = {paused} if outcome is Outcome.DONE else before

    # -- jobs --------------------------------------------------------------------------------------------------------

    async def append(
        self, name: str, count: int = 1, *, size: int = 40, delay_ms: int | None = None, meta: bool = False
    ) -> None:
        if not self._has(name):
            return
        self._touch()
        jobs = self.ledger.new(name, count, size=size, meta=meta)
        records = [job.record.new() for job in jobs]
        for job, record in zip(jobs, records, strict=True):
            record.delay_ms = delay_ms
            job.deliver_at = self.now_ms + delay_ms if delay_ms else 0
            job.ready_between = (job.deliver_at, job.deliver_at)
        outcome, answer = await self._ask(self.engine.append(name, records))
        for index, job in enumerate(jobs):
            job.appended = outcome
            job.seq = answer.first_seq + index if outcome is Outcome.DONE else 0
            job.append_safe = self._is_safe(name, outcome)

    async def claim(
        self, name: str, node: str, most: int = 1, *, lease_ms: int | None = None, key: str | None = None
    ) -> list[Sent]:
        """The jobs that were returned."""
        if not self._has(name):
            return []
        self._touch()
        free = [job for job in self.ledger.of(name) if job.lease is None or job.lease.deadline < self.now_ms]
        doubts = self._doubt(free)
        outcome, claimed = await self._ask(
            self.engine.queues.claim(name, node, max=most, lease_ms=lease_ms, attempt_key=key)
        )
        self._certain(doubts, outcome)
        if outcome is not Outcome.DONE:
            return []
        by_data = {job.data: job for job in self.ledger.jobs}
        given: list[Sent] = []
        for each in claimed.jobs:
            job = by_data[parts_of(each.record.body)[0]]
            self._given(job, node, each.lease_id, each.deadline, each.deliveries)
            given.append(job)
        return given

    def _given(self, job: Sent, node: str, token: int, deadline: int, deliveries: int) -> None:
        again = job.lease is not None and job.lease.token == token
        assert again or token not in self.ledger.tokens, f"token {token} was given before"
        assert not job.gone, f"{job.data!r} was given to {node}, and was gone"
        assert job.rejected is not Outcome.DONE, f"{job.data!r} was given to {node}, and was rejected"
        assert again or job.lease is None or job.lease.deadline < self.now_ms or job.unsure, "leased twice"
        self.ledger.tokens.add(token)
        job.tokens.append((node, token))
        job.lease, job.deliveries, job.ready_between = Lease(node, token, deadline), deliveries, (0, 0)
        job.lease_safe = self._is_safe(job.queue, Outcome.DONE)

    async def ack(self, name: str, jobs: Iterable[Sent]) -> None:
        for node, seqs, held in self._held(name, jobs):
            for job in held:
                job.acked, job.end_safe = Outcome.OPEN, False
            tokens = [job.lease.token for job in held if job.lease]
            outcome, done = await self._ask(self.engine.queues.ack(name, node, seqs, lease_ids=tokens))
            for job in held:
                counted = outcome is Outcome.DONE and job.seq in done.done
                job.acked = Outcome.DONE if counted else Outcome.OPEN if outcome is Outcome.OPEN else None
                job.end_safe = self._is_safe(name, outcome)

    async def nack(
        self, name: str, jobs: Iterable[Sent], *, delay_ms: int | None = None, reason: str | None = None
    ) -> None:
        for node, seqs, held in self._held(name, jobs):
            doubts = self._doubt(held)
            tokens = [job.lease.token for job in held if job.lease]
            outcome, done = await self._ask(
                self.engine.queues.nack(name, node, seqs, lease_ids=tokens, delay_ms=delay_ms, reason=reason)
            )
            self._certain(doubts, outcome)
            for job in held:
                if outcome is Outcome.DONE and job.seq in done.done:
                    job.lease = None
                    first = self.now_ms + (delay_ms or 0)
                    job.ready_between = (first, first + (10**9 if delay_ms is None else 0))
                    job.lease_safe = self._is_safe(name, outcome)

    async def reject(self, name: str, jobs: Iterable[Sent], *, reason: str | None = None, strict: bool = False) -> None:
        """They are dead letters from here on, whatever their deliveries, or deleted if the queue has no dead letter
        topic."""
        for node, seqs, held in self._held(name, jobs):
            moved = self.ledger.queues[name].config.dead_letter is not None
            doubts = self._doubt(held)
            for job in held:
                self._rejected(job, Outcome.OPEN, moved=moved)
            tokens = [job.lease.token for job in held if job.lease]
            outcome, done = await self._ask(
                self.engine.queues.reject(name, node, seqs, lease_ids=tokens, reason=reason, strict=strict)
            )
            self._certain(doubts, outcome)
            for job in held:
                counted = outcome is Outcome.DONE and job.seq in done.done
                ended = Outcome.DONE if counted else Outcome.OPEN if outcome is Outcome.OPEN else None
                self._rejected(job, ended, moved=moved)

    def _rejected(self, job: Sent, ended: Outcome | None, *, moved: bool) -> None:
        if not moved:
            job.acked, job.end_safe = ended, ended is Outcome.DONE and self.is_safe(job.queue)
            return
        job.rejected = ended
        if ended is Outcome.DONE:  # which is synced, whatever the class
            job.lease, job.ready_between = None, (0, 0)
            job.append_safe = job.lease_safe = True

    async def extend(self, name: str, jobs: Iterable[Sent], lease_ms: int) -> None:
        for node, seqs, held in self._held(name, jobs):
            doubts = self._doubt(held)
            tokens = [job.lease.token for job in held if job.lease]
            outcome, done = await self._ask(self.engine.queues.extend(name, node, seqs, lease_ms, lease_ids=tokens))
            self._certain(doubts, outcome)
            for job in held:
                if outcome is Outcome.DONE and job.seq in done.deadlines and job.lease:
                    job.lease.deadline = done.deadlines[job.seq]
                    job.lease_safe = self._is_safe(name, outcome)

    async def purge(self, name: str) -> None:
        """All jobs that are ready or delayed."""
        if not self._has(name):
            return
        self._touch()
        states = {view.seq: view.state for view in self.engine.queues.leases(name, limit=1000)}
        jobs = [job for job in self.ledger.of(name) if states.get(job.seq) in ("ready", "delayed")]
        for job in jobs:
            job.purged, job.end_safe = Outcome.OPEN, False
        outcome, _ = await self._ask(self.engine.queues.purge(name))
        for job in jobs:
            job.purged = None if outcome is Outcome.REFUSED else outcome
            job.end_safe = self._is_safe(name, outcome)

    async def redrive(self, name: str, most: int) -> None:
        """Move dead letters back. Which ones, and to which seqs, is found out by looking."""
        if not self._has(name):
            return
        self._touch()
        self.ledger.redriven = True
        for job in self.ledger.of(name):
            job.unsure = True
        await self._ask(self.engine.queues.redrive(name, max=most))
        await self.settle()

    # --

    def _held(self, name: str, jobs: Iterable[Sent]) -> list[tuple[str, list[int], list[Sent]]]:
        """(node, seqs, jobs) of the leases that are not known to have ended, one node at a time."""
        held: dict[str, list[Sent]] = {}
        for job in jobs:
            if job.lease is not None and not job.gone and self._has(name):
                held.setdefault(job.lease.node, []).append(job)
        self._touch()
        return [(node, [job.seq for job in jobs], jobs) for node, jobs in held.items()]

    def _touch(self) -> None:
        """The stop before this start, if it was clean, is no longer the last event in the log.

        Unless the disk failed before a frame could say so. Then nothing else can have happened since either.
        """
        if not self.engine.failed_shards:
            self.ledger.perhaps_clean = False

    def _doubt(self, jobs: list[Sent]) -> list[tuple[Sent, bool, bool]]:
        doubts = [(job, job.unsure, job.lease_safe) for job in jobs]
        for job in jobs:
            job.unsure = True
        return doubts

    def _certain(self, doubts: list[tuple[Sent, bool, bool]], outcome: Outcome) -> None:
        for job, unsure, safe in doubts:
            if outcome is not Outcome.OPEN:
                job.unsure, job.lease_safe = unsure, safe

    def is_safe(self, name: str) -> bool:
        """Whether what is answered there cannot be lost any more."""
        return self.ledger.queues[name].durability is Durability.FSYNC

    def _is_safe(self, name: str, outcome: Outcome) -> bool:
        return outcome is Outcome.DONE and self.is_safe(name)

    async def _ask(self, operation: Awaitable[Any]) -> tuple[Outcome, Any]:
        try:
            return Outcome.DONE, await operation
        except StorageFailed as error:
            self.refusals.append(error)
            return Outcome.OPEN, None
        except StorageError as error:
            self.refusals.append(error)
            return Outcome.REFUSED, None


Body = Callable[[JobSession], Awaitable[None]]
