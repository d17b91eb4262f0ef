"""What the engine counts about queues. See `storage.metrics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.metrics import MAX_TOPIC_SERIES, Family, Sample

if TYPE_CHECKING:
    from storage.engine import Engine

#: Of each queue: (metric, kind, field of QueueFigures, help).
_FIGURES: Final = (
    ("topics_queue_ready", "gauge", "ready", "Jobs that can be claimed"),
    ("topics_queue_in_flight", "gauge", "in_flight", "Jobs that are leased"),
    ("topics_queue_delayed", "gauge", "delayed", "Jobs that are not due yet"),
    ("topics_queue_dead_pending", "gauge", "dead_pending", "Jobs on their way to the dead letter topic"),
    ("topics_queue_waiting_claims", "gauge", "waiting_claims", "Claims that wait for jobs"),
    ("topics_queue_paused", "gauge", "paused", "1 while it is paused"),
    ("topics_dead_lettered", "counter", "dead_lettered", "Jobs moved to the dead letter topic, over restarts"),
    ("topics_jobs_lost", "counter", "lost", "Jobs that a cap or ttl took before they were acked, over restarts"),
)


def collect_queues(engine: Engine) -> list[Family]:
    """Families about queues; none before the engine is ready."""
    if not engine.ready:
        return []
    stats = engine.queues.stats
    counters = [
        ("topics_claims", "Claims that were given jobs.", stats.claims),
        ("topics_claimed_jobs", "Jobs they were given.", stats.claimed),
        ("topics_acks", "Jobs acked.", stats.acked),
        ("topics_nacks", "Jobs nacked.", stats.nacked),
        ("topics_lease_extensions", "Leases extended.", stats.extended),
        ("topics_lease_expiries", "Leases that ran out.", stats.expired),
        ("topics_jobs_unreadable", "Jobs not handed out because their record failed its check.", stats.unreadable),
    ]
    queues = [
        topic for topic in engine.catalog.topics.values() if topic.log.queue is not None and not topic.provisional
    ]
    shown = [((("topic", topic.name),), engine.queues.figures_of(topic)) for topic in queues[:MAX_TOPIC_SERIES]]
    return [
        *(Family(name, "counter", help, [Sample((), value)]) for name, help, value in counters),
        *(
            Family(
                name,
                kind,
                f"{help} (the first {MAX_TOPIC_SERIES} queues).",
                [Sample(labels, int(getattr(figures, field))) for labels, figures in shown],
            )
            for name, kind, field, help in _FIGURES
        ),
    ]
