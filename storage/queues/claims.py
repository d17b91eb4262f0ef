"""One claim on its way, and what it was given. Source: api.md §6 (claim)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.errors import Unreadable
from storage.log.submission import Outcome
from storage.state.queues.job import Holder
from storage.state.queues.values import ClaimedJob

if TYPE_CHECKING:
    from storage.queues.desk import Desk


class Claimed:
    """What a claim was given. `undo` when nobody will ever hear of it."""

    __slots__ = ("_attempt_key", "_desk", "_node", "jobs", "ready", "topic")

    def __init__(self, desk: Desk, claim: Claim, jobs: Sequence[ClaimedJob], ready: int) -> None:
        self.topic = desk.topic.name
        self.jobs: Sequence[ClaimedJob] = jobs
        self.ready = ready
        self._desk = desk
        self._node = claim.node
        self._attempt_key = claim.attempt_key

    def stands(self, job: ClaimedJob) -> bool:
        """Whether the lease of one of `jobs` is still one."""
        return self._desk.table.lease_of(job.record.seq) == job.lease_id

    def undo(self) -> None:
        """Give all of it back at once, and forgiven. With an attempt_key the leases stand: a repeat asks for them."""
        if self._attempt_key is None and self.jobs:
            self._desk.give_back([(job.record.seq, job.lease_id) for job in self.jobs], self._node, forgiven=True)
        self.jobs = ()


class Claim:
    """One claim on its way. `patient`: it waits for jobs when there are none. `max_bytes`: see `Desk`; 0 = no bound."""

    __slots__ = (
        "answer",
        "attempt_key",
        "dealt",
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
        #: Jobs were taken for it: it is answered with them, or with what went wrong.
        self.dealt = False
        #: Reads for it that the disk failed. The first is the answer when there is nothing else.
        self.failed: list[Unreadable] = []

    @property
    def gone(self) -> bool:
        """Nobody waits for the answer, and nobody will ask for it again."""
        return self.answer.done() and self.attempt_key is None
