"""A snapshot of what the engine counts: neutral values, for whoever renders them. Read on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.wal.stats import Histogram

if TYPE_CHECKING:
    from storage.engine import Engine


class Sample(NamedTuple):
    """One value of a family under its labels."""

    labels: tuple[tuple[str, str], ...]
    value: float


class HistogramSample(NamedTuple):
    """Cumulative counts by upper bound (the last one is +Inf), and the sum."""

    labels: tuple[tuple[str, str], ...]
    buckets: tuple[tuple[float, int], ...]
    sum: float


class Family(NamedTuple):
    """A metric: kind is counter, gauge or histogram. Counter names come without `_total`."""

    name: str
    kind: str
    help: str
    samples: list[Sample | HistogramSample]


MAX_TOPIC_SERIES = 1000


def collect(engine: Engine) -> list[Family]:
    """All families of an engine; before it is ready, what recovery says."""
    traffic = engine.catalog.usage.traffic
    return [*_wal(engine), *_recovery(engine), *_engine(engine), *traffic.families(), *_topics(engine)]


def _histogram(labels: tuple[tuple[str, str], ...], value: Histogram) -> HistogramSample:
    total = 0
    buckets: list[tuple[float, int]] = []
    for bound, count in zip((*value.bounds, float("inf")), value.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramSample(labels, tuple(buckets), value.sum)


def _wal(engine: Engine) -> list[Family]:
    per_shard = [((("shard", str(shard.index)),), shard, shard.log.stats) for shard in engine.shards]

    def family(name: str, kind: str, help: str, pick: str) -> Family:
        return Family(name, kind, help, [Sample(labels, getattr(stats, pick)) for labels, _, stats in per_shard])

    return [
        family("topics_wal_frames", "counter", "Frames written to the log.", "frames"),
        family("topics_wal_batches", "counter", "Group commits.", "groups"),
        family("topics_wal_fsyncs", "counter", "Successful fdatasyncs of the log.", "fsyncs"),
        family("topics_wal_bytes", "counter", "Bytes written to the log.", "bytes"),
        family("topics_wal_rotations", "counter", "Log files finished.", "rotations"),
        family("topics_wal_sync_points", "counter", "SyncPoint frames written.", "sync_points"),
        family("topics_wal_storage_full", "counter", "Writes refused because the disk was full.", "storage_full"),
        Family(
            "topics_wal_queue_frames", "gauge", "Frames waiting in the queue.",
            [Sample(labels, shard.queued_frames) for labels, shard, _ in per_shard],
        ),
        Family(
            "topics_wal_queue_frames_peak", "gauge", "Most frames that ever waited in the queue.",
            [Sample(labels, shard.peak_frames) for labels, shard, _ in per_shard],
        ),
        Family(
            "topics_wal_full", "gauge", "1 while the disk is full for this shard.",
            [Sample(labels, int(shard.log.full)) for labels, shard, _ in per_shard],
        ),
        Family(
            "topics_wal_failed", "gauge", "1 after the shard has stopped.",
            [Sample(labels, int(shard.log.failed is not None)) for labels, shard, _ in per_shard],
        ),
        Family(
            "topics_wal_fsync_seconds", "histogram", "Time an fdatasync of the log took.",
            [_histogram(labels, stats.fsync_seconds) for labels, _, stats in per_shard],
        ),
        Family(
            "topics_wal_group_size", "histogram", "Writes in a group commit.",
            [_histogram(labels, stats.group_size) for labels, _, stats in per_shard],
        ),
    ]  # fmt: skip


def _recovery(engine: Engine) -> list[Family]:
    report = engine.report
    values = [
        ("topics_recovery_progress", "Share of the log replayed, 0 to 1.", engine.recovery_progress),
        ("topics_recovery_frames", "Frames replayed at the start.", report.frames),
        ("topics_recovery_bytes", "Bytes replayed at the start.", report.bytes),
        ("topics_recovery_seconds", "Time recovery took.", report.seconds),
        (
            "topics_recovery_discarded_bytes",
            "Bytes cut off behind the end of the log at the start.",
            report.discarded_bytes,
        ),
        (
            "topics_recovery_discarded_frames",
            "Valid frames among them (of incomplete batches).",
            report.discarded_frames,
        ),
        ("topics_recovery_salvaged_bytes", "Damaged bytes given up by salvage.", report.salvaged_bytes),
    ]
    return [Family(name, "gauge", help, [Sample((), value)]) for name, help, value in values]


def _engine(engine: Engine) -> list[Family]:
    usage = engine.catalog.usage
    families = [
        Family("topics_topics", "gauge", "Topics.", [Sample((), len(engine.catalog.topics))]),
        Family("topics_live_bytes", "gauge", "Live bytes.", [Sample((), usage.bytes)]),
        Family("topics_ephemeral_bytes", "gauge", "Those in memory only.", [Sample((), usage.ephemeral_bytes)]),
        Family("topics_idempotency_keys", "gauge", "Idempotency keys held.", [Sample((), usage.keys)]),
        Family("topics_tail_cache_bytes", "gauge", "Bytes in the tail cache.", [Sample((), engine.cache.bytes)]),
        Family("topics_corrupt_reads", "counter", "Records that failed a check.", [Sample((), usage.corrupt_reads)]),
        Family("topics_unreadable_reads", "counter", "Reads the disk failed.", [Sample((), usage.unreadable_reads)]),
        Family(
            "topics_worker_failures", "counter", "Background rounds that raised.",
            [Sample((("worker", name),), count) for name, count in engine.supervisor.failures.items()],
        ),
    ]  # fmt: skip
    if engine.shards:
        taker = engine.snapshotter
        families += [
            Family("topics_snapshots", "counter", "Snapshots taken.", [Sample((), taker.taken)]),
            Family(
                "topics_snapshot_seconds", "gauge", "Time the last snapshot took.", [Sample((), taker.last_seconds)]
            ),
            Family("topics_wal_files_trimmed", "counter", "Log files deleted.", [Sample((), taker.trimmed_files)]),
        ]
    return families


def _topics(engine: Engine) -> list[Family]:
    shown = [topic for topic in engine.catalog.topics.values() if not topic.provisional][:MAX_TOPIC_SERIES]
    labels = [(("topic", topic.name),) for topic in shown]

    def gauge(name: str, help: str, values: list[int]) -> Family:
        return Family(name, "gauge", help, [Sample(label, value) for label, value in zip(labels, values, strict=True)])

    return [
        gauge("topics_topic_head_seq", "Last readable seq (the first 1000 topics).", [t.log.head for t in shown]),
        gauge(
            "topics_topic_earliest_seq", "First live seq (the first 1000 topics).", [t.log.earliest_seq for t in shown]
        ),
        gauge("topics_topic_records", "Live records (the first 1000 topics).", [t.log.count for t in shown]),
        gauge("topics_topic_bytes", "Live bytes (the first 1000 topics).", [t.log.bytes for t in shown]),
    ]
