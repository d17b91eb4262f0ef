"""What a group is asked and what it answers: plain values, no behaviour but what they say of themselves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from broker.kafka.errors import ErrorCode

#: Whoever waits for an answer. A group hands it back and does nothing else with it.
Token: TypeAlias = Hashable
#: What a member can do, by name, in the order it likes them: (name, metadata that only clients understand).
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in ms. `max_members`: 0 = no limit. `max_bytes`: of what all members of a group say of themselves."""

    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    rebalance_delay_ms: int = 100
    max_members: int = 1_000
    max_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request. `member_id` "": a new one is asked for; `round_trip`: and has to be used in another join.

    `fresh_id`: the id a new member gets. `rebalance_ms`: how long the others wait for this one in a rebalance.
    """

    member_id: str
    fresh_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: Protocols
    round_trip: bool


@dataclass(slots=True, kw_only=True)
class Member:
    """One of a group. `expires_ms`: when its session ends, unless it waits for an answer here."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: Protocols
    expires_ms: int
    assignment: bytes = b""
    #: It has joined the barrier; it has synced in this generation.
    joined: bool = False
    synced: bool = False
    #: Its join, or its sync, waits.
    join: Token | None = None
    sync: Token | None = None

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer: it is there, and its session does not end meanwhile."""
        return self.join is not None or self.sync is not None

    def metadata(self, protocol: str) -> bytes:
        """Of a protocol that it has."""
        return next(metadata for name, metadata in self.protocols if name == protocol)


@dataclass(frozen=True, slots=True)
class Listed:
    """A member as its leader is shown it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """`members`: for the leader only, who assigns."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    #: None where there is an error.
    protocol_type: str | None = None
    protocol: str = ""
    leader: str = ""
    members: Sequence[Listed] = field(default=())


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    token: Token
    error: ErrorCode
    assignment: bytes = b""
    #: What the group goes by; None where there is an error.
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """What has to be durable before anything that follows is told to anybody. `empty`: nobody is in it."""

    generation: int
    protocol_type: str
    empty: bool


#: In the order in which they have to be carried out.
Output: TypeAlias = JoinAnswer | SyncAnswer | Save
