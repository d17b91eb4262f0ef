"""Arguments and results of queue operations. Times are ms since the epoch, engine time."""

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
