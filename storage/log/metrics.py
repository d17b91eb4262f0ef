"""Metrics of the logs and of the topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import attrgetter

from storage.log.logs import Logs
from storage.log.writer import Histogram, Shard, WalStats
from storage.state import Log, Topic
from storage.telemetry import MAX_TOPIC_SERIES, METRICS, Family, HistogramSample, Sample


def collect_logs(logs: Logs) -> list[Family]:
    """Metric families of the write-ahead log, of the engine as a whole, and of topics."""
    return [*_wal(logs), *_engine(logs), *logs.catalog.usage.traffic.families(), *_topics(logs)]


def _histogram(labels: tuple[tuple[str, str], ...], value: Histogram) -> HistogramSample:
    total = 0
    buckets: list[tuple[float, int]] = []
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramSample(labels, tuple(buckets), value.sum)


def _wal(logs: Logs) -> list[Family]:
    per_shard = [((("shard", str(shard.index)),), shard, shard.log.stats) for shard in logs.shards]

    def numbers(name: str, value: Callable[[Shard, WalStats], int]) -> Family:
        return METRICS.family(name, [Sample(labels, value(shard, stats)) for labels, shard, stats in per_shard])

    def histograms(name: str, value: Callable[[WalStats], Histogram]) -> Family:
        return METRICS.family(name, [_histogram(labels, value(stats)) for labels, _, stats in per_shard])

    return [
        numbers("topics_wal_frames", lambda _, stats: stats.frames),
        numbers("topics_wal_batches", lambda _, stats: stats.groups),
        numbers("topics_wal_fsyncs", lambda _, stats: stats.fsyncs),
        numbers("topics_wal_bytes", lambda _, stats: stats.bytes),
        numbers("topics_wal_rotations", lambda _, stats: stats.rotations),
        numbers("topics_wal_sync_points", lambda _, stats: stats.sync_points),
        numbers("topics_wal_storage_full", lambda _, stats: stats.storage_full),
        numbers("topics_wal_queue_frames", lambda shard, _: shard.queued_frames),
        numbers("topics_wal_queue_frames_peak", lambda shard, _: shard.peak_frames),
        numbers("topics_wal_full", lambda shard, _: int(shard.log.full)),
        numbers("topics_wal_failed", lambda shard, _: int(shard.log.failed is not None)),
        histograms("topics_wal_fsync_seconds", lambda stats: stats.fsync_seconds),
        histograms("topics_wal_group_size", lambda stats: stats.group_size),
    ]


def _engine(logs: Logs) -> list[Family]:
    usage, failures = logs.catalog.usage, logs.runtime.supervisor.failures
    return [
        METRICS.whole("topics_topics", logs.catalog.size),
        METRICS.whole("topics_live_bytes", usage.bytes),
        METRICS.whole("topics_ephemeral_bytes", usage.ephemeral_bytes),
        METRICS.whole("topics_idempotency_keys", usage.keys),
        METRICS.whole("topics_producers", usage.producers),
        METRICS.whole("topics_producers_forgotten", usage.producers_forgotten),
        METRICS.whole("topics_states", len(logs.catalog.states.table)),
        METRICS.whole("topics_tail_cache_bytes", logs.cache.bytes),
        METRICS.whole("topics_corrupt_reads", usage.corrupt_reads),
        METRICS.whole("topics_unreadable_reads", usage.unreadable_reads),
        METRICS.family(
            "topics_worker_failures", [Sample((("worker", name),), count) for name, count in failures.items()]
        ),
    ]


def _topics(logs: Logs) -> list[Family]:
    made: dict[str, list[Topic]] = {}
    for topic in logs.catalog.topics.values():
        if topic.provisional or (topic.partition and not logs.catalog.is_foreign(topic.root_id)):
            continue
        # Of a topic of another cell: its partitions that are here.
        made.setdefault(topic.title, []).extend((topic, *topic.others))
    shown = list(islice(made.values(), MAX_TOPIC_SERIES))
    labels = [(("topic", parts[0].title),) for parts in shown]

    def gauge(name: str, values: list[int]) -> Family:
        return METRICS.family(name, map(Sample, labels, values))

    return [
        gauge("topics_topic_head_seq", [_sum(parts, _head) for parts in shown]),
        gauge("topics_topic_earliest_seq", [_sum(parts, _earliest) for parts in shown]),
        gauge("topics_topic_records", [_sum(parts, _count) for parts in shown]),
        gauge("topics_topic_bytes", [_sum(parts, _bytes) for parts in shown]),
    ]


def _sum(parts: Sequence[Topic], figure: Callable[[Log], int]) -> int:
    """Over all partitions, so that a rate of the heads counts all writes."""
    return sum(figure(part.log) for part in parts)


_head, _count, _bytes = attrgetter("head"), attrgetter("count"), attrgetter("bytes")


def _earliest(log: Log) -> int:
    return log.earliest_seq
