"""Jobs of a queue and their leases, as recorded in the log. Pure."""

from storage.state.queues import section
from storage.state.queues.leases import (
    DEAD,
    DELAYED,
    LEASED,
    READY,
    SHOWN,
    Holder,
    Job,
    LeaseBatch,
    LeaseEntry,
    LeaseTable,
    lease_entries,
)
from storage.state.queues.moves import Move, Moves
from storage.state.queues.policy import backoff_ms, limits_of
from storage.state.queues.section import MovesSection, QueueSection, lease_frames
from storage.state.queues.values import JobState, JobView, QueueStats, Redriven, Settled

__all__ = [
    "DEAD",
    "DELAYED",
    "LEASED",
    "READY",
    "SHOWN",
    "Holder",
    "Job",
    "JobState",
    "JobView",
    "LeaseBatch",
    "LeaseEntry",
    "LeaseTable",
    "Move",
    "Moves",
    "MovesSection",
    "QueueSection",
    "QueueStats",
    "Redriven",
    "Settled",
    "backoff_ms",
    "lease_entries",
    "lease_frames",
    "limits_of",
    "section",
]
