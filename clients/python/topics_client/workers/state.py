"""The jobs of one queue that a worker holds, and what to do next: claim, begin, renew, ack or nack, give back. No I/O.

A job goes WAITING -> RUNNING -> ENDED -> SENDING and is dropped when the broker has its outcome. Its lease counts from
before the claim (or renewal) was sent, so the worker never believes in a lease that the broker has ended. A lease is
renewed from the job's beginning until its outcome has arrived. When it is lost, the job is dropped and its outcome is
not sent. Times are seconds of one monotonic clock, given with every call.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from topics_client.values import Job

#: How jobs end.
ENDINGS: Final[tuple[str, ...]] = ("done", "retried", "rejected", "returned", "lost", "unsure")
#: The most jobs in one claim, and in one call that acks, nacks or renews.
BATCH: Final = 100
MAX_SEQS: Final = 1000
#: How long ahead jobs are claimed, and the most of them.
AHEAD_S: Final = 0.2
MAX_AHEAD: Final = 500
#: With this many outcomes that the broker has not accepted yet, no more jobs are claimed.
MAX_UNSENT: Final = 2000
#: Shares of a lease: when it is renewed, when a failed renewal is tried again, how long a claim may wait, how much must
#: be left when a job begins, and how long jobs that are claimed ahead may wait.
RENEW_AT, AGAIN_AFTER, WAIT, LEFT, AHEAD = 1 / 3, 1 / 10, 1 / 10, 1 / 2, 1 / 10
#: How long outcomes wait to be sent together with others, while others are to come.
LINGER_S: Final = 0.005
#: If the awake runners do their jobs within this time, no others are woken.
WAKE_S: Final = 0.002
#: The first wait after a failed call, and the longest.
PAUSE_S, MAX_PAUSE_S = 0.05, 2.0
#: The weight of a new duration in the average.
_WEIGHT: Final = 0.1


class Phase(enum.Enum):
    """The phases of a held job."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    SENDING = "sending"
    #: Not held any more.
    GONE = "gone"


class Kind(enum.Enum):
    """The kinds of outcome of a job."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a job. `delay_ms` None: the queue's backoff. Equal outcomes are sent in one call."""

    kind: Kind
    reason: str | None = None
    delay_ms: int | None = None
    penalty: bool = True


DONE: Final = Outcome(Kind.ACK)
#: As if it had never been claimed.
GIVEN_BACK: Final = Outcome(Kind.NACK, delay_ms=0, penalty=False)


class Held:
    """A held job. `lost`: its lease has ended, and its handler runs in vain."""

    __slots__ = ("began", "expires", "job", "lease_s", "lost", "outcome", "phase", "renew_at")

    def __init__(self, job: Job, lease_s: float, asked_at: float) -> None:
        self.job = job
        self.lease_s = lease_s
        self.expires = asked_at + lease_s
        self.renew_at = asked_at + lease_s * RENEW_AT
        self.phase = Phase.WAITING
        self.lost = False
        self.outcome = DONE
        self.began = 0.0


@dataclass(frozen=True, slots=True)
class Sending:
    """One call that acks or nacks jobs."""

    outcome: Outcome
    jobs: list[Held]


