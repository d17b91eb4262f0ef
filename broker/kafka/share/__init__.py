"""Share groups (KIP-932): members acquire jobs of queues, each job by one member."""

from typing import TYPE_CHECKING

from broker.kafka.share.acks import InvalidBatches, plan
from broker.kafka.share.members import HEARTBEAT_INTERVAL_MS, MAX_TOPICS, SESSION_TIMEOUT_MS
from broker.kafka.share.sessions import FIRST_EPOCH, Session, Step

if TYPE_CHECKING:
    from broker.kafka.share.shares import Shares

__all__ = [
    "FIRST_EPOCH",
    "HEARTBEAT_INTERVAL_MS",
    "MAX_TOPICS",
    "SESSION_TIMEOUT_MS",
    "InvalidBatches",
    "Session",
    "Shares",
    "Step",
    "plan",
]
