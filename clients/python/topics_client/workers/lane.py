"""One queue at a worker: threads that claim, settle and renew for it, and what handlers are given and give back.

The rules are those of `QueueState`, which one lock guards. All calls of the broker are made from threads of their own:
neither a handler nor an event loop that does not give way keeps a lease from being renewed.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from topics_client import calls, queue_calls
from topics_client.blocking import Client
from topics_client.errors import ApiError, ConnectionFailed, LeaseLost, TopicNotFound, TopicsError
from topics_client.retry import RetryPolicy
from topics_client.values import Job, NewRecord, Settled
from topics_client.wire import Call
from topics_client.workers.backoff import Backoff
from topics_client.workers.context import JobContext
from topics_client.workers.log import log
from topics_client.workers.payloads import InvalidPayload, parameters, reader
from topics_client.workers.state import DONE, GIVEN_BACK, MAX_PAUSE_S, PAUSE_S, Held, Kind, Outcome, QueueState, Sending

#: The broker's bound.
_REASON_BYTES = 1024
#: A claim waits no longer, so that a worker that is to end does not wait for it.
_WAIT_S = 1.0
_ONCE = RetryPolicy(total_s=0)
#: A broker that is away is spoken of so often.
_SPEAK_EVERY_S = 10.0
#: Upper bounds of the histogram of how long handlers take.
BUCKETS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0)


@dataclass(slots=True)
class Durations:
    """How long handlers took: how many within each of BUCKETS_S and beyond, and all together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, took_s: float) -> None:
        self.total_s += took_s
        for number, bound in enumerate(BUCKETS_S):
            if took_s <= bound:
                self.counts[number] += 1
                return
        self.counts[-1] += 1


