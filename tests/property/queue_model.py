"""One queue as a plain dict of jobs: the required result of claims, acks and time, written in the simplest way.

Written from the specifications of the API and the storage alone. Times are ms and always an argument. The model takes
over from the engine only what cannot be predicted: tokens, and the exact length of a jittered delay.

Where the specification leaves a choice, the model assumes:

- A job first delayed by deliver_at belongs, once due, to those that come before the fresh ones ("due again"): it has
  waited for its time as a nacked one has. One whose time had come when it was appended is fresh.
- The backoff's jitter only shortens the wait, to no less than half. It begins when the lease ended: at the deadline.
- An attempt key is forgotten with the last lease of its answer whose record is there. The deadline that is repeated
  is the one that counts now.
- A job whose record is gone (cap, ttl, delete) is neither ready nor delayed any more; while leased it is in flight.
- After a crash that voids the leases a job is as appended: one whose deliver_at has passed by then may count as fresh
  or as due again.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from storage import TopicConfig
from storage.state.queues.values import JobState, JobView

#: A backoff of b ms lasts from SHORTEST * b to LONGEST * b.
SHORTEST, LONGEST = 0.5, 1.0


class ClaimedJob(NamedTuple):
    """A job as a claim returns it. The engine chooses the token."""

    seq: int
    deadline: int
    deliveries: int


class Moved(NamedTuple):
    """A job in the dead letter topic."""

    source_seq: int
    data: Any
    meta: Any
    tag: str | None
    node: str | None
    deliveries: int
    reason: str | None


@dataclass(slots=True)
class Job:
    """A job that is not acked. `token` 0: not leased. `gone`: its record is gone, but its lease is not."""

    seq: int
    ts: int
    data: Any
    size: int
    meta: Any = None
    tag: str | None = None
    node: str | None = None
    deliver_at: int = 0
    deliveries: int = 0
    forgiven: int = 0
    holder: str = ""
    token: int = 0
    deadline: int = 0
    #: Not delivered before. While this is not known exactly: between the two (ms).
    ready_at: int = 0
    ready_between: tuple[int, int] | None = None
    #: It comes before fresh jobs.
    back: bool = False
    #: It is not known whether it comes before fresh jobs.
    either: bool = False
    gone: bool = False
    dead: bool = False
    reason: str | None = None

    @property
    def counted(self) -> int:
        """Deliveries that count for backoff and dead letter."""
        return self.deliveries - self.forgiven

    def state(self, now_ms: int) -> JobState:
        if self.dead:
            return JobState.DEAD
        if self.token:
            return JobState.LEASED
        return JobState.DELAYED if self.ready_at > now_ms else JobState.READY


@dataclass(slots=True)
class QueueModel:
    """Call `settle` first: it makes everything happen that is due by then. All other methods call it themselves."""

    config: TopicConfig
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    keys: dict[tuple[str, str], list[tuple[int, int]]] = field(
        default_factory=dict[tuple[str, str], list[tuple[int, int]]]
    )
    #: The records of the dead letter topic, if it belongs to this queue alone.
    moved: list[Moved] = field(default_factory=list[Moved])
    head: int = 0
    paused: bool = False
    lost: int = 0
    dead_lettered: int = 0
    #: Every token so far. None may appear twice.
    tokens: set[int] = field(default_factory=set[int])

    def copy(self) -> QueueModel:
        return copy.deepcopy(self)

    # -- what it looks like ------------------------------------------------------------------------------------------

    @property
    def live(self) -> list[Job]:
        """Jobs whose record exists, by seq."""
        return [job for _, job in sorted(self.jobs.items()) if not job.gone]

    @property
    def bytes(self) -> int:
        return sum(job.size for job in self.live)

    def in_state(self, state: JobState, now_ms: int) -> list[Job]:
        """Jobs by seq. A job without a record is included only while it is leased."""
        jobs = [job for _, job in sorted(self.jobs.items()) if job.state(now_ms) is state]
        return [job for job in jobs if not job.gone or state is JobState.LEASED]

    def ready(self, now_ms: int) -> list[Job]:
        """The jobs that a claim would get, in order."""
        return sorted(self.in_state(JobState.READY, now_ms), key=lambda job: (not job.back, job.seq))

    def views(self, now_ms: int) -> list[tuple[int, JobState, str | None, int | None, int | None, int]]:
        """Jobs as a listing of all states shows them: (seq, state, node, deadline, ready_at, deliveries)."""
        self.settle(now_ms)
        shown: list[tuple[int, JobState, str | None, int | None, int | None, int]] = []
        for state in JobState:
            for job in self.in_state(state, now_ms):
                leased, delayed = state is JobState.LEASED, state is JobState.DELAYED
                holder, deadline = (job.holder, job.deadline) if leased else (None, None)
                shown.append((job.seq, state, holder, deadline, job.ready_at if delayed else None, job.deliveries))
        return sorted(shown)

    def figures(self, now_ms: int) -> dict[str, Any]:
        """The figures in the state of the topic, without the age of the oldest job."""
        self.settle(now_ms)
        return {
            "ready": len(self.in_state(JobState.READY, now_ms)),
            "in_flight": len(self.in_state(JobState.LEASED, now_ms)),
            "delayed": len(self.in_state(JobState.DELAYED, now_ms)),
            "dead_pending": len(self.in_state(JobState.DEAD, now_ms)),
            "dead_lettered": self.dead_lettered,
            "lost": self.lost,
            "paused": self.paused,
        }

    # -- time --------------------------------------------------------------------------------------------------------

    def settle(self, now_ms: int) -> None:
        """Everything that the passing of time causes."""
        ttl_ms = self.config.ttl_ms
        for job in self.live:
            if ttl_ms and now_ms - job.ts > ttl_ms:
                self._lose(job)
        for job in list(self.jobs.values()):
            if job.token and now_ms > job.deadline:
                self._end(job, job.deadline, now_ms)

    def adopt(self, views: list[JobView], now_ms: int) -> None:
        """Take over from the engine when delayed jobs return, where chance decides. The time must be in the allowed
        range."""
        shown = {view.seq: view for view in views}
        for job in self.jobs.values():
            if job.ready_between is None:
                continue
            first, last = job.ready_between
            view = shown.get(job.seq)
            assert view is not None, f"job {job.seq} waits for a time between {first} and {last}, and is not listed"
            if view.state is JobState.DELAYED:
                assert view.ready_at is not None
                assert first <= view.ready_at <= last, f"job {job.seq} comes at {view.ready_at}, not in {first}..{last}"
                job.ready_at = view.ready_at
            else:
                assert first <= now_ms, f"job {job.seq} is {view.state}, its wait is not over before {first}"
                job.ready_at = first
            job.ready_between = None

    def _lose(self, job: Job) -> None:
        """Records go to the cap or the ttl."""
        self.lost += 1
        self._remove(job)

    def _remove(self, job: Job) -> None:
        """The record of the job is gone. Its lease stays."""
        job.gone = True
        if not job.token:
            del self.jobs[job.seq]

    def _end(self, job: Job, ended_ms: int, now_ms: int, delay_ms: int | None = None) -> None:
        """A lease ended without an ack at `ended_ms`, and that was noticed by `now_ms`."""
        job.token, job.holder, job.deadline, job.back = 0, "", 0, True
        if job.gone:
            del self.jobs[job.seq]
        elif self._is_due_to_move(job):
            job.dead = True
        elif delay_ms is not None:
            job.ready_at = ended_ms + delay_ms
        else:
            self._back_off(job, ended_ms, now_ms)

    def _back_off(self, job: Job, ended_ms: int, now_ms: int) -> None:
        base = self.config.retry_backoff_ms
        if not base or job.counted < 1:
            job.ready_at = 0
            return
        wait = min(self.config.retry_backoff_max_ms, base * 2 ** (job.counted - 1))
        job.ready_between = (ended_ms + int(wait * SHORTEST), now_ms + int(wait * LONGEST))
        job.ready_at = ended_ms + wait

    def _is_due_to_move(self, job: Job) -> bool:
        most = self.config.max_deliveries
        return self.config.dead_letter is not None and 0 < most <= job.counted

    # -- what is done to it ------------------------------------------------------------------------------------------

    def append(self, jobs: list[Job], now_ms: int) -> None:
        """Append jobs with the next seqs. `deliver_at` is an absolute time."""
        self.settle(now_ms)
        for job in jobs:
            assert job.seq == self.head + 1
            self.head = job.seq
            if job.deliver_at > now_ms:
                job.ready_at, job.back = job.deliver_at, True
            self.jobs[job.seq] = job
        self._enforce_caps()

    def _enforce_caps(self) -> None:
        live = self.live
        while live and self._is_over(live):
            self._lose(live.pop(0))

    def _is_over(self, live: list[Job]) -> bool:
        over_records = self.config.cap_records and len(live) > self.config.cap_records
        return bool(over_records or (self.config.cap_bytes and sum(job.size for job in live) > self.config.cap_bytes))

    def claim(self, node: str, most: int, lease_ms: int | None, key: str | None, now_ms: int) -> list[ClaimedJob]:
        """The jobs that a claim gets. `grant` gives these leases their tokens. A repeat already has its own."""
        self.settle(now_ms)
        if key is not None and (repeat := self.repeated(node, key)):
            return [ClaimedJob(job.seq, job.deadline, job.deliveries) for job in repeat]
        if self.paused:
            return []
        deadline = now_ms + (self.config.lease_ms if lease_ms is None else min(86_400_000, max(100, lease_ms)))
        return [ClaimedJob(job.seq, deadline, job.deliveries + 1) for job in self.ready(now_ms)[:most]]

    def takes(self, seqs: list[int], most: int, deadline: int, now_ms: int) -> list[ClaimedJob]:
        """What the claim with these jobs may have got, if the order of some jobs is not known."""
        ready = self.ready(now_ms)
        certain = [job.seq for job in ready if not job.either]
        taken = [seq for seq in seqs if seq in certain]
        assert taken == certain[: len(taken)], (seqs, certain)
        assert len(set(seqs)) == len(seqs) == min(most, len(ready)), (seqs, ready)
        assert set(seqs) <= {job.seq for job in ready}, (seqs, ready)
        return [ClaimedJob(seq, deadline, self.jobs[seq].deliveries + 1) for seq in seqs]

    def repeated(self, node: str, key: str) -> list[Job]:
        """The jobs of the first answer that are still leased and whose records exist."""
        found = [(self.jobs.get(seq), token) for seq, token in self.keys.get((node, key), [])]
        jobs = [job for job, token in found if job is not None and job.token == token and not job.gone]
        if not jobs:
            self.keys.pop((node, key), None)
        return jobs

    def grant(self, node: str, given: list[ClaimedJob], tokens: list[int], key: str | None) -> None:
        """The leases of the claim begin."""
        if key is not None and (node, key) in self.keys:
            assert tokens == [self.jobs[each.seq].token for each in given], "a repeated claim has other tokens"
            return
        for each, token in zip(given, tokens, strict=True):
            assert token, "a token is 0"
            assert token not in self.tokens, f"token {token} was used before"
            self.tokens.add(token)
            job = self.jobs[each.seq]
            job.holder, job.token, job.deadline, job.deliveries = node, token, each.deadline, each.deliveries
            job.ready_at, job.ready_between, job.either = 0, None, False
        if key is not None and given:
            self.keys[node, key] = [(each.seq, token) for each, token in zip(given, tokens, strict=True)]

    def undo(self, seqs: list[int], now_ms: int) -> None:
        """The broker gives back leases because nobody was told of them."""
        self.settle(now_ms)
        for seq in seqs:
            job = self.jobs[seq]
            job.forgiven += 1
            self._end(job, now_ms, now_ms, 0)

    def held(self, node: str, seqs: list[int], tokens: list[int] | None, now_ms: int) -> list[int]:
        """Those of the seqs that count: leased to the node, not expired, and with the current token if one is given."""
        self.settle(now_ms)
        counted: list[int] = []
        for index, seq in enumerate(seqs):
            job = self.jobs.get(seq)
            wanted = tokens[index] if tokens else 0
            if job is not None and job.token and job.holder == node and wanted in (0, job.token):
                counted.append(seq)
        return counted

    def ack(self, seqs: list[int]) -> None:
        """For leases that count."""
        for seq in seqs:
            del self.jobs[seq]

    def nack(self, seqs: list[int], now_ms: int, *, delay_ms: int | None, penalty: bool, reason: str | None) -> None:
        """For leases that count."""
        for seq in seqs:
            job = self.jobs[seq]
            job.forgiven += not penalty
            job.reason = reason
            self._end(job, now_ms, now_ms, delay_ms)

    def extend(self, seqs: list[int], lease_ms: int, now_ms: int) -> dict[int, int]:
        """For leases that count. Returns their deadlines."""
        for seq in seqs:
            self.jobs[seq].deadline = now_ms + min(86_400_000, max(100, lease_ms))
        return {seq: self.jobs[seq].deadline for seq in seqs}

    def purge(self, states: set[JobState], now_ms: int) -> int:
        """Without an announcement. Returns how many."""
        self.settle(now_ms)
        jobs = [job for job in self.live if job.state(now_ms) in states]
        for job in jobs:
            self._remove(job)
        return len(jobs)

    def delete_below(self, seq: int, now_ms: int) -> int:
        """Without an announcement. Returns how many."""
        self.settle(now_ms)
        jobs = [job for job in self.live if job.seq < seq]
        for job in jobs:
            self._remove(job)
        return len(jobs)

    def set_config(self, config: TopicConfig, now_ms: int) -> None:
        """Tighter caps and ttl apply at once, and so do settings that make a job dead."""
        self.settle(now_ms)
        before, self.config = self.config, config
        self.settle(now_ms)
        self._enforce_caps()
        if (before.max_deliveries, before.dead_letter) != (config.max_deliveries, config.dead_letter):
            for job in self.live:
                job.dead = job.dead or (not job.token and self._is_due_to_move(job))

    def move_dead(self) -> None:
        """Dead jobs arrive in the dead letter topic."""
        for job in [job for job in self.live if job.dead]:
            self.moved.append(Moved(job.seq, job.data, job.meta, job.tag, job.node, job.deliveries, job.reason))
            self.dead_lettered += 1
            del self.jobs[job.seq]

    # -- restarts ----------------------------------------------------------------------------------------------------

    def restart(self, now_ms: int, *, clean: bool) -> None:
        """Another process continues. A crash loses only leases that are not durable."""
        if clean or self.config.leases_durable:
            return
        self.keys.clear()
        for job in list(self.jobs.values()):
            if job.gone:
                del self.jobs[job.seq]
            elif not job.dead:
                job.holder, job.token, job.deadline, job.deliveries, job.forgiven = "", 0, 0, 0, 0
                job.ready_between, job.reason = None, None
                job.back = job.deliver_at > now_ms
                job.either = 0 < job.deliver_at <= now_ms
                job.ready_at = job.deliver_at if job.back else 0
