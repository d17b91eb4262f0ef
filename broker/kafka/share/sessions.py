"""Share sessions: which queues a member takes jobs from, and that its requests come one after the other. Pure.

epoch in the request       session            outcome
0                          any                a new session, which begins with what the request names; next is 1
-1                         there              the last request of it
-1                         not there          SHARE_SESSION_NOT_FOUND
n > 0                      next is n          goes on; next is n + 1, behind 2^31 - 1 comes 1
n > 0                      next is another    INVALID_SHARE_SESSION_EPOCH
n > 0, or below -1         not there          SHARE_SESSION_NOT_FOUND

What a member holds outlives its session: an acknowledgement in the next one counts, as long as the lease stands.
"""

from __future__ import annotations

import enum
from typing import Final

from broker.kafka.errors import ErrorCode

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
#: Queues of one session.
MAX_QUEUES: Final = 1_000
_MAX_EPOCH: Final = (1 << 31) - 1


class Step(enum.Enum):
    """How a request relates to its session."""

    OPEN = enum.auto()
    GO_ON = enum.auto()
    CLOSE = enum.auto()


class Holding:
    """A member's leases in one queue; as their `Holder` it learns when they end."""

    __slots__ = ("leases",)

    def __init__(self) -> None:
        #: Token by seq.
        self.leases: dict[int, int] = {}

    def lease_ended(self, seq: int) -> None:
        """It was settled, has expired, or its record or topic is deleted."""
        self.leases.pop(seq, None)


class Session:
    """The session of one member. `queues`: topic ids in the order of the next fetch; `held`: by topic id."""

    __slots__ = ("closed", "group_id", "held", "member_id", "next_epoch", "queues")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.next_epoch = FIRST_EPOCH + 1
        self.queues: list[bytes] = []
        self.held: dict[bytes, Holding] = {}
        #: It ended while one of its requests was waiting: jobs acquired by that are released.
        self.closed = False

    def holding(self, topic_id: bytes) -> Holding:
        found = self.held.get(topic_id)
        if found is None:
            found = self.held[topic_id] = Holding()
        return found

    def add(self, topic_id: bytes) -> bool:
        """False: it has as many as it may have."""
        if topic_id in self.queues:
            return True
        if len(self.queues) >= MAX_QUEUES:
            return False
        self.queues.append(topic_id)
        return True

    def forget(self, topic_id: bytes) -> None:
        """The queue is no longer fetched from; its leases stand."""
        if topic_id in self.queues:
            self.queues.remove(topic_id)

    def rotate(self) -> None:
        """The first queue becomes the last one."""
        self.queues.append(self.queues.pop(0))


def judge(session: Session | None, epoch: int) -> Step | ErrorCode:
    """See the table; the session advances."""
    if epoch == FIRST_EPOCH:
        return Step.OPEN
    if session is None:
        return ErrorCode.SHARE_SESSION_NOT_FOUND
    if epoch == FINAL_EPOCH:
        return Step.CLOSE
    if epoch != session.next_epoch:
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    session.next_epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
    return Step.GO_ON
