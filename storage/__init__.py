"""The storage engine, usable on its own: `from storage import Engine, Options`.

A sharded write-ahead log with group commit, four durability classes, snapshots and recovery, in one directory. It knows
nothing of HTTP. docs/reference/guarantees.md says what an acknowledged write survives, docs/guides/embedding.md how a
program uses it; `BlockingEngine` is for programs without an event loop.
"""

from storage import errors
from storage.blocking import BlockingEngine
from storage.cells import CellSet, cell_folder, home_cell, open_set, run_folder
from storage.config import (
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    CleanupPolicy,
    CompressionType,
    Discard,
    Durability,
    Retention,
    TopicConfig,
    TopicType,
)
from storage.embedded import Record, RecordBatch
from storage.engine import Engine
from storage.errors import (
    BatchTooLarge,
    ConsumerNotFound,
    DataError,
    InvalidRequest,
    LimitReached,
    NotMine,
    NotReady,
    RecordCorrupt,
    RequestError,
    ShuttingDown,
    StorageError,
    StorageFailed,
    TopicIncompatible,
    TopicNotFound,
    Unavailable,
    Unreadable,
)
from storage.logged import LOGGED, Event
from storage.metric_table import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    METRICS,
    Family,
    HistogramSample,
    Metric,
    MetricTable,
    Sample,
)
from storage.options import MIB, IoBackend, Options, Recovery
from storage.records import (
    Appended,
    BinaryRecord,
    DeletedRecords,
    LossCause,
    NewRecord,
    PlainBinary,
    PlainRecords,
    ReadQuery,
    ReadResult,
    StoredRecord,
    TagMatch,
    Tombstone,
    TopicState,
)
from storage.state.consumers import Consistency, ConsumerConfig, ConsumerState
from storage.stopped import StoppedDirectory, StoppedLog, open_records
from storage.topics import ENTRY_KIND
from storage.tracing import HasBody, Move

__all__ = [
    "COUNTER",
    "ENTRY_KIND",
    "GAUGE",
    "HISTOGRAM",
    "LOGGED",
    "MAX_LEASE_MS",
    "METRICS",
    "MIB",
    "MIN_LEASE_MS",
    "Appended",
    "BatchTooLarge",
    "BinaryRecord",
    "BlockingEngine",
    "CellSet",
    "CleanupPolicy",
    "CompressionType",
    "Consistency",
    "ConsumerConfig",
    "ConsumerNotFound",
    "ConsumerState",
    "DataError",
    "DeletedRecords",
    "Discard",
    "Durability",
    "Engine",
    "Event",
    "Family",
    "HasBody",
    "HistogramSample",
    "InvalidRequest",
    "IoBackend",
    "LimitReached",
    "LossCause",
    "Metric",
    "MetricTable",
    "Move",
    "NewRecord",
    "NotMine",
    "NotReady",
    "Options",
    "PlainBinary",
    "PlainRecords",
    "ReadQuery",
    "ReadResult",
    "Record",
    "RecordBatch",
    "RecordCorrupt",
    "Recovery",
    "RequestError",
    "Retention",
    "Sample",
    "ShuttingDown",
    "StoppedDirectory",
    "StoppedLog",
    "StorageError",
    "StorageFailed",
    "StoredRecord",
    "TagMatch",
    "Tombstone",
    "TopicConfig",
    "TopicIncompatible",
    "TopicNotFound",
    "TopicState",
    "TopicType",
    "Unavailable",
    "Unreadable",
    "cell_folder",
    "errors",
    "home_cell",
    "open_records",
    "open_set",
    "run_folder",
]
