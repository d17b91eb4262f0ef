"""Time-to-live: moves floors past expired records, for idle topics too.

A record is expired iff now - ts > ttl_ms. The EvictWatermark that says so is synced before the floor moves.

Source: docs/reference/api.md#topics, docs/reference/format.md#evictwatermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.errors import DataError, RecordCorrupt, TopicFull, Unavailable
from storage.format import control
from storage.format.wal_frame import FrameType
from storage.log.encode import encode_controls
from storage.platform.slices import in_slices
from storage.records.values import LossCause
from storage.state.catalog import Topic
from storage.state.manifest import Segment

if TYPE_CHECKING:
    from storage.engine import Engine


class Expiry:
    """One eviction a log at a time; readers and the worker share it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pending: dict[int, asyncio.Future[int | None]] = {}

    def due(self, topic: Topic, *, loaded: bool = False) -> int:
        """The floor that ttl asks for now; 0 when nothing is expired. May read a segment: `prepare` does it before.

        `loaded`: it reads none. Of one that could not be loaded nothing is expired before all of it is.
        """
        if not topic.config.ttl_ms:
            return 0
        log = topic.log
        first = log.earliest_seq  # what was deleted is not lost to the ttl as well
        floor = log.held.expired_floor(first, self._oldest_ms(topic), log.head + 1, loaded=loaded)
        return floor if floor > first else 0

    def _oldest_ms(self, topic: Topic) -> int:
        return max(0, self._engine.now_ms() - topic.config.ttl_ms)

    def _wants(self, topic: Topic) -> Segment | None:
        """The segment in which the oldest record is, if it takes its details to tell what of it is expired."""
        return topic.log.held.expiry_wants(topic.log.earliest_seq, self._oldest_ms(topic))

    async def prepare(self, topic: Topic) -> None:
        """Load what `due` has to know of the segment in which the oldest record is."""
        if topic.config.ttl_ms:
            await self._engine.segments.load(topic.log, self._wants(topic))

    def may_be_due(self, topic: Topic) -> bool:
        """Whether something is expired, or may be for all that is known without reading."""
        return self.due(topic, loaded=True) > 0 or bool(topic.config.ttl_ms and self._wants(topic))

    async def make_room(self, topic: Topic, full: TopicFull) -> None:
        """Evict what is expired for a write that found its topic full. Raises `full` when nothing is, or damage keeps
        it from being told; what keeps the log from saying so."""
        with suppress(RecordCorrupt):
            await self.prepare(topic)
        if not self.due(topic, loaded=True):
            raise full
        await self._expire(topic)

    async def expire(self, topic: Topic) -> None:
        """Evict what is expired. Raises what keeps the log from saying so."""
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
            if log.in_memory_only and log.topic_id not in self._engine.changing:
                self._engine.catalog.apply(FrameType.EVICT_WATERMARK, log.topic_id, self._engine.now_ms(), value)
                return
            encoded = encode_controls([value], log.topic_id, self._engine.now_ms())
            pending = self._engine.submit_controls(log, encoded, frees=True)
            self._pending[log.topic_id] = pending
            pending.add_done_callback(lambda _: self._pending.pop(log.topic_id, None))
        await asyncio.shield(pending)

    async def expire_if_possible(self, topic: Topic) -> None:
        """`expire`, as far as log and segments let it: reads leave out what has expired all the same."""
        with suppress(Unavailable, DataError):
            await self.prepare(topic)
        if self.due(topic, loaded=True) and self._engine.shards[topic.log.shard].log.failed is None:
            with suppress(Unavailable):
                await self._expire(topic)

    async def let_expire(self, topics: Sequence[Topic]) -> bool:
        """`expire_if_possible` of all partitions of these topics. False: there was nothing to do."""
        due = [
            each for topic in topics if topic.config.ttl_ms for each in (topic, *topic.others) if self.may_be_due(each)
        ]
        await asyncio.gather(*map(self.expire_if_possible, due))
        return bool(due)

    async def tick(self) -> None:
        """The worker's round over all topics."""
        async for topic in in_slices(list(self._engine.catalog.topics.values()), self._engine.clock):
            if topic.config.ttl_ms:
                await self.expire_if_possible(topic)
            self._engine.producers.expire(topic.log)
            if topic.log.keys is not None:
                dropped = topic.log.keys.expire(self._engine.now_ms(), topic.config.idempotency_window_ms)
                self._engine.catalog.usage.keys -= dropped
                if dropped:
                    topic.log.section = None
