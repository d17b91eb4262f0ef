"""Keeps the leases of jobs alive while the jobs are being done.

`Holding` knows which jobs these are and when to renew them: a state machine without I/O. `Renewing` renews them from a
thread, `AsyncRenewing` from a task. A lease is renewed until its job is acked, nacked or lost. When the program dies
nobody renews it, and others get the job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from topics_client import deadlines, queue_calls
from topics_client.errors import TopicsError
from topics_client.values import Job, Settled
from topics_client.wire import Call

if TYPE_CHECKING:
    from typing_extensions import Self

#: A lease is renewed when this share of it has passed, and tried again this share later if that fails.
_RENEW_AT, _AGAIN_AFTER = 1 / 3, 1 / 10
#: How long the end of the work waits for a renewal in progress.
_LEAVE_S = 1.0


class Holding:
    """The jobs of one worker that are begun and not acked or nacked, by lease."""

    def __init__(self, topic: str, node: str, lease_ms: int, now: Callable[[], float]) -> None:
        self._topic = topic
        self._node = node
        self._lease_ms = lease_ms
        self._now = now
        self._jobs: dict[str, Job] = {}
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def jobs(self) -> list[Job]:
        """The held jobs."""
        return list(self._jobs.values())

    def begin(self, job: Job) -> None:
        """The job was just claimed, and is being done."""
        self._jobs[job.lease_id] = job
        self._due[job.lease_id] = self._now() + self._lease_ms / 1000 * _RENEW_AT

    def end(self, topic: str, node: str, jobs: Iterable[Job | int]) -> None:
        """These jobs were acked or nacked, or belong to others now: nothing is renewed any more."""
        if (topic, node) != (self._topic, self._node):
            return
        named = [job.lease_id if isinstance(job, Job) else job for job in jobs]
        for lease_id, job in list(self._jobs.items()):
            if lease_id in named or job.seq in named:
                self._drop(lease_id)

    def _drop(self, lease_id: str) -> None:
        self._jobs.pop(lease_id, None)
        self._due.pop(lease_id, None)

    def wait_s(self) -> float | None:
        """Seconds until something is due. None while nothing is held."""
        return max(0.0, min(self._due.values()) - self._now()) if self._due else None

    def due(self) -> list[Job]:
        """The jobs to renew now, as many as one call takes."""
        now = self._now()
        return [self._jobs[each] for each, at in self._due.items() if at <= now][: queue_calls.MAX_SEQS]

    def renewal(self, jobs: list[Job]) -> Call[Settled]:
        """The call that renews them."""
        return queue_calls.extend(self._topic, self._node, jobs, self._lease_ms)

    def renewed(self, jobs: list[Job], outcome: Settled | TopicsError) -> None:
        """The answer to a renewal. Lost leases are dropped: an ack or nack of their jobs reports the loss."""
        lost: set[int] = set()
        again_s = self._lease_ms / 1000 * _RENEW_AT
        if isinstance(outcome, Settled):
            lost.update(outcome.skipped)
        elif outcome.transient:
            again_s = self._lease_ms / 1000 * _AGAIN_AFTER
        else:
            lost.update(job.seq for job in jobs)
        for job in jobs:
            if job.seq in lost:
                self._drop(job.lease_id)
            elif job.lease_id in self._jobs:
                self._due[job.lease_id] = self._now() + again_s


class Renewing:
    """A thread that renews what is held, within a `with` block. `call` makes a call, once."""

    def __init__(self, holding: Holding, call: Callable[[Call[Settled]], Settled]) -> None:
        self._holding = holding
        self._call = call
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="topics-leases", daemon=True)

    def __enter__(self) -> Self:
        with deadlines.lifted():  # some builds of Python pass context variables on to threads
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(_LEAVE_S)

    def wait_for_room(self, most: int) -> None:
        """Wait until fewer jobs than this are held."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._holding) < most)

    def begin(self, job: Job) -> None:
        """See `Holding`."""
        with self._changed:
            self._holding.begin(job)
            self._changed.notify_all()

    def end(self, topic: str, node: str, jobs: Iterable[Job | int]) -> None:
        """See `Holding`."""
        with self._changed:
            self._holding.end(topic, node, jobs)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and not self._holding.due():
                    self._changed.wait(self._holding.wait_s())
                if self._stopped:
                    return
                jobs = self._holding.due()
            outcome: Settled | TopicsError
            try:
                outcome = self._call(self._holding.renewal(jobs))
            except TopicsError as error:
                outcome = error
            except RuntimeError:
                return  # the client was closed
            with self._changed:
                self._holding.renewed(jobs, outcome)
                self._changed.notify_all()