class QueueState:
    """The jobs of one queue at one worker. Not thread-safe."""

    def __init__(self, concurrency: int, lease_s: float) -> None:
        self.concurrency = concurrency
        self.lease_s = lease_s
        self.stopping = False
        #: Ended jobs by outcome, since the start. `lost`: their leases ended first. `unsure`: an answer was lost.
        self.counts: dict[str, int] = dict.fromkeys(ENDINGS, 0)
        #: By seq, as in the broker's answers.
        self._held: dict[int, Held] = {}
        self._waiting: deque[Held] = deque()
        self._running = 0
        self._ended: dict[Outcome, list[Held]] = {}
        self._unsent = 0
        self._oldest_ended: float | None = None
        self._sending = False
        self._not_before = 0.0
        self._failures = 0
        #: Leases whose last outcome may have been carried out, although its answer was lost.
        self._unsure: set[str] = set()
        #: How long a job takes, None before the first has ended.
        self._takes_s: float | None = None

    def __len__(self) -> int:
        """How many jobs are held."""
        return len(self._held)

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        """Claimed, and not begun."""
        return len(self._waiting)

    @property
    def unsent(self) -> int:
        """Ended, but the broker does not know it yet."""
        return self._unsent

    # -- claiming ------------------------------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """How many jobs may wait: as many as begin within a short time, and well within their lease."""
        if self._takes_s is None:
            return 0
        window_s = min(AHEAD_S, self.lease_s * AHEAD)
        return min(MAX_AHEAD, math.floor(self.concurrency * window_s / max(self._takes_s, 1e-6)))

    def needed(self, count: int) -> int:
        """How many runners should begin for this many new jobs: as many as do them within a short time. To wake others
        for jobs that take no time would take longer than the jobs."""
        if self._takes_s is None:
            return count
        return min(count, 1 + math.floor(count * self._takes_s / WAKE_S))

    @property
    def wait_s(self) -> float:
        """How long a claim may wait for jobs: the leases of its jobs count from before the wait."""
        return self.lease_s * WAIT

    def room(self) -> int:
        """How many jobs to claim now. 0: call again when a job has begun or its outcome has been sent."""
        waiting, ahead = len(self._waiting), self.ahead
        if self.stopping or self._unsent > MAX_UNSENT or waiting > ahead // 2:
            return 0
        return max(0, min(BATCH, self.concurrency + ahead - self._running - waiting))

    def claimed(self, jobs: Iterable[Job], asked_at: float) -> list[Held]:
        """These jobs came from a claim sent at that time. Returns running jobs that are lost, because they came
        again."""
        lost: list[Held] = []
        for job in jobs:
            if (before := self._held.get(job.seq)) is not None:
                if before.phase is Phase.SENDING and before.outcome.kind is Kind.NACK:
                    # It was given back as intended. The answer that says so is still on its way.
                    self._count(before.outcome)
                    self._drop(before)
                else:
                    lost += self._lose(before)
            held = Held(job, self.lease_s, asked_at)
            self._held[job.seq] = held
            if self.stopping:
                self._end(held, GIVEN_BACK, asked_at)
            else:
                self._waiting.append(held)
        return lost

    def begin(self, now: float) -> Held | None:
        """The next job to begin. A job with a lease that is half over is given back instead."""
        while self._waiting and self._running < self.concurrency and not self.stopping:
            held = self._waiting.popleft()
            if held.expires - now < held.lease_s * LEFT:
                self._end(held, GIVEN_BACK, now)
                continue
            held.phase = Phase.RUNNING
            held.began = now
            self._running += 1
            return held
        return None

    # -- ending --------------------------------------------------------------------------------------------------------

    def ended(self, held: Held, outcome: Outcome, now: float) -> bool:
        """The handler of this job has ended. False: the lease was lost before, and the outcome is not sent."""
        self._running -= 1
        took = now - held.began
        # A job that takes longer counts fully, because claiming too few jobs ahead costs little.
        known = took if self._takes_s is None else self._takes_s
        self._takes_s = took if took > known else known + (took - known) * _WEIGHT
        if held.phase is not Phase.RUNNING:
            return False
        self._end(held, outcome, now)
        return True

    def _end(self, held: Held, outcome: Outcome, now: float) -> None:
        held.phase = Phase.ENDED
        held.outcome = outcome
        self._ended.setdefault(outcome, []).append(held)
        self._unsent += 1
        if self._oldest_ended is None:
            self._oldest_ended = now

    def send_at(self) -> float | None:
        """When `to_send` has something. None while nothing has ended, or a call is in progress."""
        if self._sending or self._oldest_ended is None:
            return None
        at_once = self.stopping or self._unsent >= BATCH or self._running + len(self._waiting) == 0
        due = self._oldest_ended + (0.0 if at_once else LINGER_S)
        return max(due, self._not_before)

    def to_send(self, now: float) -> Sending | None:
        """The next call that acks or nacks jobs, if one is due. Its answer goes to `settled` or `failed`. One at a
        time."""
        at = self.send_at()
        if at is None or at > now:
            return None
        while self._ended:
            outcome, ended = next(iter(self._ended.items()))
            # Jobs that have ended here and whose leases have ended since: not sent.
            there = [held for held in ended if held.phase is Phase.ENDED]
            batch, rest = there[:MAX_SEQS], there[MAX_SEQS:]
            if rest:
                self._ended[outcome] = rest
            else:
                del self._ended[outcome]
            if batch:
                for held in batch:
                    held.phase = Phase.SENDING
                self._sending = True
                self._oldest_ended = now if self._ended else None
                return Sending(outcome, batch)
        self._oldest_ended = None
        return None

    def settled(self, sending: Sending, skipped: Iterable[int]) -> None:
        """The broker has answered. Skipped jobs were no longer leased to this worker."""
        self._sending = False
        self._failures, self._not_before = 0, 0.0
        refused = set(skipped)
        for held in sending.jobs:
            if held.phase is not Phase.SENDING:
                continue
            if held.job.seq not in refused:
                self._count(sending.outcome)
            elif held.job.lease_id in self._unsure:
                self.counts["unsure"] += 1
            else:
                held.lost = True
                self.counts["lost"] += 1
            self._drop(held)

    def failed(self, sending: Sending, now: float, *, perhaps_done: bool, retry_after_s: float, draw: float) -> None:
        """The call failed, and may succeed if it is repeated. These jobs have ended, and are sent again. `draw` is
        uniform in [0, 1)."""
        self._sending = False
        self._failures += 1
        bound = min(MAX_PAUSE_S, PAUSE_S * 2 ** min(self._failures - 1, 10))
        self._not_before = now + retry_after_s + bound * draw
        again = [held for held in sending.jobs if held.phase is Phase.SENDING]
        for held in again:
            held.phase = Phase.ENDED
            if perhaps_done:
                self._unsure.add(held.job.lease_id)
        if again:
            self._ended[sending.outcome] = again + self._ended.get(sending.outcome, [])
            self._oldest_ended = now

    def changed(self, sending: Sending, outcome: Outcome, now: float) -> None:
        """These jobs get another outcome than was set before."""
        self._sending = False
        for held in sending.jobs:
            if held.phase is Phase.SENDING:
                self._unsent -= 1
                self._end(held, outcome, now)

    def _count(self, outcome: Outcome) -> None:
        if outcome.kind is Kind.ACK:
            self.counts["done"] += 1
        elif outcome.kind is Kind.REJECT:
            self.counts["rejected"] += 1
        else:
            self.counts["retried" if outcome.penalty else "returned"] += 1

    def _drop(self, held: Held) -> None:
        if held.phase in (Phase.ENDED, Phase.SENDING):
            self._unsent -= 1
        held.phase = Phase.GONE
        self._held.pop(held.job.seq, None)
        self._unsure.discard(held.job.lease_id)

    # -- leases --------------------------------------------------------------------------------------------------------

    def renew_at(self) -> float | None:
        """When `expire` or `renewing` has something to do. None while nothing is held."""
        return min((held.renew_at for held in self._held.values()), default=None)

    def prolong(self, held: Held, lease_s: float, now: float) -> None:
        """From its next renewal on, which is due now, its leases last this long."""
        held.lease_s = lease_s
        held.renew_at = now

    def expire(self, now: float) -> list[Held]:
        """Running jobs whose leases have ended, as far as this worker can know: their handlers must be told. Jobs that
        have waited too long are given back."""
        lost: list[Held] = []
        for held in [held for held in self._held.values() if held.renew_at <= now]:
            if held.phase is Phase.WAITING:
                # Not renewed: other workers may have time for it.
                self._waiting.remove(held)
                self._end(held, GIVEN_BACK, now)
            if held.expires > now:
                continue
            if held.phase is Phase.RUNNING:
                lost += self._lose(held)
            else:
                # The broker's answer to its outcome will say whether it was too late.
                held.renew_at = math.inf
        return lost

    def renewing(self, now: float) -> list[Held]:
        """Jobs whose leases one call should renew now, all for the same time."""
        due = [held for held in self._held.values() if held.renew_at <= now < held.expires]
        return [held for held in due if held.lease_s == due[0].lease_s][:MAX_SEQS]

    def renewed(self, jobs: Sequence[Held], skipped: Iterable[int], lease_s: float, asked_at: float) -> list[Held]:
        """The broker has answered a renewal sent at that time. Returns the running jobs whose leases are lost."""
        refused = set(skipped)
        lost: list[Held] = []
        for held in jobs:
            if held.phase is Phase.GONE:
                continue
            if held.job.seq not in refused:
                held.expires = asked_at + lease_s
                if held.lease_s == lease_s:
                    held.renew_at = asked_at + lease_s * RENEW_AT
            elif held.phase is Phase.SENDING:
                # Probably acked meanwhile: the broker's answer to that will say.
                held.renew_at = held.expires
            else:
                lost += self._lose(held)
        return lost

    def not_renewed(self, jobs: Iterable[Held], now: float) -> None:
        """The call failed, and may be repeated."""
        for held in jobs:
            if held.phase is Phase.GONE:
                continue
            held.renew_at = min(now + held.lease_s * AGAIN_AFTER, max(now, held.expires))

    def doubt(self, now: float) -> None:
        """The broker may have been restarted and have forgotten leases. The leases of running jobs are renewed now, and
        waiting jobs are given back to any worker that has time."""
        while self._waiting:
            self._end(self._waiting.popleft(), GIVEN_BACK, now)
        for held in self._held.values():
            held.renew_at = min(held.renew_at, now)

    def _lose(self, held: Held) -> list[Held]:
        running = held.phase is Phase.RUNNING
        if held.phase is Phase.WAITING:
            self._waiting.remove(held)
        held.lost = True
        self.counts["unsure" if held.job.lease_id in self._unsure else "lost"] += 1
        self._drop(held)
        return [held] if running else []

    # -- stopping ------------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Claim and begin no more jobs. Give back those that have not begun."""
        self.stopping = True
        while self._waiting:
            self._end(self._waiting.popleft(), GIVEN_BACK, now)

    def abandon(self, now: float) -> list[Held]:
        """Give back the jobs that are still running. Their handlers run in vain."""
        running = [held for held in self._held.values() if held.phase is Phase.RUNNING]
        for held in running:
            held.lost = True
            self._end(held, GIVEN_BACK, now)
        return running
