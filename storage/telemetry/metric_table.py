"""Every metric of storage: name, type, unit, meaning, labels. The collectors make their families from these.

Metrics are declared only here. A test compares `METRICS` with the metrics of a broker that has used every feature, and
with the table of docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

#: The most topics that have metrics; likewise the most queues, routers and consumers.
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
        """The exposed name."""
        return exposed(self.name, self.kind)


class Metric(NamedTuple):
    """The declaration of a metric. `unit`: of its values; `labels`: separated by spaces.

    `former`: the name before a rename. It is exposed, too, until the next release.
    """

    name: str
    kind: str
    unit: str
    help: str
    labels: str = ""
    former: str = ""

    @property
    def exposed(self) -> str:
        """The exposed name."""
        return exposed(self.name, self.kind)

    @property
    def deprecated(self) -> Metric:
        """The declaration under the former name."""
        help = f"Deprecated name of {self.exposed}, removed in the next release."
        return Metric(self.former, self.kind, self.unit, help, self.labels)


def exposed(name: str, kind: str) -> str:
    """The exposed name: counters end in `_total`."""
    return f"{name}_total" if kind == "counter" else name


class MetricTable:
    """Declarations by name. Methods raise KeyError for an undeclared name."""

    def __init__(self, *metrics: Metric) -> None:
        self._by_name: Final = {metric.name: metric for metric in metrics}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._by_name.values())

    def family(self, name: str, samples: Iterable[Sample | HistogramSample]) -> Family:
        """The family with these samples. Their labels must be the declared ones."""
        metric = self._by_name[name]
        return Family(name, metric.kind, metric.help, list(samples))

    def whole(self, name: str, value: float) -> Family:
        """The family with a single value, without labels."""
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
        "topics_recovery_discarded_bytes", GAUGE, "bytes", "Bytes after the end of the log that recovery removed.",
    ),
    Metric(
        "topics_recovery_discarded_frames", GAUGE, "frames",
        "Valid frames among these bytes, of incomplete batches.",
    ),
    Metric("topics_recovery_salvaged_bytes", GAUGE, "bytes", "Damaged bytes that salvage discarded."),
    Metric("topics_snapshots", COUNTER, "snapshots", "Snapshots taken."),
    Metric("topics_snapshot_seconds", GAUGE, "seconds", "Time the last snapshot took."),
    Metric("topics_worker_failures", COUNTER, "rounds", "Rounds of a background worker that failed.", "worker"),
    # -- topics ------------------------------------------------------------------------------------------------------
    Metric("topics_topics", GAUGE, "topics", "Topics; partitions are not counted."),
    Metric("topics_live_bytes", GAUGE, "bytes", "Live bytes of all topics."),
    Metric("topics_ephemeral_bytes", GAUGE, "bytes", "Live bytes of ephemeral topics."),
    Metric("topics_idempotency_keys", GAUGE, "keys", "Idempotency keys that are remembered."),
    Metric(
        "topics_producers", GAUGE, "producers",
        "Idempotent producers that are remembered, counted for each partition.",
    ),
    Metric(
        "topics_producers_forgotten", COUNTER, "producers",
        "Producers forgotten early because there were too many: repeated batches are stored again.",
    ),
    Metric("topics_states", GAUGE, "values", "Stored states of groups, share groups and proxy instances."),
    Metric("topics_tail_cache_bytes", GAUGE, "bytes", "Memory of the tail cache."),
    Metric("topics_topic_head_seq", GAUGE, "seq", f"Last readable seq, summed over the partitions {_TOPICS}", "topic"),
    Metric("topics_topic_earliest_seq", GAUGE, "seq", f"First live seq, summed over the partitions {_TOPICS}", "topic"),
    Metric("topics_topic_records", GAUGE, "records", f"Live records {_TOPICS}", "topic"),
    Metric("topics_topic_bytes", GAUGE, "bytes", f"Live bytes {_TOPICS}", "topic"),
    Metric("topics_appends", COUNTER, "writes", "Writes committed."),
    Metric("topics_appended_records", COUNTER, "records", "Records in committed writes."),
    Metric("topics_reads", COUNTER, "reads", "Reads answered, without those of routers."),
    Metric("topics_read_records", COUNTER, "records", "Records in answers to reads."),
    Metric("topics_deleted_records", COUNTER, "records", "Live records deleted or acked."),
    Metric("topics_tombstones", COUNTER, "reads", "Reads that announced a gap.", "reason"),
    Metric(
        "topics_evicted_records", COUNTER, "records", "Live records lost to a cap, a ttl or a crash.", "cause",
    ),
    Metric("topics_corrupt_reads", COUNTER, "records", "Records whose checksum failed."),
    Metric("topics_unreadable_reads", COUNTER, "reads", "Reads that failed because of the disk or the cold tier."),
    # -- segments ----------------------------------------------------------------------------------------------------
    Metric("topics_segments_opened", COUNTER, "segments", "Segments created."),
    Metric("topics_segments_sealed", COUNTER, "segments", "Segments sealed."),
    Metric(
        "topics_segments_broken", COUNTER, "segments", "Segments that became unusable because a write or sync failed.",
    ),
    Metric(
        "topics_flushed_records", COUNTER, "records", "Records moved from the log to segments.",
        former="topics_absorbed_records",
    ),
    Metric(
        "topics_flushed_bytes", COUNTER, "bytes", "Bytes moved from the log to segments.",
        former="topics_absorbed_bytes",
    ),
    Metric("topics_checkpoints", COUNTER, "rounds", "Rounds of the flusher that flushed everything that was due."),
    Metric("topics_checkpoint_seconds", GAUGE, "seconds", "Time the last round of the flusher took."),
    Metric(
        "topics_flush_failures", COUNTER, "flushes", "Flushes of a topic that failed.",
        former="topics_absorb_failures",
    ),
    Metric(
        "topics_unflushed_records", GAUGE, "seqs", "Seqs in the log that are not in a segment yet.",
        former="topics_unabsorbed_records",
    ),
    Metric("topics_segments", GAUGE, "segments", "Segments."),
    Metric("topics_segments_cold", GAUGE, "segments", "Segments in the cold tier."),
    Metric("topics_segments_packed", GAUGE, "segments", "Segments that are stored compressed."),
    Metric("topics_segments_bytes", GAUGE, "bytes", "Uncompressed bytes of records in segments of the data directory."),
    Metric("topics_segments_stored_bytes", GAUGE, "bytes", "Bytes of these segments on disk, without indexes."),
    Metric("topics_segments_open", GAUGE, "segments", "Segments whose files are open for reading."),
    Metric("topics_segments_dropped", COUNTER, "segments", "Segments deleted because they had no live records."),
    Metric(
        "topics_segments_rewritten", COUNTER, "segments",
        "Segments rewritten because half of their bytes were deleted.",
    ),
    Metric("topics_packed_segments", COUNTER, "segments", "Segments rewritten to compress them."),
    Metric("topics_packed_source_bytes", COUNTER, "bytes", "Uncompressed bytes of records in compressed segments."),
    Metric("topics_packed_bytes", COUNTER, "bytes", "Bytes of compressed segments on disk."),
    Metric("topics_damaged_records_copied", COUNTER, "records", "Damaged records that a rewrite copied."),
    Metric("topics_flagged_records", COUNTER, "records", "Deleted records flagged in segments."),
    Metric("topics_pending_deletes", GAUGE, "topics", "Deleted topics whose files still exist."),
    Metric("topics_segments_relocated", COUNTER, "segments", "Segments moved to the cold tier."),
    Metric("topics_segments_relocated_bytes", COUNTER, "bytes", "Bytes of segments moved to the cold tier."),
    Metric("topics_cold_segments_removed", COUNTER, "segments", "Segments removed from the cold tier."),
    Metric("topics_cold_reads", COUNTER, "reads", "Reads of records from the cold tier."),
    Metric("topics_cold_errors", COUNTER, "requests", "Requests to the cold tier that failed."),
    # -- backups -----------------------------------------------------------------------------------------------------
    Metric("topics_backups", COUNTER, "backups", "Backups taken."),
    Metric("topics_backups_failed", COUNTER, "backups", "Backups that failed."),
    Metric(
        "topics_backup_newest_ms", GAUGE, "ms since 1970", "Time of the newest backup since the start; 0: none.",
    ),
    # -- queues ------------------------------------------------------------------------------------------------------
    Metric("topics_claims", COUNTER, "claims", "Claims that returned jobs."),
    Metric("topics_claimed_jobs", COUNTER, "jobs", "Jobs in answers to claims."),
    Metric("topics_redelivered_jobs", COUNTER, "jobs", "Jobs in answers to claims that had been delivered before."),
    Metric("topics_acks", COUNTER, "jobs", "Jobs acked."),
    Metric("topics_nacks", COUNTER, "jobs", "Jobs nacked."),
    Metric(
        "topics_rejects", COUNTER, "jobs",
        "Jobs that a worker rejected: moved to the dead letter topic, or deleted if there is none.",
    ),
    Metric("topics_lease_extensions", COUNTER, "leases", "Leases extended."),
    Metric("topics_lease_expiries", COUNTER, "leases", "Leases that expired."),
    Metric(
        "topics_jobs_unreadable", COUNTER, "jobs",
        "Jobs that were delayed because their record is damaged or unreadable.",
    ),
    Metric("topics_queue_ready", GAUGE, "jobs", f"Jobs that can be claimed {_QUEUES}", "topic"),
    Metric("topics_queue_in_flight", GAUGE, "jobs", f"Jobs that are leased {_QUEUES}", "topic"),
    Metric("topics_queue_delayed", GAUGE, "jobs", f"Jobs that are delayed {_QUEUES}", "topic"),
    Metric(
        "topics_queue_dead_pending", GAUGE, "jobs",
        f"Jobs that are to be moved to the dead letter topic {_QUEUES}", "topic",
    ),
    Metric("topics_queue_waiting_claims", GAUGE, "claims", f"Claims that wait for jobs {_QUEUES}", "topic"),
    Metric("topics_queue_paused", GAUGE, "0 or 1", f"1 while the queue is paused {_QUEUES}", "topic"),
    Metric(
        "topics_dead_lettered", COUNTER, "jobs",
        f"Jobs moved to the dead letter topic, including earlier runs {_QUEUES}",
        "topic",
    ),
    Metric(
        "topics_jobs_lost", COUNTER, "jobs",
        f"Jobs that a cap or ttl deleted before an ack, including earlier runs {_QUEUES}", "topic",
    ),
    # -- routers -----------------------------------------------------------------------------------------------------
    Metric("topics_routers", GAUGE, "routers", "Routers."),
    Metric(
        "topics_router_write_waits", COUNTER, "waits",
        "How often a write waited because a router out of its topic was far behind.",
    ),
    Metric("topics_router_blocked", GAUGE, "0 or 1", f"1 while the destination refuses copies {_ROUTERS}", "router"),
    Metric("topics_router_forwarded", COUNTER, "records", f"Copies made, including earlier runs {_ROUTERS}", "router"),
    Metric(
        "topics_router_lag", GAUGE, "seqs", f"Seqs of the source that are not examined yet {_ROUTERS}", "router",
    ),
    Metric(
        "topics_router_losses", COUNTER, "losses",
        f"Losses in the source that were recorded in the destination {_ROUTERS}", "router",
    ),
    Metric(
        "topics_router_hop_limited", COUNTER, "records",
        f"Records that were not copied because of the hop limit {_ROUTERS}", "router",
    ),
    # -- consumers ---------------------------------------------------------------------------------------------------
    Metric("topics_consumers", GAUGE, "consumers", "Consumers."),
    Metric("topics_consumer_lag", GAUGE, "seqs", f"Seqs after the cursor {_CONSUMERS}", "topic partition consumer"),
    Metric(
        "topics_consumer_unread", GAUGE, "records", f"Live records after the cursor {_CONSUMERS}",
        "topic partition consumer",
    ),
    Metric(
        "topics_consumer_unpersisted", GAUGE, "records",
        f"Delivered records that a crash would deliver again {_CONSUMERS}", "topic partition consumer",
    ),
    Metric("topics_consumer_cursors_persisted", COUNTER, "frames", "Cursor frames made durable."),
    Metric("topics_consumer_persist_failures", COUNTER, "frames", "Cursor frames that could not be written."),
    Metric("topics_consumer_read_waits", COUNTER, "answers", "Answers that waited until a cursor was durable."),
    Metric("topics_consumer_answers", GAUGE, "answers", "Answers that are kept for repeated reads."),
    Metric("topics_consumer_answers_bytes", GAUGE, "bytes", "Bytes of answers that are kept for repeated reads."),
    Metric("topics_consumer_answers_repeated", COUNTER, "answers", "Kept answers that were returned again."),
    Metric(
        "topics_consumer_answers_forgotten", COUNTER, "answers",
        "Kept answers that were forgotten early because of too little memory.",
    ),
    Metric(
        "topics_consumed_records", COUNTER, "records",
        "Records that were deleted because all consumers had read them.",
    ),
    Metric("topics_consumed_failures", COUNTER, "times", "Failed deletions of consumed records; they are tried again."),
    # -- a cell in a bucket ------------------------------------------------------------------------------------------
    Metric(
        "topics_bucket_request_seconds", HISTOGRAM, "seconds",
        "Time of an answered request to the bucket; `create` is a slot or an object of a base.", "request",
    ),
    Metric(
        "topics_bucket_requests_unanswered", COUNTER, "requests",
        "Requests to the bucket that were not answered, or were answered with an error.", "request",
    ),
    Metric(
        "topics_bucket_generation", GAUGE, "generation",
        "Generation of the cell: it grows with each owner, and when the time of an owner has run out.",
    ),
    Metric("topics_bucket_slots", GAUGE, "slots", "Slots that the log of the cell has had, seals included."),
    Metric("topics_bucket_slot_bytes", COUNTER, "bytes", "Bytes that this process has put into slots."),
    Metric(
        "topics_bucket_slots_behind", GAUGE, "slots", "Slots behind the newest base, which a takeover has to read.",
    ),
    Metric("topics_bucket_slot_bytes_behind", GAUGE, "bytes", "Bytes of the slots behind the newest base."),
    Metric("topics_bucket_bases", COUNTER, "bases", "Bases that this process has put."),
    Metric(
        "topics_bucket_base_age_seconds", GAUGE, "seconds",
        "Time since this process put a base, or took the cell over.",
    ),
    Metric(
        "topics_bucket_objects_deleted", COUNTER, "objects",
        "Objects deleted: superseded by bases, or rubbish that nothing led to.", "why",
    ),
    Metric(
        "topics_bucket_time_left_seconds", GAUGE, "seconds",
        "How long the process may answer if the bucket does not answer it again.",
    ),
    Metric(
        "topics_bucket_clock_off_seconds", GAUGE, "seconds",
        "How far the clock of the process is ahead of the bucket's, at the last comparison.",
    ),
)  # fmt: skip
