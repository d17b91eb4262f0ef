"""Lease queues: the jobs of a queue are the records of its topic.

`storage.state.queues` has the pure state machine; this package runs it.

Source: docs/reference/api.md#queues.
"""

from typing import TYPE_CHECKING

from storage.queues.dead_letter_rules import DeadLetterRules
from storage.queues.dead_meta import PREFIX
from storage.queues.lease_queue import Claimed, ClaimedBatch, ClaimedJob
from storage.queues.metrics import collect_queues
from storage.queues.queues import MAX_JOBS, MAX_WAIT_MS, Queues

if TYPE_CHECKING:
    from storage.queues.work import Worker

__all__ = [
    "MAX_JOBS",
    "MAX_WAIT_MS",
    "PREFIX",
    "Claimed",
    "ClaimedBatch",
    "ClaimedJob",
    "DeadLetterRules",
    "Queues",
    "Worker",
    "collect_queues",
]
