"""The options of an engine: one value with every limit by name. The broker's `TOPICS_*` settings set them."""

from __future__ import annotations

import enum

import msgspec

MIB = 1 << 20


class Recovery(enum.StrEnum):
    """How to handle damage in synced parts of the log."""

    REFUSE = "refuse"
    SALVAGE = "salvage"


class IoBackend(enum.StrEnum):
    """How a log is written and synced: same bytes, same promises, changeable at every start."""

    FD = "fd"
    MMAP = "mmap"
    IO_URING = "io_uring"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are bytes, times ms (or µs where the name says so)."""

    wal_shards: int = 0
    """Shards of the log; 0 = as many as the directory has, min(cpus, 8) for a new one. Another number changes the
    layout."""
    cell: int | None = None
    """The number of this cell in a set of cells: its ids contain it. None: the directory is not part of a set."""
    cells: int = 1
    """How many cells the set has."""
    wal_file_bytes: int = 64 * MIB
    wal_reserve_bytes: int = 4 * MIB
    wal_queue_frames: int = 200_000
    wal_queue_bytes: int = 256 * MIB
    wal_enqueue_timeout_ms: int = 1000
    gc_min_us: int = 500
    gc_max_us: int = 10_000
    disk_sync_ms: int = 50
    put_interval_ms: int | None = None
    """Of a cell in a bucket: syncs go on behind the writer, and begin this far apart. None: the writer syncs."""
    slot_lag_ms: int = 1000
    """Of a cell in a bucket: writes that are acked before their sync are refused while the oldest byte that is not
    synced is older."""
    sync_leases: bool = False
    """Of a cell in a bucket: durable leases, and what ends them, are synced before the answer, whatever the class."""
    plain_segments: bool = False
    """Of a cell in a bucket: no segment is packed, whatever the snapshot says. A base has each as plain .data."""
    new_epochs: bool = False
    """At the start, every topic gets a new epoch: readers may have seen more of it than is here."""
    sync_point_bytes: int = MIB
    sync_point_ms: int = 1000
    snapshot_interval_ms: int = 60_000
    snapshot_wal_bytes: int = 64 * MIB
    expiry_interval_ms: int = 1000
    quarantine_max_bytes: int = 1024 * MIB
    ephemeral_max_bytes: int = 256 * MIB
    tail_cache_bytes: int = 64 * MIB
    max_topics: int = 100_000
    max_partitions: int = 64
    """The most partitions of a topic; 0 = the highest possible number."""
    max_routers: int = 10_000
    max_consumers: int = 100_000
    consumer_answers_bytes: int = 64 * MIB
    """Answers kept for readers that may have lost them, in the whole engine; above it, the oldest are forgotten."""
    max_total_bytes: int = 0
    max_idempotency_keys: int = 4_000_000
    max_producers: int = 100_000
    """Known idempotent producers, counted in each log; above it, a new one displaces the one that was idle longest."""
    producer_id_expiration_ms: int = 7 * 86_400_000
    """An idempotent producer is forgotten after being idle for this long."""
    max_offset_metadata_bytes: int = 4096
    """The most bytes of metadata stored with a consumer's cursor."""
    max_states: int = 100_000
    """The most stored states (groups, metadata of offsets), in the whole engine."""
    max_state_bytes: int = MIB
    """The most bytes of one of them."""
    max_batch_records: int = 10_000
    max_record_bytes: int = MIB
    max_meta_bytes: int = 16 * 1024
    max_meta_keys: int = 64
    max_tag_bytes: int = 256
    max_node_bytes: int = 128
    max_key_bytes: int = 256
    max_scan_records: int = 100_000
    io_threads: int = 4
    io_backend: IoBackend = IoBackend.FD
    segment_max_events: int = 10_000
    segment_max_bytes: int = 64 * MIB
    #: Sealed segments of topics whose producers compress are packed from this many bytes of .data on. 0: never.
    segment_pack_bytes: int = 64 * 1024
    segment_max_age_ms: int = 3_600_000
    """An active segment older than this is sealed; 0 = never."""
    max_open_segments: int = 256
    checkpoint_interval_ms: int = 1000
    """How often the flusher looks for logs to flush."""
    checkpoint_records: int = 100_000
    checkpoint_batches: int = 5000
    checkpoint_bytes: int = 32 * MIB
    checkpoint_age_ms: int = 60_000
    """A log is flushed when it has this many records, batches or bytes after its oldest live record in the WAL, when
    that record is this old, or when it keeps a log file from being deleted. A log with retention "consumed" is flushed
    earlier (see `flusher`)."""
    flag_age_ms: int = 0
    """Deletions wait this long to be flagged in a segment's files: a segment that is empty by then is just removed. The
    default of a broker is 10 s; that of an engine is 0, so that nothing waits when it is closed."""
    cold_dir: str = ""
    """The cold tier, which sealed segments move to, oldest first: a path or a URL (s3://, gs://, az://); "" = none.
    `storage.bucket.IN_BUCKET`, for a cell in a bucket: older ones have no copy in the data directory."""
    make_hot: bool = False
    """A start finds the .data of all cold segments in the data directory, and takes them as hot ones."""
    cold_threads: int = 4
    """Threads that wait for the cold store, at least 2: one moves segments, the others serve reads."""
    cold_timeout_s: float = 30.0
    """A request to an object store is given up after this time, plus the time for its bytes."""
    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0
    """This many of the newest sealed segments of a log stay, with at most this many bytes (0 = no limit)."""
    recovery: Recovery = Recovery.REFUSE
    trust_page_cache: bool = True
