"""Workers: handlers of the jobs of queues, with leases that are renewed. See docs/guides/workers.md."""

from __future__ import annotations

from topics_client.workers.backoff import Backoff
from topics_client.workers.context import JobContext
from topics_client.workers.worker import Worker

__all__ = ["Backoff", "JobContext", "Worker"]
