"""What every consumer of a log has passed for good, and what of it can go. Pure. Source: storage.md §9.

Only durable cursors count: those that the log's own frames say, and that a crash does not take back behind the
EvictWatermark that follows them in the same log.
"""

from __future__ import annotations

from storage.config import Retention, TopicConfig
from storage.state.log import Log


def passed_floor(config: TopicConfig, log: Log) -> int:
    """Lowest seq that a consumer may still ask for; 1 where consumption decides nothing, as where there is none."""
    if config.retention is not Retention.CONSUMED:
        return 1
    lowest = log.consumers.lowest_durable()
    return 1 if lowest is None else min(lowest, log.head) + 1


def reclaimable_floor(config: TopicConfig, log: Log) -> int | None:
    """The end of the newest sealed segment that all consumers have passed; None when nothing would go by it."""
    passed = passed_floor(config, log)
    floor = log.held.manifest.sealed_end(passed) if passed > log.marks.live_floor else 0
    return floor if floor > log.marks.live_floor else None