class Lane:
    """`handler` does jobs of `queue`, so many at a time; `failing` is called with an error that ends the worker."""

    def __init__(
        self,
        client: Client,
        node: str,
        queue: str,
        handler: Callable[..., Any],
        *,
        concurrency: int,
        lease_s: float | None,
        retry: Backoff | None,
        failing: Callable[[TopicsError], None],
    ) -> None:
        self.queue = queue
        self.handler = handler
        self.concurrency = concurrency
        self.durations = Durations()
        kind, self._takes_context = parameters(handler)
        self._read = reader(kind)
        self._client = client
        self._node = node
        self._lease_s = lease_s
        self._retry = retry
        self._failing = failing
        self._dead_letter: str | None = None
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._outcomes = threading.Condition(self._lock)
        self._claimer_waits = False
        #: When the acking thread next runs without being woken.
        self._looks_at = 0.0
        self._closed = False
        self._spoke_at = -_SPEAK_EVERY_S
        self._state = QueueState(concurrency, lease_s or 1.0)
        self._threads = [
            threading.Thread(target=work, name=f"topics-{name}-{queue}", daemon=True)
            for name, work in (("claim", self._claim_all), ("settle", self._settle_all), ("renew", self._renew_all))
        ]
        #: Called with how many runners should look for new jobs, and with 0 when the worker ends.
        self.came: Callable[[int], None] = lambda count: None
        #: Called with a job whose handler runs in vain from now on.
        self.lost: Callable[[Held], None] = lambda held: None

    # -- life ----------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Ask the broker for the queue's settings. Raises the errors of that request. If the broker is away, it is
        waited for according to the client's policy."""
        config = self._client.state(self.queue, touch=False).config
        self._dead_letter = config.get("dead_letter")
        if self._retry is None and not config.get("retry_backoff_ms"):
            # Without any, a job that always fails would keep a worker, and its log, busy.
            self._retry = Backoff()
        lease_s = self._lease_s or config.get("lease_ms", 30_000) / 1000
        self._state = QueueState(self.concurrency, lease_s)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin no more jobs."""
        with self._lock:
            self._state.stop(time.monotonic())
            self._wake()
        self.came(0)

    def abandon(self) -> None:
        """Give back the jobs that are still running."""
        with self._lock:
            running = self._state.abandon(time.monotonic())
            self._wake()
        self._tell(running)

    def close(self, within_s: float) -> None:
        """End the threads once the broker knows all outcomes, or the time is over."""
        end = time.monotonic() + within_s
        with self._lock:
            while len(self._state) and time.monotonic() < end:
                self._outcomes.notify_all()
                self._room.wait(0.05)
            self._closed = True
            self._wake()
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _wake(self) -> None:
        self._room.notify_all()
        self._outcomes.notify_all()

    @property
    def stopping(self) -> bool:
        return self._state.stopping

    def figures(self) -> tuple[dict[str, int], int, int]:
        """Jobs by how they ended, how many run, and how many wait to begin."""
        with self._lock:
            return dict(self._state.counts), self._state.running, self._state.waiting

    @property
    def idle(self) -> bool:
        """Whether no handler runs."""
        return self._state.running == 0

    # -- for those that run handlers -----------------------------------------------------------------------------------

    def next(self, done: Held | None = None, outcome: Outcome = DONE) -> Held | None:
        """The next job to begin, if there is one, after handling a job that has ended."""
        state = self._state
        with self._lock:
            now = time.monotonic()
            if done is not None:
                self.durations.add(now - done.began)
                state.ended(done, outcome, now)
            held = state.begin(now)
            at = state.send_at()
            if at is not None and at < self._looks_at:
                self._looks_at = at
                self._outcomes.notify()
            if self._claimer_waits and state.room():
                self._claimer_waits = False
                self._room.notify()
        return held

    def give_back(self, held: Held) -> None:
        """The handler was ended from outside before it could end the job, because the program ends its tasks. No more
        jobs are begun here."""
        with self._lock:
            self._state.ended(held, GIVEN_BACK, time.monotonic())
        self.stop()

    def arguments(self, held: Held) -> tuple[JobContext | None, tuple[Any, ...]]:
        """The arguments of the handler. Raises InvalidPayload."""
        payload = self._read(held.job)
        if not self._takes_context:
            return None, (payload,)
        context = JobContext(self, held)
        return context, (payload, context)

    def outcome(self, held: Held, context: JobContext | None, error: BaseException | None) -> Outcome:
        """The outcome of a job whose handler ended like this."""
        if context is not None and context.said is not None:
            return self._with_delay(held, context.said)
        if error is None:
            return DONE
        reason = _reason(f"{type(error).__name__}: {error}")
        if isinstance(error, InvalidPayload):
            log.warning("payload_invalid", queue=self.queue, seq=held.job.seq, error=str(error))
            return Outcome(Kind.REJECT, reason)
        log.warning(
            "handler_failed", queue=self.queue, seq=held.job.seq, deliveries=held.job.deliveries, exc_info=error
        )
        return self._with_delay(held, Outcome(Kind.NACK, reason))

    def _with_delay(self, held: Held, outcome: Outcome) -> Outcome:
        reason = None if outcome.reason is None else _reason(outcome.reason)
        delay_ms = outcome.delay_ms
        if outcome.kind is Kind.NACK and delay_ms is None and self._retry is not None:
            delay_ms = self._retry.delay_ms(held.job.deliveries, random.random())
        return Outcome(outcome.kind, reason, delay_ms)

    def prolong(self, held: Held, lease_s: float) -> None:
        """For `JobContext.extend`."""
        with self._lock:
            self._state.prolong(held, lease_s, time.monotonic())

    def log_progress(self, held: Held, what: dict[str, Any]) -> None:
        log.info("progress", queue=self.queue, seq=held.job.seq, deliveries=held.job.deliveries, **what)

    def expire(self) -> None:
        """Tell handlers whose leases have ended. Must be called often, whatever happens to calls of the broker."""
        with self._lock:
            lost = self._state.expire(time.monotonic())
            waiting = self._state.waiting
        self._tell(lost)
        if waiting:
            # The runners called for these jobs are doing something that takes longer than earlier jobs did.
            self.came(waiting)

    def _tell(self, lost: Iterable[Held]) -> None:
        for held in lost:
            if not self.stopping:
                log.warning("lease_lost", queue=self.queue, seq=held.job.seq, deliveries=held.job.deliveries)
            self.lost(held)

    @property
    def look_every_s(self) -> float:
        """How often to call `expire` and to check leases."""
        return min(0.5, self._state.lease_s / 30)

    # -- threads -------------------------------------------------------------------------------------------------------

    def _claim_all(self) -> None:
        failures = 0
        key, asked_at = uuid.uuid4().hex, None
        while True:
            with self._lock:
                while not (size := self._state.room()) and not self._state.stopping:
                    self._claimer_waits = True
                    self._room.wait(0.5)
                self._claimer_waits = False
                if self._state.stopping:
                    return
                lease_s, wait_s = self._state.lease_s, min(_WAIT_S, self._state.wait_s)
            # Jobs of a lost answer come with the next answer for the same key: their leases may be that old.
            asked_at = time.monotonic() if asked_at is None else asked_at
            options: queue_calls.ClaimOptions = {
                "max": size,
                "lease_ms": round(lease_s * 1000),
                "wait_ms": round(wait_s * 1000),
                "attempt_key": key,
            }
            try:
                jobs = self._client.run(queue_calls.claim(self.queue, self._node, options), retry=_ONCE).jobs
            except TopicsError as error:
                if not error.transient:
                    self._failing(error)
                    return
                if error.outcome == "none":
                    key, asked_at = uuid.uuid4().hex, None
                failures += 1
                self._away(error)
                self._sleep(_pause_s(failures, error))
                continue
            except RuntimeError:
                return  # the client was closed
            self._claimed(jobs, asked_at)
            failures = 0
            key, asked_at = uuid.uuid4().hex, None

    def _claimed(self, jobs: list[Job], asked_at: float) -> None:
        if not jobs:
            return
        with self._lock:
            lost = self._state.claimed(jobs, asked_at)
            if self._state.stopping:
                self._outcomes.notify_all()
            needed = self._state.needed(len(jobs))
        self._tell(lost)
        self.came(needed)

    def _settle_all(self) -> None:
        while True:
            with self._lock:
                while (sending := self._state.to_send(now := time.monotonic())) is None:
                    if self._closed:
                        return
                    at = self._state.send_at()
                    self._looks_at = float("inf") if at is None else at
                    self._outcomes.wait(None if at is None else max(0.0, at - now))
                self._looks_at = 0.0
            try:
                self._settle(sending)
            except RuntimeError:
                return  # the client was closed

    def _settle(self, sending: Sending) -> None:
        outcome, jobs = sending.outcome, [held.job for held in sending.jobs]
        call: Call[Settled]
        try:
            if outcome.kind is Kind.REJECT:
                if self._dead_letter is None:
                    log.warning("no_dead_letter_topic", queue=self.queue, seqs=[job.seq for job in jobs])
                    with self._lock:
                        self._state.changed(sending, Outcome(Kind.NACK, outcome.reason), time.monotonic())
                    return
                self._bury(self._dead_letter, jobs, outcome.reason)
            if outcome.kind is Kind.NACK:
                options: queue_calls.NackOptions = {
                    "delay_ms": outcome.delay_ms,
                    "penalty": outcome.penalty,
                    "reason": outcome.reason,
                }
                call = queue_calls.nack(self.queue, self._node, jobs, options)
            else:
                call = queue_calls.ack(self.queue, self._node, jobs)
            settled = self._client.run(call, retry=_ONCE)
        except TopicsError as error:
            self._not_settled(sending, error)
            return
        with self._lock:
            self._state.settled(sending, settled.skipped)
            self._room.notify_all()

    def _not_settled(self, sending: Sending, error: TopicsError) -> None:
        gone = isinstance(error, TopicNotFound)
        if not error.transient:
            self._failing(error)
        else:
            self._away(error)
        after = error.retry_after_s if isinstance(error, ApiError) else None
        with self._lock:
            if gone or isinstance(error, LeaseLost):
                self._state.settled(sending, [held.job.seq for held in sending.jobs])
            else:
                self._state.failed(
                    sending,
                    time.monotonic(),
                    perhaps_done=error.outcome == "unknown",
                    retry_after_s=after or 0.0,
                    draw=random.random(),
                )

    def _bury(self, topic: str, jobs: Iterable[Job], reason: str | None) -> None:
        """Append dead letters in the broker's format, so that `redrive` recognises them. Each is stored once: a
        repetition within the topic's idempotency window stores nothing, even by another worker."""
        for job in jobs:
            before: Any = {} if job.meta_raw is None else msgspec.json.decode(job.meta_raw)
            meta: dict[str, Any] = {
                **(before if isinstance(before, dict) else {"$meta": before}),
                "$dead_letter_from": self.queue,
                "$dead_letter_deliveries": str(job.deliveries),
                "$dead_letter_src_seq": str(job.seq),
                **({"$dead_letter_reason": reason} if reason else {}),
            }
            letter = NewRecord(data=job.data_raw, tag=job.tag, node=job.node, meta=meta)
            key = f"reject-{job.seq}-{job.ts}-{self.queue}"[:128]
            self._client.run(calls.append(topic, [letter], {"idempotency_key": key}), retry=_ONCE)

    def _renew_all(self) -> None:
        while not self._closed:
            with self._lock:
                asked_at = time.monotonic()
                due = self._state.renewing(asked_at)
            if not due:
                time.sleep(self.look_every_s)
                continue
            lease_s = due[0].lease_s
            call = queue_calls.extend(self.queue, self._node, [held.job for held in due], round(lease_s * 1000))
            try:
                settled = self._client.run(call, retry=_ONCE)
            except TopicsError as error:
                self._away(error)
                with self._lock:
                    self._state.not_renewed(due, time.monotonic())
                time.sleep(self.look_every_s)
                continue
            except RuntimeError:
                return  # the client was closed
            with self._lock:
                lost = self._state.renewed(due, settled.skipped, lease_s, asked_at)
            self._tell(lost)

    def _away(self, error: TopicsError) -> None:
        now = time.monotonic()
        if isinstance(error, ConnectionFailed):
            with self._lock:
                self._state.doubt(now)
        if now - self._spoke_at >= _SPEAK_EVERY_S:
            self._spoke_at = now
            log.warning("broker_away", queue=self.queue, error=str(error))

    def _sleep(self, seconds: float) -> None:
        """Sleep, but wake up when the worker ends."""
        end = time.monotonic() + seconds
        with self._lock:
            while not self._state.stopping and (left := end - time.monotonic()) > 0:
                self._room.wait(left)


def _pause_s(failures: int, error: TopicsError) -> float:
    asked = error.retry_after_s if isinstance(error, ApiError) else None
    return (asked or 0.0) + min(MAX_PAUSE_S, PAUSE_S * 2.0 ** min(failures - 1, 10)) * random.random()


def _reason(text: str) -> str:
    """As much of the reason as the broker accepts."""
    return text.encode("utf-8", "replace")[:_REASON_BYTES].decode("utf-8", "ignore")
