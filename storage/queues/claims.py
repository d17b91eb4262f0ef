"""A claim in progress, and its result.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.errors import Unreadable
from storage.log.submission import Outcome
from storage.state.queues.job import Holder
from storage.state.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.lease_queue import LeaseQueue


class Claimed:
    """The result of a claim. `undo` it when it reaches nobody."""

    __slots__ = ("_attempt_key", "_node", "_queue", "jobs", "ready", "topic")

    def __init__(self, queue: LeaseQueue, claim: Claim, jobs: Sequence[ClaimedJob], ready: int) -> None:
        self.topic = queue.topic.name
        self.jobs: Sequence[ClaimedJob] = jobs
        self.ready = ready
        self._queue = queue
        self._node = claim.node
        self._attempt_key = claim.attempt_key

    def stands(self, job: ClaimedJob) -> bool:
        """Whether the lease of one of `jobs` still stands."""
        return self._queue.table.lease_of(job.record.seq) == job.lease_id

    def undo(self) -> None:
        """Give all jobs back at once, without counting the delivery. With an attempt_key the leases stand, for a
        repeat."""
        if self._attempt_key is None and self.jobs:
            self._queue.give_back([(job.record.seq, job.lease_id) for job in self.jobs], self._node, forgiven=True)
        self.jobs = ()


class Claim:
    """One claim on its way. `patient`: it waits for jobs when there are none. `max_bytes`: see `Desk`; 0 = no bound."""

    __slots__ = (
        "answer",
        "attempt_key",
        "dispatched",
        "failed",
        "holder",
        "lease_ms",
        "max",
        "max_bytes",
        "node",
        "patient",
    )

    def __init__(
        self,
        answer: Outcome,
        node: str,
        max: int,
        lease_ms: int,
        *,
        patient: bool,
        attempt_key: str | None = None,
        holder: Holder | None = None,
        max_bytes: int = 0,
    ) -> None:
        self.answer = answer
        self.node = node
        self.max = max
        self.max_bytes = max_bytes
        self.lease_ms = lease_ms
        self.patient = patient
        self.attempt_key = attempt_key
        self.holder = holder
        #: Jobs were taken for it: it is answered with them, or with an error.
        self.dispatched = False
        #: Reads for it that the disk failed. The first is the answer when no job can be read.
        self.failed: list[Unreadable] = []

    @property
    def gone(self) -> bool:
        """Nobody waits for the answer, and no repeat will ask for it."""
        return self.answer.done() and self.attempt_key is None
