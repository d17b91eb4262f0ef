"""Records of a source as all filtered routers out of it see them: read once, matched once a tag, for all of them.

Each of twenty routers would read every record to find its twentieth. Instead whoever comes first reads a window of the
source without a filter, and the others find their records in it by tag. A router that is elsewhere has a window of its
own; those that have caught up are all at the head again. Source: api.md §4.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from storage.reads.reader import ROUTING_SCAN_RECORDS
from storage.records.stretch import Stretch, parts_of
from storage.records.values import ReadQuery, ReadResult, StoredRecord, TagMatch
from storage.state.catalog import Topic

if TYPE_CHECKING:
    from storage.engine import Engine

#: Of one window; and of windows that are kept, over all sources: those that fell behind have their own.
WINDOW_BYTES: Final = 2 << 20
MAX_WINDOWS: Final = 8
#: A window is what the source held when it was read, and no longer used than this: what is deleted is soon not copied.
MAX_AGE_NS: Final = 1_000_000_000

_seq_of = attrgetter("seq")


class Window:
    """What was read of a source behind `from_seq`, with nothing lost or damaged in it."""

    __slots__ = ("_by_tag", "_matched", "_result", "from_seq", "live", "read_ns")

    def __init__(self, from_seq: int, result: ReadResult, live: int, read_ns: int) -> None:
        self.from_seq = from_seq
        self.live = live
        self.read_ns = read_ns
        self._result = result
        self._by_tag: dict[bytes, list[StoredRecord]] = {}
        for part in parts_of(result.records):
            if not isinstance(part, Stretch):  # else none has a tag, and none fits any filter
                for record in part:
                    self._by_tag.setdefault(record.tag, []).append(record)
        self._by_tag.pop(b"", None)
        self._matched: dict[TagMatch, list[StoredRecord]] = {}

    @property
    def next_from_seq(self) -> int:
        """The last seq that was looked at."""
        return self._result.next_from_seq

    def matching(self, match: TagMatch) -> list[StoredRecord]:
        """Those that a filter lets through, by seq."""
        found = self._matched.get(match)
        if found is None:
            if not match.prefix:
                found = self._by_tag.get(match.text, [])
            else:
                parts = [records for tag, records in self._by_tag.items() if match.matches(tag)]
                found = parts[0] if len(parts) == 1 else sorted((each for part in parts for each in part), key=_seq_of)
            self._matched[match] = found
        return found

    def result(self, query: ReadQuery) -> ReadResult:
        """What this read of the source gives, if it begins in here."""
        assert query.tag is not None
        records: Sequence[StoredRecord] = self.matching(query.tag)
        if records and records[0].seq <= query.from_seq:
            records = records[bisect_right(records, query.from_seq, key=_seq_of) :]
        most = bisect_right([*accumulate([len(each.body) for each in records[: query.limit]])], query.max_bytes)
        taken = records[: max(1, most)]
        result, reached = self._result, self.next_from_seq
        return ReadResult(
            topic=result.topic,
            records=taken,
            next_from_seq=reached if len(taken) == len(records) else taken[-1].seq,
            head_seq=result.head_seq,
            earliest_seq=result.earliest_seq,
            records_scanned=len(taken),
            hops=result.hops,
        )


class Windows:
    """The windows of an engine's sources, those read last."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kept: OrderedDict[tuple[int, int], Window] = OrderedDict()
        #: Reads under way, by topic_id and where they begin.
        self._reading: dict[tuple[int, int], asyncio.Task[ReadResult]] = {}
        #: How many were read, ever.
        self.reads = 0

    async def read(self, source: Topic, query: ReadQuery) -> ReadResult:
        """As `Reader.read` of a router's query. Raises as that does."""
        if query.tag is None or len(self._engine.catalog.routes.out_of.get(source.topic_id, ())) < 2:
            return await self._engine.reader.read(source, query)
        window = self._find(source, query.from_seq)
        if window is None:
            window = await self._read(source, query.from_seq)
        return await self._engine.reader.read(source, query) if window is None else window.result(query)

    def _find(self, source: Topic, from_seq: int) -> Window | None:
        """The window that `from_seq` is in, if the source still holds what it did."""
        now_ns = self._engine.clock.monotonic_ns()
        for (topic_id, _), window in self._kept.items():
            if topic_id == source.topic_id and window.from_seq <= from_seq < window.next_from_seq:
                if now_ns - window.read_ns <= MAX_AGE_NS and _live(source, window) == window.live:
                    return window
                del self._kept[topic_id, window.from_seq]
                return None
        return None

    async def _read(self, source: Topic, from_seq: int) -> Window | None:
        """None: something is lost or damaged there, which each router has to say to its dest by itself."""
        key = (source.topic_id, from_seq)
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = self._engine.loop.create_task(self._read_source(source, from_seq))
            task.add_done_callback(lambda task: self._ended(key, task))
        await asyncio.wait([task])  # whoever goes away does not end it for the others
        return self._find(source, from_seq) if task.result().next_from_seq > from_seq else None

    def _ended(self, key: tuple[int, int], task: asyncio.Task[ReadResult]) -> None:
        del self._reading[key]
        if not task.cancelled():
            task.exception()  # looked at: whoever asked may have gone

    async def _read_source(self, source: Topic, from_seq: int) -> ReadResult:
        self.reads += 1
        query = ReadQuery(
            from_seq=from_seq,
            limit=ROUTING_SCAN_RECORDS,
            max_bytes=WINDOW_BYTES,
            skip_corrupt=True,
            routing=True,
        )
        result = await self._engine.reader.read(source, query)
        lost = result.tombstone is not None or result.corrupt_seqs or source.log.marks.trim_floor > from_seq + 1
        if not lost and result.next_from_seq > from_seq:
            window = Window(from_seq, result, 0, self._engine.clock.monotonic_ns())
            window.live = _live(source, window)
            self._kept[source.topic_id, from_seq] = window
            while len(self._kept) > MAX_WINDOWS:
                self._kept.popitem(last=False)
        return result

    def forget(self) -> None:
        """Nobody has anything to carry: what was read is let go of."""
        self._kept.clear()

    async def stop(self) -> None:
        """No read is under way any more."""
        reading = [*self._reading.values()]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


def _live(source: Topic, window: Window) -> int:
    """How many records of the window's range the source holds now: none comes back, so as many are the same ones."""
    log = source.log
    first = max(window.from_seq + 1, log.marks.live_floor)
    if log.marks.trim_floor > window.from_seq + 1:
        return -1
    return log.held.count_from(first, window.next_from_seq + 1)
