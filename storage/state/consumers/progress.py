"""Which records of a log a consumer has not read, and which all consumers have consumed for good. Pure.

Only durable cursors count for the latter: the log's own frames state them, and a crash cannot take them back below the
EvictWatermark that follows them in the same log.

Source: docs/reference/guarantees.md#consumers.
"""

from __future__ import annotations

from storage.records import Retention, TopicConfig
from storage.state.log import Log


def consumed_floor(config: TopicConfig, log: Log) -> int:
    """The lowest seq that a consumer may still read; 1 where consumption deletes nothing, or there is no consumer."""
    if config.retention is not Retention.CONSUMED:
        return 1
    lowest = log.consumers.lowest_durable()
    return 1 if lowest is None else min(lowest, log.head) + 1


def reclaimable_floor(config: TopicConfig, log: Log) -> int | None:
    """The end of the newest sealed segment that all consumers have consumed; None when no record would go."""
    consumed = consumed_floor(config, log)
    floor = log.held.manifest.sealed_end(consumed) if consumed > log.marks.live_floor else 0
    return floor if floor > log.marks.live_floor else None


def unread(log: Log, cursor_seq: int) -> int:
    """Live records after a cursor. Retained records before it add no cost."""
    seq = max(cursor_seq + 1, log.marks.live_floor)
    if seq > log.head:
        return 0
    return log.held.count_from(seq, log.head + 1)
