"""The storage engine, usable on its own: `from storage import Engine, Options`.

A sharded write-ahead log with group commit, four durability classes, snapshots and recovery, in one directory. It knows
nothing of HTTP. docs/reference/guarantees.md says what an acknowledged write survives, docs/guides/embedding.md how a
program uses it; `BlockingEngine` is for those without an event loop.
"""

from storage.blocking import BlockingEngine
from storage.config import Discard, Durability, Retention, TopicConfig, TopicType
from storage.embedded.batch import Record, RecordBatch
from storage.engine import Engine
from storage.options import Options, Recovery
from storage.records.values import (
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
from storage.state.consumers.values import Consistency, ConsumerConfig, ConsumerState

__all__ = [
    "Appended",
    "BinaryRecord",
    "BlockingEngine",
    "Consistency",
    "ConsumerConfig",
    "ConsumerState",
    "DeletedRecords",
    "Discard",
    "Durability",
    "Engine",
    "LossCause",
    "NewRecord",
    "Options",
    "PlainBinary",
    "PlainRecords",
    "ReadQuery",
    "ReadResult",
    "Record",
    "RecordBatch",
    "Recovery",
    "Retention",
    "StoredRecord",
    "TagMatch",
    "Tombstone",
    "TopicConfig",
    "TopicState",
    "TopicType",
]
