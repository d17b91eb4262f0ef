"""What a workload was told of its queues: every job, who held it last and what became of it.

Filled by `job_session.JobSession` while a workload runs, held against a reopened directory by `job_check`, and brought
up to date there: what the crash left open is settled by what was found. A job is known by its data, which no two share,
wherever it is moved to.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from storage import Durability, TopicConfig
from tests.support.crash_ledger import Outcome, SentRecord


def parts_of(body: bytes) -> tuple[bytes, bytes | None]:
    """(data, meta) of a stored body, which may have a deliver_at behind them."""
    sent, separator, _ = body.removeprefix(b'{"data":').partition(b',"deliver_at":')
    sent = sent if separator else sent.removesuffix(b"}")
    data, separator, meta = sent.partition(b',"meta":')
    return data, meta if separator else None


@dataclass(slots=True, eq=False)
class Lease:
    """As the answer said. Once recovered its token is not known any more (0)."""

    node: str
    token: int
    deadline: int


@dataclass(slots=True, eq=False)
class Sent:
    """A job. What is `…_safe` cannot be lost in a power cut: that it was appended, its end, what its lease is."""

    queue: str
    record: SentRecord
    batch: int
    appended: Outcome = Outcome.OPEN
    seq: int = 0
    deliver_at: int = 0
    #: None: nobody has tried.
    acked: Outcome | None = None
    purged: Outcome | None = None
    #: Where there is a dead letter topic, from which it is not redriven.
    rejected: Outcome | None = None
    lease: Lease | None = None
    deliveries: int = 0
    #: Of a job that was given back: not before then. Between the two when jitter decides.
    ready_between: tuple[int, int] = (0, 0)
    #: An operation on it ended without an answer: who holds it is not known.
    unsure: bool = False
    append_safe: bool = False
    end_safe: bool = False
    lease_safe: bool = True
    #: The tokens it was ever handed out with.
    tokens: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    @property
    def data(self) -> bytes:
        return self.record.data

    @property
    def gone(self) -> bool:
        """For good, as far as is known."""
        return self.acked is Outcome.DONE or self.purged is Outcome.DONE or self.appended is Outcome.REFUSED

    @property
    def perhaps_gone(self) -> bool:
        return self.gone or Outcome.OPEN in (self.acked, self.purged, self.appended)


@dataclass(slots=True, eq=False)
class Queue:
    """A topic of that type, or the one its dead letters go to (`holds_dead`)."""

    name: str
    configs: list[tuple[TopicConfig, Outcome]]
    holds_dead: bool = False
    paused: set[bool] = field(default_factory=lambda: {False})

    @property
    def config(self) -> TopicConfig:
        """The last one that was not refused."""
        return [config for config, outcome in self.configs if outcome is not Outcome.REFUSED][-1]

    @property
    def made(self) -> Outcome:
        outcomes = {outcome for _, outcome in self.configs}
        return next(each for each in (Outcome.DONE, Outcome.OPEN, Outcome.REFUSED) if each in outcomes)

    @property
    def durability(self) -> Durability:
        return self.config.durability

    @property
    def bounded(self) -> bool:
        """Whether jobs may have gone by a cap or by age."""
        return any(config.cap_records or config.cap_bytes or config.ttl_ms for config, _ in self.configs)


class JobLedger:
    """All queues by name, all jobs in the order in which they were sent."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.jobs: list[Sent] = []
        #: Tokens by value: none is ever given twice, whatever happens in between.
        self.tokens: set[int] = set()
        #: A clean stop was begun, and nothing was done to a queue since: leases that are not durable may have lasted.
        self.perhaps_clean = False
        self.redriven = False
        self._batches = 0

    def copy(self) -> JobLedger:
        return copy.deepcopy(self)

    def of(self, queue: str) -> list[Sent]:
        return [job for job in self.jobs if job.queue == queue]

    def new(self, queue: str, count: int, *, size: int, meta: bool) -> list[Sent]:
        """Jobs of one write."""
        self._batches += 1
        made: list[Sent] = []
        for index in range(count):
            data = b'{"w":%d,"i":%d,"p":"%b"}' % (self._batches, index, b"." * max(0, size - 24))
            value = (b'{"m":%d}' % index if index % 2 else b"[1]") if meta else None
            record = SentRecord(data, meta=value, tag="t" if meta else None, node="w" if meta else None)
            made.append(Sent(queue, record, self._batches))
        self.jobs += made
        return made

    def all_safe(self) -> None:
        """What was told so far can no longer be lost."""
        for job in self.jobs:
            job.append_safe = job.end_safe = job.lease_safe = True
