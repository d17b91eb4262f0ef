"""The members of share groups, and the topics that each subscribes to. Pure; time is an argument, in ms.

epoch in the heartbeat    member                     outcome
0                         any                        joins, possibly again, and is sent all its topics
-1                        any                        leaves
n > 0                     unknown                    UNKNOWN_MEMBER_ID: it joins again
n > 0                     has epoch n, or n + 1      stays; its epoch grows if its topics have changed
                          (an answer was lost)
n > 0                     has another epoch          FENCED_MEMBER_EPOCH: it joins again

Nothing of this is durable: after a restart, members join again. Every member is assigned all topics that it subscribes
to. Each job goes to the member that acquires it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from broker.kafka.errors import ErrorCode

#: The most members of all groups together, and the most topics of one member.
MAX_MEMBERS: Final = 10_000
MAX_TOPICS: Final = 1_000
HEARTBEAT_INTERVAL_MS: Final = 5_000
SESSION_TIMEOUT_MS: Final = 45_000


class Member:
    """One member of a group. `wanted`: names of its topics; `announced`: the topic ids that were sent to it."""

    __slots__ = ("announced", "client_host", "client_id", "due_ms", "epoch", "wanted")

    def __init__(self, due_ms: int) -> None:
        self.epoch = 1
        self.wanted: tuple[str, ...] = ()
        self.announced: tuple[bytes, ...] | None = None
        #: From its last heartbeat, for descriptions of the group.
        self.client_id = ""
        self.client_host = ""
        #: When its session expires.
        self.due_ms = due_ms

    def announce(self, topic_ids: Sequence[bytes]) -> bool:
        """Set its topics. Returns whether they must be sent to it."""
        ids = tuple(topic_ids)
        if ids == self.announced:
            return False
        self.epoch += self.announced is not None
        self.announced = ids
        return True


class Members:
    """The members of all groups, by (group id, member id)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: dict[tuple[str, str], Member] = {}
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def size(self, group_id: str) -> int:
        """The number of members of a group."""
        return self._sizes.get(group_id, 0)

    def groups(self) -> set[str]:
        """The groups that have members."""
        return {*self._sizes}

    def wanted(self, group_id: str) -> set[str]:
        """The topics that members of a group subscribe to."""
        return {name for _, member in self.of(group_id) for name in member.wanted}

    def of(self, group_id: str) -> list[tuple[str, Member]]:
        """The members of a group, ordered by id."""
        if group_id not in self._sizes:
            return []
        return sorted((member_id, member) for (group, member_id), member in self._members.items() if group == group_id)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        wanted: Sequence[str] | None,
        now_ms: int,
        session_ms: int = SESSION_TIMEOUT_MS,
    ) -> Member | ErrorCode:
        """See the table; `epoch` is not -1. `wanted` None: unchanged; `session_ms`: the session timeout."""
        key = (group_id, member_id)
        member = self._members.get(key)
        if epoch == 0:
            full = self.size(group_id) >= self._most or len(self._members) >= MAX_MEMBERS
            if member is None and full:
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            self._sizes[group_id] = self.size(group_id) + (member is None)
            member = self._members[key] = Member(0)
        elif member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        elif epoch not in (member.epoch, member.epoch - 1):
            return ErrorCode.FENCED_MEMBER_EPOCH
        elif epoch != member.epoch:
            member.announced = None  # it is announced again
        if wanted is not None:
            member.wanted = tuple(dict.fromkeys(wanted))
        member.due_ms = now_ms + session_ms
        return member

    def leave(self, group_id: str, member_id: str) -> bool:
        """Remove a member. False: it was not a member."""
        if self._members.pop((group_id, member_id), None) is None:
            return False
        self._sizes[group_id] -= 1
        if not self._sizes[group_id]:
            del self._sizes[group_id]
        return True

    def overdue(self, now_ms: int) -> Iterator[tuple[str, str]]:
        """The members whose session has expired."""
        return iter([key for key, member in self._members.items() if member.due_ms < now_ms])
