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

_OPTIONS = Options()

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class StorageSettings(BaseSettings):
    """Sizes are bytes, times ms (µs where the name says so)."""

    wal_shards: Annotated[int, Field(ge=0, le=MAX_SHARDS)] = Field(
        _OPTIONS.wal_shards,
        description="Log writers, at most 99; 0 = as the directory has them, min(cpus, 8) for a new one.",
    )
    wal_file_bytes: Annotated[int, Field(ge=1 << 16)] = Field(
        _OPTIONS.wal_file_bytes, description="Size of a log file."
    )
    wal_reserve_bytes: Count = Field(_OPTIONS.wal_reserve_bytes, description="Kept for deletions on a full disk.")
    wal_queue_frames: Positive = Field(_OPTIONS.wal_queue_frames, description="Most frames waiting for a writer.")
    wal_queue_bytes: Positive = Field(_OPTIONS.wal_queue_bytes, description="Most bytes waiting for a writer.")
    wal_enqueue_timeout_ms: Count = Field(
        _OPTIONS.wal_enqueue_timeout_ms, description="How long a write waits for room before 503 wal_saturated."
    )
    gc_min_us: Count = Field(_OPTIONS.gc_min_us, description="Least group-commit window under load, in µs.")
    gc_max_us: Count = Field(_OPTIONS.gc_max_us, description="Widest group-commit window, in µs.")
    disk_sync_ms: Positive = Field(_OPTIONS.disk_sync_ms, description="How soon writes of class disk are synced.")
    sync_point_bytes: Positive = Field(_OPTIONS.sync_point_bytes, description="Log bytes between sync points.")
    sync_point_ms: Positive = Field(_OPTIONS.sync_point_ms, description="Time between sync points.")
    snapshot_interval_ms: Positive = Field(_OPTIONS.snapshot_interval_ms, description="Time between snapshots.")
    snapshot_wal_bytes: Positive = Field(_OPTIONS.snapshot_wal_bytes, description="Log bytes between snapshots.")
    expiry_interval_ms: Positive = Field(_OPTIONS.expiry_interval_ms, description="How often ttl is looked after.")
    quarantine_max_bytes: Count = Field(_OPTIONS.quarantine_max_bytes, description="Most bytes set aside by recovery.")
    ephemeral_max_bytes: Count = Field(_OPTIONS.ephemeral_max_bytes, description="Most bytes of ephemeral topics.")
    tail_cache_bytes: Count = Field(
        _OPTIONS.tail_cache_bytes,
        description=f"Memory for the newest records: their bytes, and {CACHE_ENTRY_BYTES} for each write.",
    )
    max_topics: Count = Field(_OPTIONS.max_topics, description="0 = no limit.")
    max_partitions: Count = Field(_OPTIONS.max_partitions, description="Of one topic; 0 = 1024.")
    max_routers: Count = Field(_OPTIONS.max_routers, description="0 = no limit.")
    max_consumers: Count = Field(_OPTIONS.max_consumers, description="Of all topics; 0 = no limit.")
    consumer_answers_bytes: Count = Field(
        _OPTIONS.consumer_answers_bytes, description="Most bytes of answers kept for consumers that ask again."
    )
    max_total_bytes: Count = Field(_OPTIONS.max_total_bytes, description="Most live bytes of all topics; 0 = no limit.")
    max_idempotency_keys: Count = Field(_OPTIONS.max_idempotency_keys, description="Most keys remembered at a time.")
    max_producers: Positive = Field(
        _OPTIONS.max_producers, description="Most idempotent producers remembered, counted in each partition."
    )
    producer_id_expiration_ms: Positive = Field(
        _OPTIONS.producer_id_expiration_ms, description="How long an idle idempotent producer is remembered."
    )
    max_offset_metadata_bytes: Count = Field(
        _OPTIONS.max_offset_metadata_bytes, description="Most bytes of metadata of a committed offset."
    )
    max_states: Positive = Field(
        _OPTIONS.max_states, description="Most values kept of groups and the like, in the whole broker."
    )
    max_state_bytes: Positive = Field(_OPTIONS.max_state_bytes, description="Most bytes of one of them.")
    max_batch_records: Positive = Field(_OPTIONS.max_batch_records, description="Most records in one write.")
    max_record_bytes: Positive = Field(_OPTIONS.max_record_bytes, description="Most bytes of data and meta a record.")
    max_meta_bytes: Count = Field(_OPTIONS.max_meta_bytes, description="Most bytes of meta a record.")
    max_meta_keys: Count = Field(_OPTIONS.max_meta_keys, description="Most keys in a meta object.")
    max_tag_bytes: Annotated[int, Field(ge=1, le=65_535)] = Field(_OPTIONS.max_tag_bytes, description="Longest tag.")
    max_node_bytes: Annotated[int, Field(ge=1, le=65_535)] = Field(_OPTIONS.max_node_bytes, description="Longest node.")
    max_key_bytes: Positive = Field(_OPTIONS.max_key_bytes, description="Longest idempotency key.")
    max_scan_records: Positive = Field(_OPTIONS.max_scan_records, description="Most seqs one read examines.")
    io_threads: Annotated[int, Field(ge=1, le=256)] = Field(_OPTIONS.io_threads, description="Threads for reading.")
    io_backend: IoBackend = Field(
        _OPTIONS.io_backend,
        description="How the log is written: fd, mmap or io_uring; fd where the system refuses the other two.",
    )
    segment_max_events: Positive = Field(_OPTIONS.segment_max_events, description="Most seqs in a segment.")
    segment_max_bytes: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        _OPTIONS.segment_max_bytes, description="Bytes at which a segment is sealed; at most 2 GiB."
    )
    segment_pack_bytes: Count = Field(
        _OPTIONS.segment_pack_bytes,
        description="Full segments of topics whose producers compress are stored compressed from so many bytes on; "
        "0 = never.",
    )
    segment_max_age_ms: Count = Field(
        _OPTIONS.segment_max_age_ms, description="A segment whose first record is older is sealed; 0 = never."
    )
    max_open_segments: Positive = Field(_OPTIONS.max_open_segments, description="Most segments kept open for reading.")
    checkpoint_interval_ms: Positive = Field(
        _OPTIONS.checkpoint_interval_ms, description="How often topics are looked at for records to move to segments."
    )
    checkpoint_records: Positive = Field(
        _OPTIONS.checkpoint_records, description="A topic with so many records in the log is moved."
    )
    checkpoint_batches: Positive = Field(
        _OPTIONS.checkpoint_batches,
        description="A topic with so many batches in the log is moved: records written one by one cost more there.",
    )
    checkpoint_bytes: Positive = Field(
        _OPTIONS.checkpoint_bytes, description="A topic with so many bytes of records in the log is moved."
    )
    flag_age_ms: Count = Field(
        10_000,
        description="Deletions wait so long to be flagged in segments: if all of one is deleted by then, it just goes.",
    )
    checkpoint_age_ms: Count = Field(
        _OPTIONS.checkpoint_age_ms,
        description="A topic with a record this old in the log is moved; so is one that holds up an old log file.",
    )
    cold_dir: str = Field(
        _OPTIONS.cold_dir, description="Where older segments move to: a path, or s3://, gs://, az://; empty = nowhere."
    )
    cold_threads: Annotated[int, Field(ge=2, le=256)] = Field(
        _OPTIONS.cold_threads, description="Threads that wait for the cold store; one of them moves segments."
    )
    cold_timeout_s: Annotated[float, Field(gt=0)] = Field(
        _OPTIONS.cold_timeout_s, description="When a request to an object store is given up, its transfer aside."
    )
    hot_retain_segments: Count = Field(
        _OPTIONS.hot_retain_segments, description="Newest sealed segments of a topic that stay in the data directory."
    )
    hot_retain_bytes: Count = Field(
        _OPTIONS.hot_retain_bytes, description="Most bytes of these, a topic; 0 = however many they have."
    )
    recovery: Recovery = Field(_OPTIONS.recovery, description="What to do about a damaged log: refuse or salvage.")
    trust_page_cache: bool = Field(
        _OPTIONS.trust_page_cache, description="false on volumes that can be detached without a flush."
    )

    def storage_options(self) -> Options:
        """The options of the engine."""
        return msgspec.convert({field.name: getattr(self, field.name) for field in fields(Options)}, Options)
