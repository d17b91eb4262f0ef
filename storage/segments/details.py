"""A bounded cache of the sizes and times of records in segments that a floor (of a cap or a ttl) moves through.

A floor moves through one segment of a log at a time, so few segments need details. They are loaded on the I/O pool
before the floor moves, and everybody who needs the same segment waits for one load. When a log has a cap or a ttl, the
details of flushed records are kept as long as there is room. Otherwise the segments ahead of a floor are loaded before
a write needs them. While an eviction is in progress in a log, its details stay.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import asyncio
import errno
from array import array
from collections import OrderedDict
from contextlib import suppress
from itertools import islice

import structlog

from storage.errors import RecordCorrupt, SegmentUnreadable
from storage.segments.io import SegmentGone, run_local_job, run_segment_job
from storage.segments.segments import Segments
from storage.state import COLD, Details, Log, Segment, Times

_log = structlog.get_logger("storage")

#: Memory for details: 4 bytes a record, and 12 for each time that differs from the one before.
MAX_BYTES = 24_000_000
#: Most memory, and most segments, for details that are kept from the flush.
REMEMBERED_BYTES, REMEMBERED_SEGMENTS = MAX_BYTES * 2 // 3, 1024
#: This many segments ahead of a floor are loaded, if they begin within this many records. A load takes some ten
#: milliseconds on a busy broker, and in that time writes may evict several segments.
AHEAD_SEGMENTS, AHEAD_RECORDS = 8, 60_000
_LOOKS_A_SEGMENT = 32
#: The most loads ahead at a time, because reads use the same threads.
_LOADS_AHEAD = 2


class DetailsCache:
    """Loads details, and drops those that floors will need last."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._logs = segments.logs
        self._cache: OrderedDict[Segment, Log] = OrderedDict()
        #: More than half of the memory is taken: floors look no further ahead than the next segment.
        self._crowded = False
        #: Loads in progress: one a segment, however many wait for it.
        self._loads: dict[Segment, asyncio.Task[None]] = {}

    async def load(self, log: Log, segment: Segment | None) -> None:
        """Load the details of a segment (None: nothing). Raises RecordCorrupt, SegmentUnreadable."""
        if segment is None or segment.details is not None:
            return
        # A caller that goes away does not stop the load: others may wait for it.
        await asyncio.shield(self._loads.get(segment) or self._begin(log, segment))

    def remember(self, log: Log, segment: Segment) -> None:
        """The first records are about to be flushed into this segment: keep their details, if a floor will need them
        and there is room, so that nobody has to read them back."""
        if not segment.count and segment.details is None and self.wants(log):
            segment.details = Details(array("I"), Times())
            self.keep(log, segment)

    def wants(self, log: Log) -> bool:
        """Whether a floor will need the details of what is flushed, and there is room for them."""
        topic = self._logs.catalog.by_id.get(log.topic_id)
        if topic is None:
            return False
        config = topic.config
        if not (config.cap_records or config.most_bytes or config.ttl_ms):
            return False
        if len(self._cache) >= REMEMBERED_SEGMENTS:
            self._drop_gone()
        return len(self._cache) < REMEMBERED_SEGMENTS and self._size_bytes() < REMEMBERED_BYTES

    def keep(self, log: Log, segment: Segment) -> None:
        """Count the details of this segment, if it has any, and drop them like loaded ones."""
        if segment.details is not None:
            self._cache[segment] = log

    def look_ahead(self, log: Log, seq: int) -> None:
        """A floor is at `seq`: load the segments that it comes to next. Checks only a few times in each segment."""
        held = log.held
        if seq < held.look_ahead_from or (within := held.manifest.containing(seq)) is None:
            return
        held.look_ahead_from = seq + max(1, within.count // _LOOKS_A_SEGMENT)
        wanted = held.manifest.unmeasured(seq, 1 if self._crowded else AHEAD_SEGMENTS, AHEAD_RECORDS)
        for segment in islice(wanted, _LOADS_AHEAD):
            if segment not in self._loads:
                self._begin(log, segment)

    def _begin(self, log: Log, segment: Segment) -> asyncio.Task[None]:
        task = self._loads[segment] = self._logs.runtime.loop.create_task(
            self._load(log, segment), name="storage-details"
        )
        task.add_done_callback(lambda done: self._ended(segment, done))
        return task

    def _ended(self, segment: Segment, task: asyncio.Task[None]) -> None:
        del self._loads[segment]
        if not task.cancelled():
            task.exception()  # retrieve it: nobody may be waiting for a load ahead

    async def close(self) -> None:
        """No load is in progress any more."""
        loads = [*self._loads.values()]
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def load_to_evict(self, log: Log, segment: Segment | None) -> None:
        """The same for a cap. When a segment is damaged for good, its details are assumed, so that damage in the oldest
        records does not block writes. Raises SegmentUnreadable when waiting may help: when memory, descriptors or
        the cold store are not available."""
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
        with suppress(SegmentGone):  # the segment is gone: the caller looks again
            await self._read(log, segment)

    async def _read(self, log: Log, segment: Segment) -> None:
        logs, store, details = self._logs, self._segments.store, None
        if segment.tier == COLD:
            # Writes wait for this (caps), so local files are used: no write may wait for the cold store.
            details = await run_local_job(logs, log, segment, store.cached_details, log.topic_id, segment)
        if details is None:
            details = await run_segment_job(logs, log, segment, store.details, log.topic_id, segment)
        if segment.details is None and len(details.payloads) == segment.count:
            segment.details = details
            self._cache[segment] = log
            self._shrink()

    def _size_bytes(self) -> int:
        size = sum(segment.details.size_bytes for segment in self._cache if segment.details is not None)
        self._crowded = size > MAX_BYTES // 2
        return size

    def _drop_gone(self) -> None:
        """Forget segments without details, and those that no floor will reach."""
        catalog = self._logs.catalog
        for segment, log in list(self._cache.items()):
            if segment.details is None or catalog.log(log.topic_id) is not log or (segment.sealed and not segment.live):
                del self._cache[segment]

    def _shrink(self) -> None:
        self._drop_gone()
        size = self._size_bytes()
        # First drop segments that floors reach later: one that a floor is in would be loaded again at once.
        for in_use in (False, True):
            for segment, log in list(self._cache.items()):
                if size <= MAX_BYTES or len(self._cache) <= 1:
                    return
                floor = log.assigned_floor
                if segment.details is None or floor != log.marks.live_floor:
                    continue
                if (segment.first_seq <= floor < segment.end_seq) == in_use:
                    size -= segment.details.size_bytes
                    segment.details = None
                    del self._cache[segment]


def _says_eio(error: SegmentUnreadable) -> bool:
    """Whether the disk failed, rather than memory or descriptors being short."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
