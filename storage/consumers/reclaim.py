"""Deletes records that all consumers have consumed, one sealed segment at a time.

No worker scans for such segments. Some frames may allow a segment to go: a cursor or the deletion of the slowest
consumer, a seal, a config. The commit of such a frame notes its log. When the commits of the group are done, the log's
lowest durable cursor is compared with the ends of its segments; both are in memory. No reader waits for this.

1. EvictWatermark{consumed: end of the segment} is written to the log, after the cursors that justify it, and synced.
   Crash before: the next start notes the log again. The sync covers the cursors too, whatever the topic's class.
2. The frame is applied: readers no longer see the records, and no loss is announced.
3. Housekeeping drops the segments like all dead ones: Segment{dropped} is synced, then the files go.

Source: docs/reference/guarantees.md#consumed-retention, docs/reference/api.md#consumers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from storage.errors import StorageError
from storage.format import control
from storage.log import encode_controls
from storage.platform import in_slices
from storage.records import LossCause, Retention
from storage.state import Log
from storage.state.consumers.progress import reclaimable_floor

if TYPE_CHECKING:
    from storage.log import Logs

_log = structlog.get_logger("storage")


class Reclaim:
    """Has at most one floor in flight for each log."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        #: Logs to examine, and logs whose floor is in flight.
        self._noted: set[int] = set()
        self._pending: dict[int, asyncio.Future[int | None]] = {}
        #: Logs whose floor could not be written, and logs that were not examined since the start.
        self._again: set[int] = set()
        self._begun = False
        #: Counters for the metrics: records deleted, floors that could not be written.
        self.records = 0
        self.failures = 0

    def note(self, log: Log) -> None:
        """A commit may allow segments of this log to go; examine it soon. Raises nothing."""
        topic = self._logs.catalog.by_id.get(log.topic_id)
        if topic is None or topic.config.retention is not Retention.CONSUMED:
            return
        if not self._noted:
            self._logs.runtime.loop.call_soon(self._look)
        self._noted.add(log.topic_id)

    def _look(self) -> None:
        noted, self._noted = self._noted, set()
        for topic_id in sorted(noted):
            self._reclaim(topic_id)

    def _reclaim(self, topic_id: int) -> None:
        logs = self._logs
        topic = logs.catalog.by_id.get(topic_id)
        if logs.closing or topic is None or topic_id in self._pending:
            return  # no frame may follow the snapshot of a clean stop; logs in flight are examined when they end
        if logs.shards[topic.log.shard].log.failed is not None:
            return
        floor = reclaimable_floor(topic.config, topic.log)
        if floor is None:
            return
        if topic_id in logs.unannounced_losses:
            self._again.add(topic_id)  # the log's losses must be written first
            return
        value = control.EvictWatermark(floors={LossCause.CONSUMED: floor})
        encoded = encode_controls([value], topic_id, logs.now_ms())
        done = self._pending[topic_id] = logs.submit_controls(topic.log, encoded, frees=True)
        done.add_done_callback(lambda done: self._on_written(topic_id, done))

    def _on_written(self, topic_id: int, done: asyncio.Future[int | None]) -> None:
        del self._pending[topic_id]
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            self.failures += 1
            self._again.add(topic_id)
            _log.warning("reclaim_failed", topic_id=topic_id, error=str(error))
            return
        self.records += done.result() or 0
        self._reclaim(topic_id)  # it was noted while the floor was in flight

    async def tick(self) -> None:
        """Retry floors that could not be written. On return, floors in flight are durable or have failed."""
        if not self._begun:
            self._begun = True
            async for topic in in_slices(list(self._logs.catalog.topics.values()), self._logs.clock):
                if topic.config.retention is Retention.CONSUMED:
                    self._again.add(topic.topic_id)
        again, self._again = self._again, set()
        for topic_id in again | self._noted:
            self._reclaim(topic_id)
        for done in list(self._pending.values()):
            with suppress(StorageError):
                await asyncio.shield(done)
