"""Counts of events of jobs since the start, over all queues."""

from __future__ import annotations


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
