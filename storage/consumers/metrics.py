"""Metrics of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from storage.records import split
from storage.state.consumers.progress import unread
from storage.telemetry import MAX_TOPIC_SERIES, METRICS, Family, Sample

if TYPE_CHECKING:
    from storage.consumers.consumers import Consumers
    from storage.consumers.reclaim import Reclaim
    from storage.log import Logs
    from storage.state import Topic
    from storage.state.consumers import Consumer


def _foreign_parts(logs: Logs) -> Iterator[Topic]:
    """The partitions of topics of other cells."""
    catalog = logs.catalog
    return (topic for topic in catalog.topics.values() if topic.partition and catalog.is_foreign(topic.root_id))


def collect_consumers(logs: Logs, consumers: Consumers, reclaim: Reclaim) -> list[Family]:
    """Metric families of consumers; none before the engine is ready."""
    if not logs.ready:
        return []
    shown: list[tuple[Topic, Consumer]] = list(
        islice(
            (
                (partition, each)
                for topic in chain(logs.catalog.named("", ""), _foreign_parts(logs))
                for partition in (topic, *topic.others)
                for each in partition.log.consumers.named()
            ),
            MAX_TOPIC_SERIES,
        )
    )
    labels = [
        (("topic", split(topic.name)[0]), ("partition", str(topic.partition)), ("consumer", each.name))
        for topic, each in shown
    ]

    def per_consumer(name: str, values: list[int]) -> Family:
        return METRICS.family(name, map(Sample, labels, values))

    return [
        METRICS.whole("topics_consumers", logs.catalog.usage.consumers),
        per_consumer("topics_consumer_lag", [topic.log.head - each.cursor_seq for topic, each in shown]),
        per_consumer("topics_consumer_unread", [unread(topic.log, each.cursor_seq) for topic, each in shown]),
        per_consumer("topics_consumer_unpersisted", [each.unpersisted for _, each in shown]),
        *_totals(consumers),
        METRICS.whole("topics_consumed_records", reclaim.records),
        METRICS.whole("topics_consumed_failures", reclaim.failures),
    ]


def _totals(consumers: Consumers) -> list[Family]:
    counters, attempts = consumers.counters, consumers.attempts
    return [
        METRICS.whole("topics_consumer_cursors_persisted", counters.persisted),
        METRICS.whole("topics_consumer_persist_failures", counters.failed),
        METRICS.whole("topics_consumer_read_waits", counters.waits),
        METRICS.whole("topics_consumer_answers", len(attempts)),
        METRICS.whole("topics_consumer_answers_bytes", attempts.bytes),
        METRICS.whole("topics_consumer_answers_repeated", attempts.repeated),
        METRICS.whole("topics_consumer_answers_forgotten", attempts.forgotten),
    ]
