"""Every metric of storage: name, type, unit, meaning, labels. What counts makes its families of these.

`METRICS` is the one place where a metric is declared. A test holds it to what a broker shows that has had everything
used, and the table of docs/reference/metrics.md to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

#: Of so many topics, queues, routers and consumers each there are metrics.
MAX_TOPIC_SERIES: Final = 1000


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
    """A metric with its values: kind is counter, gauge or histogram. Counter names come without `_total`."""

    name: str
    kind: str
    help: str
    samples: list[Sample | HistogramSample]

    @property
    def exposed(self) -> str:
        """The name under which it is shown."""
        return exposed(self.name, self.kind)


class Metric(NamedTuple):
    """A declaration. `unit` is what a value counts, of a histogram what is sorted; `labels` by spaces.

    `former`: the name before a rename. It is exposed beside the new one until the next release.
    """

    name: str
    kind: str
    unit: str
    help: str
    labels: str = ""
    former: str = ""

    @property
    def exposed(self) -> str:
        """The name under which it is shown."""
        return exposed(self.name, self.kind)

    @property
    def deprecated(self) -> Metric:
        """The declaration under the former name."""
        help = f"Deprecated name of {self.exposed}, removed in the next release."
        return Metric(self.former, self.kind, self.unit, help, self.labels)


def exposed(name: str, kind: str) -> str:
    """Counters end in `_total`."""
    return f"{name}_total" if kind == "counter" else name


class MetricTable:
    """Declarations by name. Raises KeyError for a name that is not declared."""

    def __init__(self, *metrics: Metric) -> None:
        self._by_name: Final = {metric.name: metric for metric in metrics}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._by_name.values())

    def family(self, name: str, samples: Iterable[Sample | HistogramSample]) -> Family:
        """With these values, whose labels are the declared ones."""
        metric = self._by_name[name]
        return Family(name, metric.kind, metric.help, list(samples))

    def whole(self, name: str, value: float) -> Family:
        """With one value, without labels."""
        return self.family(name, [Sample((), value)])


COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
_TOPICS: Final = f"(the first {MAX_TOPIC_SERIES} topics)."
_QUEUES: Final = f"(the first {MAX_TOPIC_SERIES} queues)."
_ROUTERS: Final = f"(the first {MAX_TOPIC_SERIES} routers)."
_CONSUMERS: Final = f"(the first {MAX_TOPIC_SERIES} consumers)."

METRICS: Final = MetricTable(
    # -- the log -----------------------------------------------------------------------------------------------------
    Metric("topics_wal_frames", COUNTER, "frames", "Frames written to the log.", "shard"),
    Metric("topics_wal_batches", COUNTER, "commits", "Group commits.", "shard"),
    Metric("topics_wal_fsyncs", COUNTER, "syncs", "Successful fdatasyncs of the log.", "shard"),
    Metric("topics_wal_bytes", COUNTER, "bytes", "Bytes written to the log.", "shard"),
    Metric("topics_wal_rotations", COUNTER, "files", "Log files finished.", "shard"),
    Metric("topics_wal_sync_points", COUNTER, "frames", "SyncPoint frames written.", "shard"),
    Metric("topics_wal_storage_full", COUNTER, "writes", "Writes refused because the disk was full.", "shard"),
    Metric("topics_wal_queue_frames", GAUGE, "frames", "Frames waiting in the queue.", "shard"),
    Metric("topics_wal_queue_frames_peak", GAUGE, "frames", "Most frames that ever waited in the queue.", "shard"),
    Metric("topics_wal_full", GAUGE, "0 or 1", "1 while the disk is full for this shard.", "shard"),
    Metric("topics_wal_failed", GAUGE, "0 or 1", "1 after the shard has stopped.", "shard"),
    Metric("topics_wal_fsync_seconds", HISTOGRAM, "seconds", "Time an fdatasync of the log took.", "shard"),
    Metric("topics_wal_group_size", HISTOGRAM, "writes", "Writes in a group commit.", "shard"),
    Metric("topics_wal_files_trimmed", COUNTER, "files", "Log files deleted."),
    # -- recovery and snapshots --------------------------------------------------------------------------------------
    Metric("topics_recovery_progress", GAUGE, "share", "Share of the log replayed, 0 to 1."),
    Metric("topics_recovery_frames", GAUGE, "frames", "Frames replayed at the start."),
    Metric("topics_recovery_bytes", GAUGE, "bytes", "Bytes replayed at the start."),
    Metric("topics_recovery_seconds", GAUGE, "seconds", "Time recovery took."),
    Metric(
        "topics_recovery_discarded_bytes", GAUGE, "bytes", "Bytes cut off behind the end of the log at the start.",
    ),
    Metric(
        "topics_recovery_discarded_frames", GAUGE, "frames", "Valid frames among them (of incomplete batches).",
    ),
    Metric("topics_recovery_salvaged_bytes", GAUGE, "bytes", "Damaged bytes given up by salvage."),
    Metric("topics_snapshots", COUNTER, "snapshots", "Snapshots taken."),
    Metric("topics_snapshot_seconds", GAUGE, "seconds", "Time the last snapshot took."),
    Metric("topics_worker_failures", COUNTER, "rounds", "Background rounds that raised.", "worker"),
    # -- topics ------------------------------------------------------------------------------------------------------
    Metric("topics_topics", GAUGE, "topics", "Topics, their partitions aside."),
    Metric("topics_live_bytes", GAUGE, "bytes", "Live bytes."),
    Metric("topics_ephemeral_bytes", GAUGE, "bytes", "Those in memory only."),
    Metric("topics_idempotency_keys", GAUGE, "keys", "Idempotency keys held."),
    Metric("topics_producers", GAUGE, "producers", "Idempotent producers known, counted in each partition."),
    Metric(
        "topics_producers_forgotten", COUNTER, "producers",
        "Those forgotten before their time, because there were too many: their repeats are taken as new.",
    ),
    Metric("topics_states", GAUGE, "values", "Values kept of groups and the like."),
    Metric("topics_tail_cache_bytes", GAUGE, "bytes", "Memory that the tail cache takes."),
    Metric("topics_topic_head_seq", GAUGE, "seq", f"Last readable seq, of all partitions {_TOPICS}", "topic"),
    Metric("topics_topic_earliest_seq", GAUGE, "seq", f"First live seq, of all partitions {_TOPICS}", "topic"),
    Metric("topics_topic_records", GAUGE, "records", f"Live records {_TOPICS}", "topic"),
    Metric("topics_topic_bytes", GAUGE, "bytes", f"Live bytes {_TOPICS}", "topic"),
    Metric("topics_appends", COUNTER, "writes", "Writes committed."),
    Metric("topics_appended_records", COUNTER, "records", "Records in them."),
    Metric("topics_reads", COUNTER, "reads", "Reads answered, those of routers not counted."),
    Metric("topics_read_records", COUNTER, "records", "Records in them."),
    Metric("topics_deleted_records", COUNTER, "records", "Live records deleted or acked."),
    Metric("topics_tombstones", COUNTER, "reads", "Reads that announced a gap.", "reason"),
    Metric(
        "topics_evicted_records", COUNTER, "records", "Live records that went to a cap, a ttl or a crash.", "cause",
    ),
    Metric("topics_corrupt_reads", COUNTER, "records", "Records that failed a check."),
    Metric("topics_unreadable_reads", COUNTER, "reads", "Reads that the disk or the cold store failed."),
    # -- segments ----------------------------------------------------------------------------------------------------
    Metric("topics_segments_opened", COUNTER, "segments", "Segments begun."),
    Metric("topics_segments_sealed", COUNTER, "segments", "Segments finished."),
    Metric(
        "topics_segments_broken", COUNTER, "segments", "Segments whose files a failed write or sync made unusable.",
    ),
    Metric(
        "topics_flushed_records", COUNTER, "records", "Records moved from the log to segments.",
        former="topics_absorbed_records",
    ),
    Metric(
        "topics_flushed_bytes", COUNTER, "bytes", "Bytes moved from the log to segments.",
        former="topics_absorbed_bytes",
    ),
    Metric("topics_checkpoints", COUNTER, "rounds", "Rounds in which records were moved as far as was due."),
    Metric("topics_checkpoint_seconds", GAUGE, "seconds", "Time the last round of moving records took."),
    Metric(
        "topics_flush_failures", COUNTER, "flushes", "Flushes in which the records of a topic could not be moved.",
        former="topics_absorb_failures",
    ),
    Metric(
        "topics_unflushed_records", GAUGE, "seqs", "Seqs that are in the log and in no segment.",
        former="topics_unabsorbed_records",
    ),
    Metric("topics_segments", GAUGE, "segments", "Segments there are."),
    Metric("topics_segments_cold", GAUGE, "segments", "Those in the cold tier."),
    Metric("topics_segments_packed", GAUGE, "segments", "Those that are stored compressed."),
    Metric("topics_segments_bytes", GAUGE, "bytes", "Bytes of records in segments of the hot tier, uncompressed."),
    Metric("topics_segments_stored_bytes", GAUGE, "bytes", "Bytes that these take on disk, without their indexes."),
    Metric("topics_segments_open", GAUGE, "segments", "Segments whose files are open for reading."),
    Metric("topics_segments_dropped", COUNTER, "segments", "Segments dropped because nothing in them was alive."),
    Metric("topics_segments_rewritten", COUNTER, "segments", "Segments written anew because half of them was dead."),
    Metric("topics_packed_segments", COUNTER, "segments", "Segments written anew compressed."),
    Metric("topics_packed_source_bytes", COUNTER, "bytes", "Bytes of records in these, uncompressed."),
    Metric("topics_packed_bytes", COUNTER, "bytes", "Bytes that these took on disk."),
    Metric("topics_damaged_records_copied", COUNTER, "records", "Records that a rewrite copied though damaged."),
    Metric("topics_flagged_records", COUNTER, "records", "Deleted records flagged in segments."),
    Metric("topics_pending_deletes", GAUGE, "topics", "Deleted topics whose files are still there."),
    Metric("topics_segments_relocated", COUNTER, "segments", "Segments moved to the cold tier."),
    Metric("topics_segments_relocated_bytes", COUNTER, "bytes", "Bytes of these."),
    Metric("topics_cold_segments_removed", COUNTER, "segments", "Segments removed from the cold store."),
    Metric("topics_cold_reads", COUNTER, "reads", "Reads of records that the cold store was asked for."),
    Metric("topics_cold_errors", COUNTER, "requests", "Requests to the cold store that failed."),
    # -- backups -----------------------------------------------------------------------------------------------------
    Metric("topics_backups", COUNTER, "backups", "Backups taken."),
    Metric("topics_backups_failed", COUNTER, "backups", "Backups that could not be finished."),
    Metric(
        "topics_backup_newest_ms", GAUGE, "ms since 1970", "Instant of the newest backup since the start; 0: none.",
    ),
    # -- queues ------------------------------------------------------------------------------------------------------
    Metric("topics_claims", COUNTER, "claims", "Claims that were given jobs."),
    Metric("topics_claimed_jobs", COUNTER, "jobs", "Jobs they were given."),
    Metric("topics_redelivered_jobs", COUNTER, "jobs", "Those among them that had been given to somebody before."),
    Metric("topics_acks", COUNTER, "jobs", "Jobs acked."),
    Metric("topics_nacks", COUNTER, "jobs", "Jobs nacked."),
    Metric("topics_rejects", COUNTER, "jobs", "Jobs that a worker gave up for good: dead letters, or deleted without."),
    Metric("topics_lease_extensions", COUNTER, "leases", "Leases extended."),
    Metric("topics_lease_expiries", COUNTER, "leases", "Leases that ran out."),
    Metric(
        "topics_jobs_unreadable", COUNTER, "jobs", "Jobs put off: their record failed its check, or cannot be read.",
    ),
    Metric("topics_queue_ready", GAUGE, "jobs", f"Jobs that can be claimed {_QUEUES}", "topic"),
    Metric("topics_queue_in_flight", GAUGE, "jobs", f"Jobs that are leased {_QUEUES}", "topic"),
    Metric("topics_queue_delayed", GAUGE, "jobs", f"Jobs that are not due yet {_QUEUES}", "topic"),
    Metric(
        "topics_queue_dead_pending", GAUGE, "jobs", f"Jobs on their way to the dead letter topic {_QUEUES}", "topic",
    ),
    Metric("topics_queue_waiting_claims", GAUGE, "claims", f"Claims that wait for jobs {_QUEUES}", "topic"),
    Metric("topics_queue_paused", GAUGE, "0 or 1", f"1 while it is paused {_QUEUES}", "topic"),
    Metric(
        "topics_dead_lettered", COUNTER, "jobs", f"Jobs moved to the dead letter topic, over restarts {_QUEUES}",
        "topic",
    ),
    Metric(
        "topics_jobs_lost", COUNTER, "jobs",
        f"Jobs that a cap or ttl took before they were acked, over restarts {_QUEUES}", "topic",
    ),
    # -- routers -----------------------------------------------------------------------------------------------------
    Metric("topics_routers", GAUGE, "routers", "Routers there are."),
    Metric("topics_router_blocked", GAUGE, "0 or 1", f"1 while dest does not take its copies {_ROUTERS}", "router"),
    Metric("topics_router_forwarded", COUNTER, "records", f"Copies made, over restarts {_ROUTERS}", "router"),
    Metric(
        "topics_router_lag", GAUGE, "seqs", f"Seqs of the source that are still to be examined {_ROUTERS}", "router",
    ),
    Metric(
        "topics_router_losses", COUNTER, "losses",
        f"Times that a loss had to be written in place of copies {_ROUTERS}", "router",
    ),
    Metric(
        "topics_router_hop_limited", COUNTER, "records",
        f"Records not copied for having come too far {_ROUTERS}", "router",
    ),
    # -- consumers ---------------------------------------------------------------------------------------------------
    Metric("topics_consumers", GAUGE, "consumers", "Consumers there are."),
    Metric("topics_consumer_lag", GAUGE, "seqs", f"Seqs behind the cursor {_CONSUMERS}", "topic partition consumer"),
    Metric(
        "topics_consumer_unread", GAUGE, "records", f"Live records behind the cursor {_CONSUMERS}",
        "topic partition consumer",
    ),
    Metric(
        "topics_consumer_unpersisted", GAUGE, "records",
        f"Records handed out that a crash has handed out again {_CONSUMERS}", "topic partition consumer",
    ),
    Metric("topics_consumer_cursors_persisted", COUNTER, "frames", "Cursor frames made durable."),
    Metric("topics_consumer_persist_failures", COUNTER, "frames", "Cursor frames that could not be written."),
    Metric("topics_consumer_read_waits", COUNTER, "answers", "Times that an answer waited for a cursor to be durable."),
    Metric("topics_consumer_answers", GAUGE, "answers", "Answers kept for a repeat."),
    Metric("topics_consumer_answers_bytes", GAUGE, "bytes", "Bytes of answers kept for a repeat."),
    Metric("topics_consumer_answers_repeated", COUNTER, "answers", "Answers given again."),
    Metric(
        "topics_consumer_answers_forgotten", COUNTER, "answers",
        "Answers forgotten before their time, for want of room.",
    ),
    Metric("topics_consumed_records", COUNTER, "records", "Records that went because all consumers had passed them."),
    Metric("topics_consumed_failures", COUNTER, "times", "Times that consumed records could not be given back yet."),
)  # fmt: skip
