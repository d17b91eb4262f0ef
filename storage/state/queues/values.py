"""Arguments and results of queue operations, and counters of them. Times are ms since the epoch, engine time."""

from __future__ import annotations

import enum

import msgspec


class JobState(enum.StrEnum):
    """The state of a job that is not acked. `dead`: on its way to the dead letter topic."""

    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    DEAD = "dead"


class Settled(msgspec.Struct, kw_only=True):
    """The outcome of an ack, nack or extend: the jobs, and the skipped jobs whose lease is not (or no longer) the
    caller's. `deadlines` by seq, for an extend."""

    topic: str
    done: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[int, int] = {}


class JobView(msgspec.Struct, kw_only=True):
    """A job in a listing. `deadline` of a lease, `ready_at` of a delay."""

    seq: int
    state: JobState
    deliveries: int
    node: str | None = None
    deadline: int | None = None
    ready_at: int | None = None


class Redriven(msgspec.Struct, kw_only=True):
    """What a redrive moved (or, in a dry run, would move), and how many jobs remain."""

    moved: int
    remaining: int


class QueueStats:
    """Counters. `claims` that got jobs; `redelivered`: jobs among the `claimed` that had been delivered before;
    `unreadable`: jobs whose record failed its check."""

    __slots__ = (
        "acked", "claimed", "claims", "expired", "extended", "moved", "nacked", "redelivered", "rejected", "unreadable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.claims = 0
        self.claimed = 0
        self.redelivered = 0
        self.acked = 0
        self.nacked = 0
        self.rejected = 0
        self.extended = 0
        self.expired = 0
        self.moved = 0
        self.unreadable = 0
