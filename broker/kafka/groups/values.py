"""Requests to a group and its answers: plain values."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from broker.kafka.errors import ErrorCode

#: Identifies a waiting request. A group only returns it.
Token: TypeAlias = Hashable
#: The protocols of a member in its order of preference: (name, opaque metadata).
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times in ms. `max_members`: 0 = no limit. `max_bytes`: the most bytes of metadata of all members of a group."""

    min_session_ms: int = 6_000
    max_session_ms: int = 1_800_000
    rebalance_delay_ms: int = 100
    max_members: int = 1_000
    max_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request. `member_id` "": a new member. `round_trip`: it gets an id and must join again with it.

    `fresh_id`: the id for a new member. `rebalance_ms`: how long others wait for this member in a rebalance.
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
    """One member of a group. `expires_ms`: when its session expires, unless it waits for an answer."""

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
    #: Its waiting join; its waiting sync.
    join: Token | None = None
    sync: Token | None = None

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer. Then it is connected, and its session does not expire."""
        return self.join is not None or self.sync is not None

    def metadata(self, protocol: str) -> bytes:
        """The metadata of a protocol that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)


@dataclass(frozen=True, slots=True)
class Listed:
    """A member, in the list for the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """`members`: only for the leader, which assigns partitions."""

    token: Token
    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    #: None with an error.
    protocol_type: str | None = None
    protocol: str = ""
    leader: str = ""
    members: Sequence[Listed] = field(default=())


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    token: Token
    error: ErrorCode
    assignment: bytes = b""
    #: The protocol of the group; None with an error.
    protocol_type: str | None = None
    protocol: str | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """A record that must be durable before later outputs are sent. `empty`: the group has no members."""

    generation: int
    protocol_type: str
    empty: bool


#: Outputs must be processed in order.
Output: TypeAlias = JoinAnswer | SyncAnswer | Save
