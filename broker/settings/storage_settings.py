"""Settings of the storage engine: each is the option of the same name (source: storage/options.py)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec.structs import fields
from pydantic import Field
from pydantic_settings import BaseSettings

from storage import IoBackend, Options, Recovery
from storage.log import CACHE_ENTRY_BYTES
from storage.platform import MAX_SHARDS
from storage.records import MAX_CELLS

_OPTIONS = Options()

#: Options that depend on what the process is.
_NOT_SET_HERE = frozenset(
    {"cell", "put_interval_ms", "slot_lag_ms", "sync_leases", "plain_segments", "new_epochs", "make_hot"}
)

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class StorageSettings(BaseSettings):
    """The settings of the engine. Sizes are in bytes, times in the unit of the name."""

    cells: Annotated[int, Field(ge=1, le=MAX_CELLS)] = Field(
        _OPTIONS.cells,
        description="How many engines share the work, each in its own process; fixed when the directory is made. "
        "1 = one process.",
    )
    wal_shards: Annotated[int, Field(ge=0, le=MAX_SHARDS)] = Field(
        _OPTIONS.wal_shards,
        description="Shards of the log, each with a writer thread, at most 99; 0 = as many as the directory has, "
        "min(cpus, 8) for a new one.",
    )
    wal_file_bytes: Annotated[int, Field(ge=1 << 16)] = Field(
        _OPTIONS.wal_file_bytes, description="The size of a log file."
    )
    wal_reserve_bytes: Count = Field(
        _OPTIONS.wal_reserve_bytes, description="Disk space that is reserved for deletions when the disk is full."
    )
    wal_queue_frames: Positive = Field(
        _OPTIONS.wal_queue_frames, description="The most frames that wait for a writer thread."
    )
    wal_queue_bytes: Positive = Field(
        _OPTIONS.wal_queue_bytes, description="The most bytes that wait for a writer thread."
    )
    wal_enqueue_timeout_ms: Count = Field(
        _OPTIONS.wal_enqueue_timeout_ms,
        description="How long a write waits for room in the queue before it is refused (503 wal_saturated).",
    )
    gc_min_us: Count = Field(_OPTIONS.gc_min_us, description="The shortest group commit window under load, in µs.")
    gc_max_us: Count = Field(_OPTIONS.gc_max_us, description="The longest group commit window, in µs.")
    disk_sync_ms: Positive = Field(
        _OPTIONS.disk_sync_ms, description="The longest time until writes of class disk are synced."
    )
    sync_point_bytes: Positive = Field(_OPTIONS.sync_point_bytes, description="Log bytes between sync points.")
    sync_point_ms: Positive = Field(_OPTIONS.sync_point_ms, description="Time between sync points.")
    snapshot_interval_ms: Positive = Field(_OPTIONS.snapshot_interval_ms, description="Time between snapshots.")
    snapshot_wal_bytes: Positive = Field(_OPTIONS.snapshot_wal_bytes, description="Log bytes between snapshots.")
    expiry_interval_ms: Positive = Field(
        _OPTIONS.expiry_interval_ms, description="The interval between checks for expired records (ttl)."
    )
    quarantine_max_bytes: Count = Field(
        _OPTIONS.quarantine_max_bytes, description="The most bytes that recovery keeps in the quarantine folder."
    )
    ephemeral_max_bytes: Count = Field(
        _OPTIONS.ephemeral_max_bytes, description="The most bytes of all ephemeral topics."
    )
    tail_cache_bytes: Count = Field(
        _OPTIONS.tail_cache_bytes,
        description=f"Memory for the newest records: their bytes, and {CACHE_ENTRY_BYTES} bytes for each write.",
    )
    max_topics: Count = Field(_OPTIONS.max_topics, description="The most topics; 0 = no limit.")
    max_partitions: Count = Field(_OPTIONS.max_partitions, description="The most partitions of a topic; 0 = 1024.")
    max_routers: Count = Field(_OPTIONS.max_routers, description="The most routers; 0 = no limit.")
    max_consumers: Count = Field(_OPTIONS.max_consumers, description="The most consumers of all topics; 0 = no limit.")
    consumer_answers_bytes: Count = Field(
        _OPTIONS.consumer_answers_bytes,
        description="The most bytes of answers that are kept for consumers that repeat a read.",
    )
    max_total_bytes: Count = Field(
        _OPTIONS.max_total_bytes, description="The most live bytes of all topics; 0 = no limit."
    )
    max_idempotency_keys: Count = Field(
        _OPTIONS.max_idempotency_keys, description="The most idempotency keys that are remembered."
    )
    max_producers: Positive = Field(
        _OPTIONS.max_producers,
        description="The most idempotent producers that are remembered, counted for each partition.",
    )
    producer_id_expiration_ms: Positive = Field(
        _OPTIONS.producer_id_expiration_ms, description="How long an idle idempotent producer is remembered."
    )
    max_offset_metadata_bytes: Count = Field(
        _OPTIONS.max_offset_metadata_bytes, description="The most bytes of metadata of a committed offset."
    )
    max_states: Positive = Field(
        _OPTIONS.max_states, description="The most stored states of groups, share groups and proxy instances."
    )
    max_state_bytes: Positive = Field(_OPTIONS.max_state_bytes, description="The most bytes of one such state.")
    max_batch_records: Positive = Field(_OPTIONS.max_batch_records, description="The most records in one write.")
    max_record_bytes: Positive = Field(
        _OPTIONS.max_record_bytes, description="The most bytes of data and meta of a record."
    )
    max_meta_bytes: Count = Field(_OPTIONS.max_meta_bytes, description="The most bytes of meta of a record.")
    max_meta_keys: Count = Field(_OPTIONS.max_meta_keys, description="The most keys in a meta object.")
    max_tag_bytes: Annotated[int, Field(ge=1, le=65_535)] = Field(
        _OPTIONS.max_tag_bytes, description="The longest tag."
    )
    max_node_bytes: Annotated[int, Field(ge=1, le=65_535)] = Field(
        _OPTIONS.max_node_bytes, description="The longest node name."
    )
    max_key_bytes: Positive = Field(_OPTIONS.max_key_bytes, description="The longest idempotency key.")
    max_scan_records: Positive = Field(_OPTIONS.max_scan_records, description="The most seqs that one read examines.")
    io_threads: Annotated[int, Field(ge=1, le=256)] = Field(_OPTIONS.io_threads, description="Threads that read files.")
    io_backend: IoBackend = Field(
        _OPTIONS.io_backend,
        description="How the log is written: fd, mmap or io_uring; fd if the system does not support the other two.",
    )
    segment_max_events: Positive = Field(_OPTIONS.segment_max_events, description="The most seqs in a segment.")
    segment_max_bytes: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        _OPTIONS.segment_max_bytes,
        description="The size at which a segment is sealed; at most 2 GiB, in a cluster 256 MiB.",
    )
    segment_pack_bytes: Count = Field(
        _OPTIONS.segment_pack_bytes,
        description="The smallest full segment that is compressed, if the topic's producers compress; 0 = never.",
    )
    segment_max_age_ms: Count = Field(
        _OPTIONS.segment_max_age_ms, description="Age of its first record at which a segment is sealed; 0 = never."
    )
    max_open_segments: Positive = Field(
        _OPTIONS.max_open_segments, description="The most segments whose files are open for reading."
    )
    checkpoint_interval_ms: Positive = Field(
        _OPTIONS.checkpoint_interval_ms,
        description="The interval between checks for topics with records to flush to segments.",
    )
    checkpoint_records: Positive = Field(
        _OPTIONS.checkpoint_records, description="A topic with this many records in the log is flushed."
    )
    checkpoint_batches: Positive = Field(
        _OPTIONS.checkpoint_batches,
        description="A topic with this many batches in the log is flushed: records written one by one cost more.",
    )
    checkpoint_bytes: Positive = Field(
        _OPTIONS.checkpoint_bytes, description="A topic with this many bytes of records in the log is flushed."
    )
    flag_age_ms: Count = Field(
        10_000,
        description="How long deletions wait before they are flagged in segments; an empty segment is just removed.",
    )
    checkpoint_age_ms: Count = Field(
        _OPTIONS.checkpoint_age_ms,
        description="A topic with a record this old in the log is flushed, and one that needs an old log file.",
    )
    cold_dir: str = Field(
        _OPTIONS.cold_dir,
        description="Cold tier, which older segments move to: a path, or s3://, gs://, az://; in a cluster `bucket`, "
        "its own; empty = none.",
    )
    cold_threads: Annotated[int, Field(ge=2, le=256)] = Field(
        _OPTIONS.cold_threads, description="Threads for requests to the cold tier; one of them moves segments."
    )
    cold_timeout_s: Annotated[float, Field(gt=0)] = Field(
        _OPTIONS.cold_timeout_s, description="Timeout of a request to an object store, without the transfer of data."
    )
    hot_retain_segments: Count = Field(
        _OPTIONS.hot_retain_segments,
        description="The number of newest sealed segments of a topic that stay in the data directory.",
    )
    hot_retain_bytes: Count = Field(
        _OPTIONS.hot_retain_bytes, description="The most bytes of them for each topic; 0 = no limit."
    )
    recovery: Recovery = Field(
        _OPTIONS.recovery, description="What to do about a damaged log at the start: refuse or salvage."
    )
    trust_page_cache: bool = Field(
        _OPTIONS.trust_page_cache,
        description="Set to false on volumes that can be detached without a flush of the page cache.",
    )

    def storage_options(self, cell: int | None = None) -> Options:
        """The options of the engine, or of that cell of a set."""
        given = {field.name: getattr(self, field.name) for field in fields(Options) if field.name not in _NOT_SET_HERE}
        return msgspec.convert({**given, "cell": cell}, Options)
