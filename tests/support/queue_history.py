"""The requests to a queue and the answers, with times: the history that `queue_check` checks.

Times are ms since the epoch of a clock that only moves forward: the wall clock when the history began, plus the
monotonic time since. The broker runs on the same machine and its engine time follows the same wall clock, so deadlines
(engine time, exact) may be compared with them, with a tolerance of `Rules.slack_ms`.

An "era" is the life of one broker process. A client notes an operation before it sends the request. If no answer comes,
the outcome is unknown: the operation happened before its process ended, or never.
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
    """The settings of the queue that matter here. `max_deliveries` 0 = nothing is dead-lettered. `slack_ms`: how much a
    time of the history and one of the engine may differ."""

    leases_durable: bool
    max_deliveries: int = 0
    retry_backoff_ms: int = 0
    retry_backoff_max_ms: int = 3_600_000
    slack_ms: float = SLACK_MS

    def least_wait_ms(self, counted: int) -> float:
        """The least time for which a job with this many deliveries that count is held back. Jitter removes up to half,
        and rounding a millisecond."""
        if not self.retry_backoff_ms or counted < 1:
            return 0
        return min(self.retry_backoff_max_ms, self.retry_backoff_ms << (counted - 1)) / 2 - 1


class Operation(msgspec.Struct, kw_only=True, eq=False):
    """One request. `answered` is infinite while the outcome is unknown."""

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
        """Whether it happened, or may have happened."""
        return self.outcome is not Outcome.FAILED


class Produce(Operation):
    """An atomic append of jobs, whose data contain their names. `first_seq` is set once it is known."""

    names: tuple[str, ...]
    first_seq: int = 0
    delay_ms: int = 0


class Lease(NamedTuple):
    """One job in the answer to a claim. `name`: from the data of the job."""

    seq: int
    token: str
    deadline: int
    deliveries: int
    name: str


class Stream(Operation):
    """A stream of pushed jobs, at most `max` at a time. `answered`: when it had ended for certain. `outcome` stays
    unknown, because the last pushed jobs may not have arrived."""

    max: int
    lease_ms: int


class Claim(Operation):
    """`leases`: in the order of the answer. `lease_ms` is always set, so deadline - lease_ms is the instant of the
    lease's start. Each job that a stream pushes is a claim of its own, made when the stream was opened."""

    max: int
    lease_ms: int
    key: str | None = None
    leases: tuple[Lease, ...] = ()
    stream: Stream | None = None


class Act(enum.Enum):
    """LEAVE: the stream of the jobs ended, so the broker gives them back at once."""

    ACK = "ack"
    NACK = "nack"
    EXTEND = "extend"
    LEAVE = "leave"


class Settle(Operation):
    """An ack, nack or extend. `skipped`, and for an extend `deadlines`, are from the answer. A token may be None: not
    given.

    `delay_ms` None: the queue's backoff. `strict`: all or nothing; `refused`: the seqs for which all were refused.
    `cut`, of LEAVE: the connection broke. Only a process that was asked to stop gives back what it held, possibly
    before the client had read to the end.
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
    """A pause of the queue, or its resumption if `paused` is False."""

    paused: bool


class Purge(Operation):
    """A purge of all jobs in these states. `purged`: from the answer."""

    states: tuple[str, ...]
    purged: int = 0


class Redrive(Operation):
    """A redrive of dead letters into the queue. `moved`: from the answer."""

    max: int
    moved: int = 0


class Dead(NamedTuple):
    """A record of the dead letter topic: which job it was, its deliveries, and the name in its data."""

    source_seq: int
    deliveries: int
    name: str


class Observation(Operation):
    """All jobs of the queue by seq with their names, whatever their state, and the whole dead letter topic. The queue
    is read before and after it, so that no moving job is missed.

    `final`: nobody changes the queue any more.
    """

    present: dict[int, str] = {}
    dead: tuple[Dead, ...] = ()
    paused: bool | None = None
    final: bool = False


class Era(msgspec.Struct):
    """`ended`: when the process was gone for certain. `clean`: it was asked to stop at `asked`, and stopped."""

    ended: float = math.inf
    clean: bool = False
    asked: float = math.inf


class Clock:
    """ms since the epoch. Never goes back."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def __call__(self) -> float:
        return 1000.0 * (self._offset + time.monotonic())


Asked = TypeVar("Asked", bound=Operation)


class History:
    """All operations of one queue, in the order in which they were requested (for a stream's jobs: were pushed)."""

    def __init__(self, rules: Rules, clock: Clock | None = None) -> None:
        self.rules = rules
        self.eras = [Era()]
        self.operations: list[Operation] = []
        self._now = clock or Clock()

    # -- recording ---------------------------------------------------------------------------------------------------

    def begin(self, operation: Asked) -> Asked:
        """Called before it is sent."""
        operation.era = len(self.eras) - 1
        operation.invoked = self._now()
        self.operations.append(operation)
        return operation

    def left(self, stream: Stream, leases: Iterable[Lease], *, grace_ms: float, cut: bool) -> None:
        """A stream that pushed these leases has ended. The broker knows that within `grace_ms`."""
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
        """It was answered, and its content has been entered."""
        operation.answered, operation.outcome = self._now(), Outcome.OK

    def failed(self, operation: Operation) -> None:
        """It certainly had no effect."""
        operation.answered, operation.outcome = self._now(), Outcome.FAILED

    def stopping(self) -> None:
        """Called before the process is asked to stop."""
        self.eras[-1].asked = self._now()

    def ended(self, *, clean: bool) -> None:
        """The process is gone. Until `started`, all requests fail."""
        self.eras[-1].ended, self.eras[-1].clean = self._now(), clean

    def started(self) -> None:
        """Called before another process serves: from now on operations belong to its era."""
        self.eras.append(Era())

    # -- looking -----------------------------------------------------------------------------------------------------

    def of(self, kind: type[Asked]) -> list[Asked]:
        return [each for each in self.operations if isinstance(each, kind)]

    def end(self, operation: Operation) -> float:
        """Nothing of the operation happens after this time. An answer of a dead process may be read later, but not
        made."""
        return min(operation.answered, self.eras[operation.era].ended)

    def stands(self, earlier: int, later: int) -> bool:
        """Whether a lease of one era is still valid in another, if its time is not over."""
        return self.rules.leases_durable or all(era.clean for era in self.eras[earlier:later])
