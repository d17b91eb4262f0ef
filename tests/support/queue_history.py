"""What was asked of a queue and what was answered, with times: the history that `queue_check` judges.

Times are ms since the epoch of one clock that only goes forward: the wall clock when the history began, plus what the
monotonic clock has counted since. The broker runs on the same machine and its engine time follows the same wall
clock, so deadlines (engine time, exact) may be compared with them, `Rules.slack_ms` apart.

An "era" is the life of one broker process. Whoever asks notes the operation before the request is sent, so that an
answer that never comes leaves an operation whose outcome is unknown: it happened before its process ended, or never.
"""

from __future__ import annotations

import enum
import math
import time
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import msgspec

from tests.support.kill_ledger import Outcome

SLACK_MS = 100.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The queue's settings that matter. `max_deliveries` 0 = nothing is dead-lettered. `slack_ms`: what a time of the
    history and one of the engine may be apart."""

    leases_durable: bool
    max_deliveries: int = 0
    retry_backoff_ms: int = 0
    retry_backoff_max_ms: int = 3_600_000
    slack_ms: float = SLACK_MS

    def least_wait_ms(self, counted: int) -> float:
        """How long at least a job is kept back that was delivered so often and not forgiven: jitter takes up to half,
        and the rounding a millisecond."""
        if not self.retry_backoff_ms or counted < 1:
            return 0
        return min(self.retry_backoff_max_ms, self.retry_backoff_ms << (counted - 1)) / 2 - 1


class Operation(msgspec.Struct, kw_only=True, eq=False):
    """One request. `answered` stays infinite while the outcome is unknown."""

    node: str
    era: int = 0
    invoked: float = 0.0
    answered: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def known(self) -> bool:
        return self.outcome is Outcome.OK

    @property
    def possible(self) -> bool:
        """It happened, or may have."""
        return self.outcome is not Outcome.FAILED


class Produce(Operation):
    """An append of jobs, atomic; their data say their names. `first_seq` once it is known."""

    names: tuple[str, ...]
    first_seq: int = 0
    delay_ms: int = 0


class Lease(NamedTuple):
    """An entry of a claim's answer. `name` is what the job's data say."""

    seq: int
    token: str
    deadline: int
    deliveries: int
    name: str


class Stream(Operation):
    """A stream of pushed jobs, `max` at a time. `answered` when it had ended for certain, `outcome` stays unknown:
    what was pushed last may never have arrived."""

    max: int
    lease_ms: int


class Claim(Operation):
    """`leases` in the order of the answer; `lease_ms` is always asked for, so that deadline - lease_ms is the instant
    of the deal. What a stream pushes is a claim each, asked for when the stream was opened."""

    max: int
    lease_ms: int
    key: str | None = None
    leases: tuple[Lease, ...] = ()
    stream: Stream | None = None


class Act(enum.Enum):
    """LEAVE: the stream by which the jobs had come ended, so that the broker gives them back, at once."""

    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    LEAVE = "leave"


class Settle(Operation):
    """An ack, nack or extend. `skipped`, and `deadlines` of an extend, as answered. A token may be None: not given.

    `delay_ms` None: the queue's backoff. `strict`: all or nothing; `refused`: the seqs because of which it was nothing.
    `cut`, of LEAVE: the connection ended by itself; only a process that was asked to stop gives back what it held, and
    that may have been before the client had read to the end.
    """

    act: Act
    seqs: tuple[int, ...]
    tokens: tuple[str | None, ...]
    skipped: frozenset[int] = frozenset()
    delay_ms: int | None = 0
    penalty: bool = True
    lease_ms: int = 0
    deadlines: dict[int, int] = {}
    strict: bool = False
    refused: frozenset[int] = frozenset()
    cut: bool = False


class Pause(Operation):
    """Of the queue; `paused` False: its resumption."""

    paused: bool


class Purge(Operation):
    """Of all jobs in these states. `purged`, as answered."""

    states: tuple[str, ...]
    purged: int = 0


class Redrive(Operation):
    """Of dead letters, back into the queue. `moved`, as answered."""

    max: int
    moved: int = 0


class Dead(NamedTuple):
    """A record of the dead letter topic: which job it was, its deliveries, what its data say."""

    source_seq: int
    deliveries: int
    name: str


class Observation(Operation):
    """All jobs of the queue by seq with their names, whatever their state, and the whole dead letter topic; the queue
    before and after it, so that no job is missed on its way from the one to the other.

    `final`: nobody does anything to the queue any more.
    """

    present: dict[int, str] = {}
    dead: tuple[Dead, ...] = ()
    paused: bool | None = None
    final: bool = False


class Era(msgspec.Struct):
    """`ended`: when the process was gone for certain; `clean`: it had been asked to stop, at `asked`, and did."""

    ended: float = math.inf
    clean: bool = False
    asked: float = math.inf


class Clock:
    """ms since the epoch, only ever forward."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return 1000.0 * (self._offset + time.monotonic())


