"""Serves reads of other cells from topics of this cell: the source's side of routers between cells.

All methods may be called twice, late or needlessly. They only read, except that one creates a topic for a router.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import kernel
from storage.errors import EpochConflict, TopicNotFound
from storage.log import Logs
from storage.platform import Method
from storage.records import FrameRecords, ReadQuery, StoredRecord, TopicConfig, TopicType, parts_of
from storage.routers.sources import OwnSource, consumed_to
from storage.routers.waiting import Waiting
from storage.routers.windows import Picked, Windows, framed
from storage.state import Topic, check_unpartitioned, tag_match
from storage.topics import TopicAdmin

#: The most sources whose readers are remembered, and the most routers of each.
MAX_SOURCES: Final = 4096
MAX_READERS: Final = 64


class Departures:
    """The methods that other cells call about sources. Used only on the event loop."""

    def __init__(self, logs: Logs, topics: TopicAdmin, windows: Windows, waiting: Waiting) -> None:
        self._logs = logs
        self._topics = topics
        self._windows = windows
        self._waiting = waiting
        #: By topic_id: the source, and routers of other cells that have read it lately.
        self._sources: OrderedDict[int, tuple[OwnSource, set[int]]] = OrderedDict()

    @property
    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "source_begin": self._begin,
            "source_unmake": self._unmake,
            "source_wait": self._wait,
            "source_read": self._read,
            "source_caught_up": self._caught_up,
        }

    def _find(self, topic_id: int) -> Topic | None:
        self._logs.check_open()
        return self._logs.catalog.by_id.get(topic_id)

    async def _begin(self, argument: Any) -> tuple[int, int, int, bool, int]:
        """(topic_id, head, first live seq, whether it was made now, epoch) of the topic of that name."""
        name = argument
        self._logs.check_open()
        check_unpartitioned(self._logs.catalog, name, "the source of a router", "source")
        there = self._logs.catalog.topics.get(name)
        made = False
        if there is None or there.provisional:
            made = await self._topics.put(name, TopicConfig() if there is None else there.config)
        topic = self._logs.topic(name)
        return topic.topic_id, topic.log.head, topic.log.marks.live_floor, made, topic.log.epoch

    async def _unmake(self, argument: Any) -> None:
        """Delete a topic that was made for a refused router, unless it is used by now."""
        topic_id, name = argument
        if self._find(topic_id) is not None:
            await self._topics.delete(name, if_empty=True)

    async def _wait(self, argument: Any) -> tuple[int, bool, int, list[tuple[int, int]]] | None:
        """(head, whether it is a queue, epoch, renewed epochs as in `Log.renewals`) of the topic, as soon as its head
        is above `seq` or the wait is over. None if it is gone."""
        topic_id, seq, wait_s = argument
        topic = self._find(topic_id)
        if topic is None:
            return None
        if topic.log.head <= seq and wait_s:
            try:
                await self._logs.publisher.wait(topic, seq, wait_s * 1000)
            except TopicNotFound:
                return None
        log = topic.log
        return log.head, topic.config.type is TopicType.QUEUE, log.epoch, log.renewals

    async def _caught_up(self, argument: Any) -> tuple[int, list[str], int] | None:
        """(head, blocked routers, epoch) of the topic, once it has what its own sources have now. None if it is
        gone."""
        topic_id, hops = argument
        topic = self._find(topic_id)
        if topic is None:
            return None
        blocked = await self._waiting.wait_caught_up(topic_id, hops)
        return topic.log.head, blocked, topic.log.epoch

    async def _read(self, argument: Any) -> list[Any] | None:
        """Records for a router, as `ForeignSource.read` takes them. None if the topic is gone. Raises EpochConflict if
        `from_seq` is of another epoch."""
        topic_id, router_id, from_seq, limit, max_bytes, tag, epoch = argument
        topic = self._find(topic_id)
        if topic is None:
            return None
        if epoch != topic.log.epoch:
            raise EpochConflict(topic.name, epoch, topic.log.epoch)
        source, readers = self._source(topic)
        if len(readers) < MAX_READERS:
            readers.add(router_id)
        query = ReadQuery(
            from_seq=from_seq,
            limit=limit,
            max_bytes=max_bytes,
            tag=None if tag is None else tag_match(tag),
            skip_corrupt=True,
            routing=True,
        )
        try:
            found = await self._windows.read(topic, query, readers=len(readers))
        except TopicNotFound:
            return None
        await source.harden_for_others(found.next_from_seq)
        lost = None if found.tombstone is None else (found.tombstone.gap_to, found.tombstone.reason)
        hops = [*found.hops.items()] if found.hops else None
        parts = _encoded(topic_id, found.records)
        consumed = consumed_to(topic, found)
        return [topic.log.head, consumed, found.next_from_seq, lost, found.corrupt_seqs, hops, parts]

    def forget(self) -> None:
        """Forget topics that are gone."""
        for topic_id in [each for each in self._sources if each not in self._logs.catalog.by_id]:
            del self._sources[topic_id]

    def _source(self, topic: Topic) -> tuple[OwnSource, set[int]]:
        found = self._sources.get(topic.topic_id)
        if found is None:
            found = self._sources[topic.topic_id] = OwnSource(self._logs, self._windows, topic), set[int]()
            while len(self._sources) > MAX_SOURCES:
                self._sources.popitem(last=False)
        return found


def _encoded(topic_id: int, records: Sequence[StoredRecord]) -> tuple[bytes, bytes] | None:
    """(seqs, frames) of these records; None if there are none. The frames are numbered from 1 on."""
    if not records:
        return None
    frames: list[bytes] = []
    seqs = array("Q")
    if isinstance(records, Picked):
        window, numbers = records.window, records.numbers
        parts: Sequence[Sequence[StoredRecord]] = window.frames(numbers)
        seqs.extend(map(window.seqs.__getitem__, numbers))
    else:
        parts = parts_of(records)
        for part in parts:
            seqs.extend(part.seqs if isinstance(part, FrameRecords) else [record.seq for record in part])
    first = 1
    for part in parts:
        of_part = part if isinstance(part, FrameRecords) else framed(part)
        header = kernel.Header(topic_id, first, 0, b"", 0)
        encoded, _ = kernel.encode_copies(of_part.buffer, of_part.columns, header)
        frames.append(encoded)
        first += len(part)
    return seqs.tobytes(), b"".join(frames)
