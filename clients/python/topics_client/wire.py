"""A request to send and its answer: plain values between the calls and the code that sends them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


class Replay(enum.Enum):
    """Whether a request may be sent again when the outcome of the first is unknown."""

    #: A repetition has no further effect: reads, settings, appends with an idempotency key.
    SAFE = "safe"
    #: Only if it is certain that the first changed nothing.
    IF_UNTOUCHED = "if untouched"
    #: The caller wants an answer for this moment.
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
    #: The rest of the caller's deadline, in seconds. None: there is none.
    limit_s: float | None = None

    def at_most(self, seconds: float) -> float:
        """This long, or the rest of the deadline if that is shorter."""
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
    """A request, and how to read its answer (2xx only). `parse` raises msgspec.DecodeError for an answer that it cannot
    read.

    `check` may raise a TopicsError about the value. It is told whether an earlier attempt may have been carried out.
    """

    request: Request
    parse: Callable[[Reply], T]
    check: Callable[[T, bool], None] | None = None