Asked = TypeVar("Asked", bound=Operation)


class History:
    """All operations of one queue, in the order in which they were invoked (what a stream brought: was brought)."""

    def __init__(self, rules: Rules, clock: Clock | None = None) -> None:
        self.rules = rules
        self.eras = [Era()]
        self.operations: list[Operation] = []
        self._now = clock or Clock()

    # -- recording ---------------------------------------------------------------------------------------------------

    def begin(self, operation: Asked) -> Asked:
        """It is about to be sent."""
        operation.era = len(self.eras) - 1
        operation.invoked = self._now()
        self.operations.append(operation)
        return operation

    def left(self, stream: Stream, leases: Iterable[Lease], *, grace_ms: float, cut: bool) -> None:
        """A stream that has brought these leases has ended; the broker knows within `grace_ms`."""
        now = min(self._now(), self.eras[stream.era].ended)
        stream.answered = now + grace_ms
        brought = tuple(leases)
        if brought:
            seqs, tokens = tuple(lease.seq for lease in brought), tuple(lease.token for lease in brought)
            leave = Settle(node=stream.node, act=Act.LEAVE, seqs=seqs, tokens=tokens, cut=cut)
            leave.era, leave.invoked, leave.delay_ms = stream.era, now, None
            self.operations.append(leave)

    def pushed(self, stream: Stream, lease: Lease) -> None:
        """The stream has brought a job."""
        claim = Claim(node=stream.node, max=1, lease_ms=stream.lease_ms, leases=(lease,), stream=stream)
        claim.era, claim.invoked = stream.era, stream.invoked
        self.operations.append(claim)
        self.ok(claim)

    def ok(self, operation: Operation) -> None:
        """It was answered, and the answer's content is entered."""
        operation.answered, operation.outcome = self._now(), Outcome.OK

    def failed(self, operation: Operation) -> None:
        """For certain nothing came of it."""
        operation.answered, operation.outcome = self._now(), Outcome.FAILED

    def stopping(self) -> None:
        """The process is about to be asked to stop."""
        self.eras[-1].asked = self._now()

    def ended(self, *, clean: bool) -> None:
        """The process is gone. Until `started`, requests can only fail."""
        self.eras[-1].ended, self.eras[-1].clean = self._now(), clean

    def started(self) -> None:
        """Another process is about to serve: from now on operations are of its era."""
        self.eras.append(Era())

    # -- looking -----------------------------------------------------------------------------------------------------

    def of(self, kind: type[Asked]) -> list[Asked]:
        return [each for each in self.operations if isinstance(each, kind)]

    def end(self, operation: Operation) -> float:
        """Nothing of the operation happens after this: its answer may be read, but not given, by a dead process."""
        return min(operation.answered, self.eras[operation.era].ended)

    def stands(self, earlier: int, later: int) -> bool:
        """Whether a lease of one era is still one in another, as long as its time is not over."""
        return self.rules.leases_durable or all(era.clean for era in self.eras[earlier:later])
