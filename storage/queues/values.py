"""What goes into queue operations and what comes out: plain values. Times are ms since the epoch, engine time."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from storage.records import StoredRecord


class JobState(enum.StrEnum):
    """Where a job that is not acked stands. `dead`: on its way to the dead letter topic."""

    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    DEAD = "dead"


class ClaimedJob(NamedTuple):
    """One job handed out. `lease_id` is the token of this lease, not 0; expired iff now > deadline."""

    record: StoredRecord
    lease_id: int
    deadline: int
    deliveries: int


class Settled(msgspec.Struct, kw_only=True):
    """What an ack, nack or extend did: to which jobs, and which it passed over because the lease is not (or no longer)
    the caller's. `deadlines` by seq, of an extend."""

    topic: str
    done: list[int]
    skipped: list[int]
    ready: int
    in_flight: int
    deadlines: dict[int, int] = {}


class JobView(msgspec.Struct, kw_only=True):
    """A job as a listing shows it. `deadline` of a lease, `ready_at` of a delay."""

    seq: int
    state: JobState
    deliveries: int
    node: str | None = None
    deadline: int | None = None
    ready_at: int | None = None


class Redriven(msgspec.Struct, kw_only=True):
    """What a redrive moved (or, dry run, would move), and how many more there are."""

    moved: int
    remaining: int
