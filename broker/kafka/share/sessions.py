"""Share sessions: the queues that a member fetches from, and the order of its requests. Pure.

epoch in the request       session             outcome
0                          any                 a new session with the queues of the request; its next epoch is 1
-1                         exists              its last request
-1                         does not exist      SHARE_SESSION_NOT_FOUND
n > 0                      next epoch is n     continues; its next epoch is n + 1, or 1 after 2^31 - 1
n > 0                      has another one     INVALID_SHARE_SESSION_EPOCH
n > 0, or below -1         does not exist      SHARE_SESSION_NOT_FOUND

The leases of a member outlive its session: it may acknowledge them in the next one, while they are valid.
"""

from __future__ import annotations

import enum
from typing import Final

from broker.kafka.errors import ErrorCode

FIRST_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
#: The most queues of a session.
MAX_QUEUES: Final = 1_000
_MAX_EPOCH: Final = (1 << 31) - 1


class Step(enum.Enum):
    """The effect of a request on its session."""

    OPEN = enum.auto()
    GO_ON = enum.auto()
    CLOSE = enum.auto()


class Holding:
    """The leases of a member in one queue. It is their `Holder`, which is called when they end."""

    __slots__ = ("leases",)

    def __init__(self) -> None:
        #: Lease ids by seq.
        self.leases: dict[int, int] = {}

    def lease_ended(self, seq: int) -> None:
        """It was acked, nacked or rejected, has expired, or its record or topic was deleted."""
        self.leases.pop(seq, None)


class Session:
    """The session of one member. `queues`: topic ids, in the order of the next fetch. `held`: leases by topic id."""

    __slots__ = ("closed", "group_id", "held", "member_id", "next_epoch", "queues")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.next_epoch = FIRST_EPOCH + 1
        self.queues: list[bytes] = []
        self.held: dict[bytes, Holding] = {}
        #: It ended, possibly while a request was waiting: that releases the jobs that it acquires.
        self.closed = False

    def holding(self, topic_id: bytes) -> Holding:
        found = self.held.get(topic_id)
        if found is None:
            found = self.held[topic_id] = Holding()
        return found

    def add(self, topic_id: bytes) -> bool:
        """Add a queue. False: the session has too many."""
        if topic_id in self.queues:
            return True
        if len(self.queues) >= MAX_QUEUES:
            return False
        self.queues.append(topic_id)
        return True

    def forget(self, topic_id: bytes) -> None:
        """Remove a queue. Its leases remain."""
        if topic_id in self.queues:
            self.queues.remove(topic_id)

    def rotate(self) -> None:
        """Move the first queue to the end."""
        self.queues.append(self.queues.pop(0))


def advance(session: Session | None, epoch: int) -> Step | ErrorCode:
    """Decide by the table, and advance the session to its next epoch."""
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
