"""Metrics of queues."""

from __future__ import annotations

from typing import Final

from storage.log import Logs
from storage.queues.queues import Queues
from storage.telemetry import MAX_TOPIC_SERIES, METRICS, Family, Sample

#: Of each queue: (metric, field of QueueFigures).
_FIGURES: Final = (
    ("topics_queue_ready", "ready"),
    ("topics_queue_in_flight", "in_flight"),
    ("topics_queue_delayed", "delayed"),
    ("topics_queue_dead_pending", "dead_pending"),
    ("topics_queue_waiting_claims", "waiting_claims"),
    ("topics_queue_paused", "paused"),
    ("topics_dead_lettered", "dead_lettered"),
    ("topics_jobs_lost", "lost"),
)


def collect_queues(logs: Logs, queues: Queues) -> list[Family]:
    """Metric families of queues; none before the engine is ready."""
    if not logs.ready:
        return []
    stats = queues.stats
    found = [topic for topic in logs.catalog.topics.values() if topic.log.queue is not None and not topic.provisional]
    shown = [((("topic", topic.name),), queues.figures_of(topic)) for topic in found[:MAX_TOPIC_SERIES]]
    return [
        METRICS.whole("topics_claims", stats.claims),
        METRICS.whole("topics_claimed_jobs", stats.claimed),
        METRICS.whole("topics_redelivered_jobs", stats.redelivered),
        METRICS.whole("topics_acks", stats.acked),
        METRICS.whole("topics_nacks", stats.nacked),
        METRICS.whole("topics_rejects", stats.rejected),
        METRICS.whole("topics_lease_extensions", stats.extended),
        METRICS.whole("topics_lease_expiries", stats.expired),
        METRICS.whole("topics_jobs_unreadable", stats.unreadable),
        *(
            METRICS.family(name, [Sample(labels, int(getattr(figures, field))) for labels, figures in shown])
            for name, field in _FIGURES
        ),
    ]
