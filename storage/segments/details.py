"""Sizes and times of the records in segments that floors are moving through: a bounded cache. Source: storage.md §4.

A floor moves through one segment of a log at a time, so few are needed; whoever will move it loads them beforehand,
off the loop. All who need the same segment wait for one load of it, and a floor that comes near the end of a segment
has the next one loaded before anybody needs it. What comes out of a log with a cap or a ttl is known, and is kept as
long as there is room. Those of a log with an eviction under way stay, however many there are.
"""

from __future__ import annotations

import asyncio
import errno
from array import array
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from storage.errors import RecordCorrupt, SegmentUnreadable
from storage.segments.io import SegmentGone, look_into, look_into_here
from storage.state.log import Log
from storage.state.manifest import COLD, Details, Segment

if TYPE_CHECKING:
    from storage.engine import Engine

_log = structlog.get_logger("storage")

#: Records whose details are kept, 12 bytes each.
MAX_RECORDS = 2_000_000
#: Of these so many at most, in so many segments, that nobody has asked for yet: known as they came out of the log.
REMEMBERED_RECORDS, REMEMBERED_SEGMENTS = MAX_RECORDS // 2, 256


class DetailsCache:
    """Loads details, and lets go of those least recently asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: OrderedDict[Segment, Log] = OrderedDict()
        #: Loads under way: one a segment, however many wait for it.
        self._loads: dict[Segment, asyncio.Task[None]] = {}

    async def load(self, log: Log, segment: Segment | None) -> None:
        """Have the details of a segment (None: of none). Raises RecordCorrupt, SegmentUnreadable."""
        if segment is None or segment.details is not None:
            return
        # A caller that goes away does not stop the load: others may wait for it.
        await asyncio.shield(self._loads.get(segment) or self._begin(log, segment))

    def remember(self, log: Log, segment: Segment) -> None:
        """The first records come into this segment: what is known of them in the log is kept from there on, if a floor
        will move through it and there is room, and nobody has to read it back."""
        topic = self._engine.catalog.by_id.get(log.topic_id)
        if topic is None or segment.count or segment.details is not None:
            return
        config = topic.config
        if not (config.cap_records or config.most_bytes or config.ttl_ms):
            return
        if len(self._kept) < REMEMBERED_SEGMENTS and self._records() < REMEMBERED_RECORDS:
            segment.details = Details(array("I"), array("Q"))
            self._kept[segment] = log

    def look_ahead(self, log: Log, seq: int) -> None:
        """A floor is at `seq`, inside a segment: have the next one loaded when that comes to its end."""
        following = log.held.next_to_measure(seq) if seq <= log.held.absorbed else None
        if following is not None and following not in self._loads:
            self._begin(log, following)

    def _begin(self, log: Log, segment: Segment) -> asyncio.Task[None]:
        task = self._loads[segment] = self._engine.loop.create_task(self._load(log, segment), name="storage-details")
        task.add_done_callback(lambda done: self._ended(segment, done))
        return task

    def _ended(self, segment: Segment, task: asyncio.Task[None]) -> None:
        del self._loads[segment]
        if not task.cancelled():
            task.exception()  # looked at: of what was loaded ahead nobody waits

    async def close(self) -> None:
        """No load is under way any more."""
        loads = [*self._loads.values()]
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def load_to_evict(self, log: Log, segment: Segment | None) -> None:
        """The same for a cap that must be kept: of a segment that will not be readable again they are assumed, for as
        long as it is there. So damage in the oldest records keeps nobody from writing. Raises SegmentUnreadable where
        waiting may help: without memory or descriptors, or without the cold store."""
        try:
            await self.load(log, segment)
        except (RecordCorrupt, SegmentUnreadable) as error:
            assert segment is not None
            if isinstance(error, SegmentUnreadable) and not _says_eio(error):
                raise
            if segment.details is None and segment.live >= 0:
                segment.assume()
                _log.error("segment_sizes_assumed", topic_id=log.topic_id, error=error.message)

    async def _load(self, log: Log, segment: Segment) -> None:
        with suppress(SegmentGone):  # the segment has gone: who asked looks again
            await self._read(log, segment)

    async def _read(self, log: Log, segment: Segment) -> None:
        engine, details = self._engine, None
        if segment.tier == COLD:
            # Writes wait for this (caps): what is kept here must do, so that none of them waits for the cold store.
            details = await look_into_here(engine.logs, log, segment, engine.store.kept_details, log.topic_id, segment)
        if details is None:
            details = await look_into(engine.logs, log, segment, engine.store.details, log.topic_id, segment)
        if segment.details is None and len(details.payloads) == segment.count:
            segment.details = details
            self._kept[segment] = log
            self._shrink()

    def _records(self) -> int:
        return sum(segment.count for segment in self._kept if segment.details is not None)

    def _shrink(self) -> None:
        kept = self._records()
        for segment, log in list(self._kept.items()):
            if segment.details is None:
                del self._kept[segment]
            elif kept > MAX_RECORDS and log.assigned_floor == log.marks.live_floor and len(self._kept) > 1:
                segment.details = None
                del self._kept[segment]
                kept -= segment.count


def _says_eio(error: SegmentUnreadable) -> bool:
    """Whether the disk itself could not read, rather than somebody lack what it takes to ask."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
