"""The storage engine, usable on its own: `from storage import Engine, Options`.

A sharded write-ahead log with group commit, four durability classes, snapshots and recovery, in one directory.
It knows nothing of HTTP. docs/guarantees.md says what an acknowledged write survives.
"""

from storage.config import Discard, Durability, Retention, TopicConfig, TopicType
from storage.engine import Engine
from storage.options import Options, Recovery
from storage.records import (
    Appended,
    DeletedRecords,
    LossCause,
    NewRecord,
    ReadQuery,
    ReadResult,
    StoredRecord,
    TagMatch,
    Tombstone,
    TopicState,
)

__all__ = [
    "Appended",
    "DeletedRecords",
    "Discard",
    "Durability",
    "Engine",
    "LossCause",
    "NewRecord",
    "Options",
    "ReadQuery",
    "ReadResult",
    "Recovery",
    "Retention",
    "StoredRecord",
    "TagMatch",
    "Tombstone",
    "TopicConfig",
    "TopicState",
    "TopicType",
]
