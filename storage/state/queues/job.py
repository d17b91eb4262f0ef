"""One job of a queue that has been touched, and the states it can be in.

event      from                     to
claimed    ready                    leased
extended   leased                   leased, another deadline
released   leased                   ready, delayed (ready_at > 0), or dead (delivered too often)
expired    leased                   as released
dead       dead, leased (rejected)  dead, its move is open
Delete     any                      done: gone from here
(time)     delayed, at ready_at     ready

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from storage.state.queues.values import JobState

# The published states, then two for decisions that are not committed yet.
READY, LEASED, DELAYED, DEAD, CLAIMING, HELD = range(6)
SHOWN = (JobState.READY, JobState.LEASED, JobState.DELAYED, JobState.DEAD, JobState.LEASED, JobState.READY)
#: For each event, the states it may occur in and the state it leads to (a release with a wait: delayed; after too many
#: deliveries: dead).
TABLE: dict[str, tuple[frozenset[int], int]] = {
    "claimed": (frozenset({READY, CLAIMING}), LEASED),
    "extended": (frozenset({LEASED}), LEASED),
    "released": (frozenset({LEASED, DEAD}), READY),
    "expired": (frozenset({LEASED}), READY),
    "dead": (frozenset({READY, HELD, DEAD, LEASED}), DEAD),
}

LeaseEntry: TypeAlias = tuple[int, int, int, int, int, int]
"""[seq, lease_id, deadline, deliveries, ready_at, forgiven], as in a Lease frame."""


class Holder(Protocol):
    """Wants to know when a lease of its own has ended, for whatever reason."""

    def lease_ended(self, seq: int) -> None: ...


class Attempt:
    """The jobs given to one claim with an attempt_key: (seq, lease_id), and how many are still leased."""

    __slots__ = ("jobs", "key", "node", "remaining")

    def __init__(self, node: str, key: str, jobs: list[tuple[int, int]]) -> None:
        self.node = node
        self.key = key
        self.jobs = jobs
        self.remaining = len(jobs)


class Job:
    """One job. `deliveries` - `forgiven` counts against its limit; `size`: payload bytes, -1 unknown."""

    __slots__ = (
        "attempt",
        "busy",
        "deadline",
        "deliveries",
        "forgiven",
        "gone",
        "holder",
        "lease_id",
        "node",
        "ready_at",
        "reason",
        "seq",
        "size",
        "state",
    )

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.state = READY
        self.lease_id = 0
        self.deadline = 0
        self.deliveries = 0
        self.forgiven = 0
        self.ready_at = 0
        self.node = ""
        self.size = -1
        #: A frame about this lease is in flight: until it completes, the job neither expires nor changes its holder.
        self.busy = False
        #: Its record is lost or deleted; only the lease remains.
        self.gone = False
        self.attempt: Attempt | None = None
        self.holder: Holder | None = None
        self.reason: str | None = None

    def entry(self) -> LeaseEntry:
        return (self.seq, self.lease_id, self.deadline, self.deliveries, self.ready_at, self.forgiven)
