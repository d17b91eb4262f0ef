"""The write path: `append` makes frames of records, `writer` writes and syncs them, `publisher` applies them."""

from storage.log.append import Appender, Blocker, Write, eviction, over_caps
from storage.log.encode import EncodedUnit, Surroundings, encode_controls, encode_stored
from storage.log.fetch import WalFetcher, WalFileGone, WalReader
from storage.log.files import MAX_OFFSET, no_space, position, split
from storage.log.logs import Logs
from storage.log.metrics import collect_logs
from storage.log.publisher import CACHE_ENTRY_BYTES, apply_unit
from storage.log.reader import CHUNK_BYTES, READ_BYTES, Chunk, FrameStream, find_sync_point
from storage.log.reservation import Reservations
from storage.log.submission import AppendStep, BatchesStep, ControlStep, PersistStep, Step, Submission, Unit
from storage.log.units import BadUnit, ScannedUnit, UnitScan
from storage.log.validation import MAX_DELAY_MS, MAX_U64, TOPIC_NAME, check_cleanup, check_text, check_topic_name
from storage.log.writer import Shard, ShardLog

__all__ = [
    "CACHE_ENTRY_BYTES",
    "CHUNK_BYTES",
    "MAX_DELAY_MS",
    "MAX_OFFSET",
    "MAX_U64",
    "READ_BYTES",
    "TOPIC_NAME",
    "AppendStep",
    "Appender",
    "BadUnit",
    "BatchesStep",
    "Blocker",
    "Chunk",
    "ControlStep",
    "EncodedUnit",
    "FrameStream",
    "Logs",
    "PersistStep",
    "Reservations",
    "ScannedUnit",
    "Shard",
    "ShardLog",
    "Step",
    "Submission",
    "Surroundings",
    "Unit",
    "UnitScan",
    "WalFetcher",
    "WalFileGone",
    "WalReader",
    "Write",
    "apply_unit",
    "check_cleanup",
    "check_text",
    "check_topic_name",
    "collect_logs",
    "encode_controls",
    "encode_stored",
    "eviction",
    "find_sync_point",
    "no_space",
    "over_caps",
    "position",
    "split",
]
