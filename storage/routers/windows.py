"""Reads a source once for all its filtered routers, and matches each tag once.

Without this, each of twenty routers would read every record to find its twentieth. The first router reads a window of
the source without a filter, and the others find their records in it by tag. A router that is further behind has a
window of its own. Routers that have caught up share the window at the head again.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Final, overload

import msgspec

import kernel
from kernel import Body
from storage.format import is_binary, wal_frame
from storage.log import Logs
from storage.reads import ROUTING_SCAN_RECORDS, Reader
from storage.records import FrameRecords, ReadQuery, ReadResult, Records, StoredRecord, TagMatch, parts_of
from storage.state import Topic

#: Records and bytes of one window, and the most windows over all sources: routers that fell behind have their own.
#: While writers keep the loop busy, a window takes several turns of the loop, whatever is in it.
WINDOW_RECORDS: Final = 4 * ROUTING_SCAN_RECORDS
WINDOW_BYTES: Final = 2 << 20
MAX_WINDOWS: Final = 8
#: A window shows the source as it was when it was read. It is not used for longer than this, so that deletions are soon
#: seen.
MAX_AGE_NS: Final = 1_000_000_000


class Picked(Records):
    """The records of a window that match a filter. `numbers`: their numbers, ascending."""

    __slots__ = ("numbers", "window")

    def __init__(self, window: Window, numbers: Sequence[int]) -> None:
        self.window = window
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[StoredRecord]:
        return map(self.window.records.__getitem__, self.numbers)

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...

    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        if isinstance(index, slice):
            return Picked(self.window, self.numbers[index])
        return self.window.records[self.numbers[index]]


class Window:
    """Records of a source after `from_seq`, none lost or damaged, in columns and grouped by tag."""

    __slots__ = (
        "_by_tag",
        "_matched",
        "_result",
        "followed",
        "from_seq",
        "live",
        "parts",
        "payloads",
        "read_ns",
        "records",
        "seqs",
        "tags",
    )

    def __init__(
        self, from_seq: int, result: ReadResult, live: int, read_ns: int, payloads: array[int] | None = None
    ) -> None:
        """`payloads`: payload bytes of every seq, if they are known."""
        self.from_seq = from_seq
        #: Whether the next window was read ahead.
        self.followed = False
        self.live = live
        self.read_ns = read_ns
        self._result = result
        self.records = result.records
        #: The frames of the records, in order. Seqs and times are in `records` only.
        self.parts: list[FrameRecords] = []
        self.seqs: list[int] = []
        self.tags: list[bytes] = []
        self.payloads: array[int] = array("I")
        for part in parts_of(result.records):
            frames = part if isinstance(part, FrameRecords) else framed(part)
            self.parts.append(frames)
            self.seqs += frames.seqs if part is frames else [record.seq for record in part]
            self.tags += frames.tags()
            if payloads is None or len(payloads) != len(result.records):
                self.payloads += frames.payloads()
        if payloads is not None and len(payloads) == len(result.records):
            self.payloads = payloads
        if (merged := _merged(self.parts)) is not None:
            self.parts = [merged]
            if all(isinstance(part, FrameRecords) for part in parts_of(result.records)):
                self.records = merged
                self._result = msgspec.structs.replace(result, records=())  # their bytes are kept once
        by_tag: defaultdict[bytes, list[int]] = defaultdict(list)
        for number, tag in enumerate(self.tags):
            by_tag[tag].append(number)
        by_tag.pop(b"", None)
        self._by_tag = dict(by_tag)
        self._matched: dict[TagMatch, list[int]] = {}

    def frames(self, numbers: Sequence[int]) -> list[FrameRecords]:
        """The frames with these numbers, ascending."""
        found: list[FrameRecords] = []
        begin = at = 0
        for part in self.parts:
            end = bisect_left(numbers, at + len(part), lo=begin)
            if end > begin:
                found.append(FrameRecords(part.buffer, part.columns.take([each - at for each in numbers[begin:end]])))
            begin, at = end, at + len(part)
        return found

    @property
    def next_from_seq(self) -> int:
        """The last seq that was examined."""
        return self._result.next_from_seq

    def matching(self, match: TagMatch) -> list[int]:
        """The numbers of the records that match a filter, ascending."""
        found = self._matched.get(match)
        if found is None:
            if not match.prefix:
                found = self._by_tag.get(match.text, [])
            else:
                parts = [numbers for tag, numbers in self._by_tag.items() if match.matches(tag)]
                found = parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts))
            self._matched[match] = found
        return found

    def result(self, query: ReadQuery) -> ReadResult:
        """The result of a read of the source that begins in this window."""
        assert query.tag is not None
        numbers: Sequence[int] = self.matching(query.tag)
        if numbers and self.seqs[numbers[0]] <= query.from_seq:
            numbers = numbers[bisect_right(numbers, query.from_seq, key=self.seqs.__getitem__) :]
        taken = numbers[: query.limit]
        sizes = [*map(self.payloads.__getitem__, taken)]
        if sum(sizes) > query.max_bytes:
            taken = taken[: max(1, bisect_right([*accumulate(sizes)], query.max_bytes))]
        result, reached = self._result, self.next_from_seq
        return ReadResult(
            topic=result.topic,
            records=Picked(self, taken),
            next_from_seq=reached if len(taken) == len(numbers) else self.seqs[taken[-1]],
            head_seq=result.head_seq,
            earliest_seq=result.earliest_seq,
            records_scanned=len(taken),
            hops=result.hops,
        )


class Windows:
    """The windows of an engine's sources that were read last."""

    def __init__(self, logs: Logs, reader: Reader) -> None:
        self._logs = logs
        self._reader = reader
        self._windows: OrderedDict[tuple[int, int], Window] = OrderedDict()
        #: Reads in progress, by topic_id and the seq after which they begin.
        self._reading: dict[tuple[int, int], asyncio.Task[ReadResult]] = {}
        #: Windows read since the start.
        self.reads = 0

    async def read(self, source: Topic, query: ReadQuery, *, readers: int = 0) -> ReadResult:
        """Like `Reader.read`, for a router's query. `readers`: how many routers of other cells read it."""
        if query.tag is None or readers + len(self._logs.catalog.routes.out_of.get(source.topic_id, ())) < 2:
            return await self._reader.read(source, query)
        window = self._find(source, query.from_seq)
        if window is None:
            window = await self._read(source, query.from_seq)
        if window is None:
            return await self._reader.read(source, query)
        if not window.followed and source.log.head - window.next_from_seq >= WINDOW_RECORDS:
            window.followed = True
            self._begin(source, window.next_from_seq)  # it is read while this one is copied
        return window.result(query)

    def _find(self, source: Topic, from_seq: int) -> Window | None:
        """The window that contains `from_seq`, if the source still has the same records."""
        now_ns = self._logs.clock.monotonic_ns()
        for (topic_id, _), window in self._windows.items():
            if topic_id == source.topic_id and window.from_seq <= from_seq < window.next_from_seq:
                if now_ns - window.read_ns <= MAX_AGE_NS and _live(source, window) == window.live:
                    return window
                del self._windows[topic_id, window.from_seq]
                return None
        return None

    async def _read(self, source: Topic, from_seq: int) -> Window | None:
        """Read a window. None if records are lost or damaged there: each router has to report that to its
        destination."""
        task = self._begin(source, from_seq)
        await asyncio.wait([task])  # a cancelled caller does not end the read for the others
        return self._find(source, from_seq) if task.result().next_from_seq > from_seq else None

    def _begin(self, source: Topic, from_seq: int) -> asyncio.Task[ReadResult]:
        """The read of the window that begins there. It is started if it is not in progress."""
        key = (source.topic_id, from_seq)
        task = self._reading.get(key)
        if task is None:
            task = self._reading[key] = self._logs.runtime.loop.create_task(self._read_source(source, from_seq))
            task.add_done_callback(lambda task: self._ended(key, task))
        return task

    def _ended(self, key: tuple[int, int], task: asyncio.Task[ReadResult]) -> None:
        del self._reading[key]
        if not task.cancelled():
            task.exception()  # retrieve it: the caller may have gone

    async def _read_source(self, source: Topic, from_seq: int) -> ReadResult:
        self.reads += 1
        query = ReadQuery(
            from_seq=from_seq,
            limit=WINDOW_RECORDS,
            max_bytes=WINDOW_BYTES,
            skip_corrupt=True,
            routing=True,
        )
        result = await self._reader.read(source, query)
        lost = result.tombstone is not None or result.corrupt_seqs or source.log.marks.trim_floor > from_seq + 1
        if not lost and result.next_from_seq > from_seq:
            log = source.log
            in_tail = log.held.flushed <= from_seq
            payloads = log.tail.payloads(from_seq + 1, result.next_from_seq + 1) if in_tail else None
            window = Window(from_seq, result, 0, self._logs.clock.monotonic_ns(), payloads)
            window.live = _live(source, window)
            self._windows[source.topic_id, from_seq] = window
            while len(self._windows) > MAX_WINDOWS:
                self._windows.popitem(last=False)
        return result

    def forget(self) -> None:
        """Release the windows: no router has anything to copy."""
        self._windows.clear()

    async def stop(self) -> None:
        """Cancel reads. On return none is in progress."""
        reading = [*self._reading.values()]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


