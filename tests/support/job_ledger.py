"""What a workload was told of its queues: every job, who held it last and what became of it.

`job_session.JobSession` fills it while a workload runs. `job_check` compares it with a reopened directory and updates
it: what the crash left open is closed by what was found. A job is identified by its data, which is unique, wherever it
is moved.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from storage import Durability, TopicConfig
from tests.support.crash_ledger import Outcome, SentRecord


def parts_of(body: bytes) -> tuple[bytes, bytes | None]:
    """(data, meta) of a stored body, which may have a deliver_at after them."""
    sent, separator, _ = body.removeprefix(b'{"data":').partition(b',"deliver_at":')
    sent = sent if separator else sent.removesuffix(b"}")
    data, separator, meta = sent.partition(b',"meta":')
    return data, meta if separator else None


@dataclass(slots=True, eq=False)
class Lease:
    """A lease as the answer described it. After recovery its token is not known any more (0)."""

    node: str
    token: int
    deadline: int


@dataclass(slots=True, eq=False)
class Sent:
    """A job. A power cut cannot take what is `…_safe`: its append, its end, or the state of its lease."""

    queue: str
    record: SentRecord
    batch: int
    appended: Outcome = Outcome.OPEN
    seq: int = 0
    deliver_at: int = 0
    #: None: nobody has tried.
    acked: Outcome | None = None
    purged: Outcome | None = None
    #: Whether there is a dead letter topic from which it is not redriven.
    rejected: Outcome | None = None
    lease: Lease | None = None
    deliveries: int = 0
    #: When a job that was given back becomes ready: not before the first time, and by the second if jitter decides.
    ready_between: tuple[int, int] = (0, 0)
    #: An operation on it ended without an answer, so its holder is not known.
    unsure: bool = False
    append_safe: bool = False
    end_safe: bool = False
    lease_safe: bool = True
    #: All tokens of its leases so far.
    tokens: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    @property
    def data(self) -> bytes:
        return self.record.data

    @property
    def gone(self) -> bool:
        """Whether it is gone for good, as far as is known."""
        return self.acked is Outcome.DONE or self.purged is Outcome.DONE or self.appended is Outcome.REFUSED

    @property
    def perhaps_gone(self) -> bool:
        return self.gone or Outcome.OPEN in (self.acked, self.purged, self.appended)


@dataclass(slots=True, eq=False)
class Queue:
    """A queue, or the topic for its dead letters (`holds_dead`)."""

    name: str
    configs: list[tuple[TopicConfig, Outcome]]
    holds_dead: bool = False
    paused: set[bool] = field(default_factory=lambda: {False})

    @property
    def config(self) -> TopicConfig:
        """The last config that was not refused."""
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
        """Whether jobs may have gone because of a cap or the ttl."""
        return any(config.cap_records or config.cap_bytes or config.ttl_ms for config, _ in self.configs)


class JobLedger:
    """All queues by name, all jobs in the order in which they were sent."""

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.jobs: list[Sent] = []
        #: Tokens by value. None is ever used twice, whatever happens in between.
        self.tokens: set[int] = set()
        #: A clean stop was begun, and nothing was done to a queue since: leases that are not durable may have survived.
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
        """What was answered so far can no longer be lost."""
        for job in self.jobs:
            job.append_safe = job.end_safe = job.lease_safe = True
