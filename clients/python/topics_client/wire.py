"""A request to send and what came back of it: plain values between the calls and whatever moves bytes."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


class Replay(enum.Enum):
    """Whether a request may be sent again when it is unknown what became of the first."""

    #: Twice has the effect of once: reads, settings, appends with an idempotency key.
    SAFE = "safe"
    #: Only when it is certain that the first changed nothing.
    IF_UNTOUCHED = "if untouched"
    #: The caller wants the answer of this moment.
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. `target` is path and query, already escaped; `wait_s` is how long the broker may hold it."""

    method: str
    target: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait_s: float = 0.0
    replay: Replay = Replay.SAFE
    #: What is left of the caller's deadline, in seconds; None: there is none.
    limit_s: float | None = None

    def at_most(self, seconds: float) -> float:
        """So long, or what is left of the deadline."""
        return seconds if self.limit_s is None else min(seconds, self.limit_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A complete HTTP answer; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    """There was no complete answer. `sent` is False only when the broker certainly saw nothing of the request."""

    reason: str
    sent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request, and how its answer (2xx only) is read. `parse` raises msgspec.DecodeError on what it cannot read.

    `check` may raise a TopicsError about the value; it is told whether an earlier try may have been carried out.
    """

    request: Request
    parse: Callable[[Reply], T]
    check: Callable[[T, bool], None] | None = None