def _merged(parts: Sequence[FrameRecords]) -> FrameRecords | None:
    """The same records in one buffer, so that a router's choice from it costs the same however many batches there were.
    None if they have one buffer already, or other bytes are between the frames of a part."""
    if len(parts) < 2:
        return None
    pieces: list[bytes] = []
    count = 0
    for part in parts:
        columns = part.columns
        (begin, *_, header), end = columns.row(0), columns.end
        if header != wal_frame.HEADER_SIZE or end - begin != sum(columns.sizes):
            return None
        pieces.append(part.buffer if end - begin == len(part.buffer) else part.buffer[begin:end])
        count += len(part)
    buffer = b"".join(pieces)
    columns = kernel.scan(buffer, verify=False).columns
    return FrameRecords(buffer, columns) if len(columns) == count else None


def framed(records: Sequence[StoredRecord]) -> FrameRecords:
    """Frames with the same nodes, tags and bodies."""
    _, _, nodes, tags, bodies = zip(*records, strict=True)
    kinds = bytes([Body.STORED_BINARY if is_binary(body) else Body.STORED_JSON for body in bodies])
    buffer, _ = kernel.encode_appends(bodies, None, tags, kernel.Header(0, 1, 0, b"", 0), nodes=nodes, bodies=kinds)
    return FrameRecords(buffer, kernel.scan(buffer, verify=False).columns)


def _live(source: Topic, window: Window) -> int:
    """How many records of the window's range the source has now. Records never come back, so an equal number means the
    same records."""
    log = source.log
    first = max(window.from_seq + 1, log.marks.live_floor)
    if log.marks.trim_floor > window.from_seq + 1:
        return -1
    return log.held.count_from(first, window.next_from_seq + 1)
