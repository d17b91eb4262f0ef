"""Time-to-live: evicts expired records, of idle topics too.

A record is expired iff now - ts > ttl_ms. An EvictWatermark is synced before the floor moves.

Source: docs/reference/api.md#topics, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from storage.errors import DataError, RecordCorrupt, TopicFull, Unavailable
from storage.format import FrameType, control
from storage.log import Logs, encode_controls
from storage.platform import in_slices
from storage.records import LossCause
from storage.segments import DetailsCache
from storage.state import Segment, Topic
from storage.topics.producers import Producers


class Expiry:
    """Readers, writers and a worker ask for evictions; each log has at most one in flight."""

    def __init__(self, logs: Logs, details: DetailsCache, producers: Producers) -> None:
        self._logs = logs
        self._details = details
        self._producers = producers
        self._pending: dict[int, asyncio.Future[int | None]] = {}

    def due(self, topic: Topic, *, loaded: bool = False) -> int:
        """The floor that the ttl requires now; 0 when nothing has expired. May read a segment, unless `prepare` did.

        `loaded`: it reads none. A segment that could not be loaded expires only as a whole.
        """
        if not topic.config.ttl_ms:
            return 0
        log = topic.log
        first = log.earliest_seq  # records that were deleted are not lost to the ttl too
        floor = log.held.expired_floor(first, self._oldest_ms(topic), log.head + 1, loaded=loaded)
        return floor if floor > first else 0

    def _oldest_ms(self, topic: Topic) -> int:
        return max(0, self._logs.now_ms() - topic.config.ttl_ms)

    def _wants(self, topic: Topic) -> Segment | None:
        """The segment with the oldest record, if its details are needed to find its expired records."""
        return topic.log.held.expiry_wants(topic.log.earliest_seq, self._oldest_ms(topic))

    async def prepare(self, topic: Topic) -> None:
        """Load the details of the oldest segment that `due` needs."""
        if topic.config.ttl_ms:
            await self._details.load(topic.log, self._wants(topic))

    def may_be_due(self, topic: Topic) -> bool:
        """Whether records have expired, or may have; reads no file."""
        return self.due(topic, loaded=True) > 0 or bool(topic.config.ttl_ms and self._wants(topic))

    async def make_room(self, topic: Topic, full: TopicFull) -> None:
        """Evict expired records, for a write that found its topic full. Raises `full` when none have expired, or when
        damage hides them, and the errors of the log."""
        with suppress(RecordCorrupt):
            await self.prepare(topic)
        if not self.due(topic, loaded=True):
            raise full
        await self._expire(topic)

    async def expire(self, topic: Topic) -> None:
        """Evict expired records. Raises the errors of the log."""
        await self.prepare(topic)
        await self._expire(topic)

    async def _expire(self, topic: Topic) -> None:
        floor = self.due(topic, loaded=True)
        if not floor:
            return
        log = topic.log
        pending = self._pending.get(log.topic_id)
        if pending is None:
            value = control.EvictWatermark(floors={LossCause.TTL: floor}, jobs=log.lost_below(floor))
            if log.in_memory_only and log.topic_id not in self._logs.changing:
                self._logs.catalog.apply(FrameType.EVICT_WATERMARK, log.topic_id, self._logs.now_ms(), value)
                return
            encoded = encode_controls([value], log.topic_id, self._logs.now_ms())
            pending = self._logs.submit_controls(log, encoded, frees=True)
            self._pending[log.topic_id] = pending
            pending.add_done_callback(lambda _: self._pending.pop(log.topic_id, None))
        await asyncio.shield(pending)

    async def expire_if_possible(self, topic: Topic) -> None:
        """`expire`, without errors of the log or of segments: reads leave out expired records anyway."""
        with suppress(Unavailable, DataError):
            await self.prepare(topic)
        if self.due(topic, loaded=True) and self._logs.shards[topic.log.shard].log.failed is None:
            with suppress(Unavailable):
                await self._expire(topic)

    async def let_expire(self, topics: Sequence[Topic]) -> bool:
        """`expire_if_possible` for all partitions of these topics. False: there was nothing to do."""
        due = [
            each for topic in topics if topic.config.ttl_ms for each in (topic, *topic.others) if self.may_be_due(each)
        ]
        await asyncio.gather(*map(self.expire_if_possible, due))
        return bool(due)

    async def tick(self) -> None:
        """The worker's round over all topics."""
        async for topic in in_slices(list(self._logs.catalog.topics.values()), self._logs.clock):
            if topic.config.ttl_ms:
                await self.expire_if_possible(topic)
            self._producers.expire(topic.log)
            if topic.log.keys is not None:
                dropped = topic.log.keys.expire(self._logs.now_ms(), topic.config.idempotency_window_ms)
                self._logs.catalog.usage.keys -= dropped
                if dropped:
                    topic.log.section = None
