"""A watcher's subscription to one topic: its position, and its cohort if it is at the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.content import render
from broker.live import frames
from broker.live.cursor import Position
from broker.live.frames import Event
from broker.live.watch_options import Options
from broker.memory import SMALL
from broker.scheduling import READING
from storage import RecordCorrupt, TopicNotFound
from storage.records import ReadResult

if TYPE_CHECKING:
    from broker.live.feed import Feed
    from broker.live.watcher import Watcher
    from broker.memory import Hold


#: Copies of records in memory until they are sent: the records, the event, and the outgoing bytes.
COPIES: Final = 3


class Subscription:
    """`position` is the last examined seq. The watcher keeps the delivered positions, for ids of events."""

    __slots__ = (
        "_key",
        "cohort",
        "epoch",
        "feed",
        "gone",
        "live",
        "name",
        "opening",
        "options",
        "position",
        "room",
        "watcher",
    )

    def __init__(self, watcher: Watcher[Any], feed: Feed, options: Options, start: Position) -> None:
        self.watcher = watcher
        self.feed = feed
        self.name = feed.topic.name
        self._key = feed.name
        self.options = options
        self.epoch = start.epoch
        self.position = start.seq
        self.cohort: dict[Subscription, None] | None = None
        #: It was at the head at its last delivery.
        self.live = False
        #: Nothing has been read for it yet.
        self.opening = True
        #: It has ended: the topic was deleted, or it was removed.
        self.gone = False
        #: The memory for records that were read only for it, until they are sent.
        self.room: Hold | None = None

    def end(self) -> None:
        """End the subscription."""
        self.gone = True
        self.feed.leave(self)

    def deleted(self) -> None:
        """Its topic was deleted."""
        if not self.gone:
            self.end()
            self.watcher.lost(self.name, self.feed.topic.log.head)

    def fall_behind(self) -> None:
        """From now on, its watcher reads for it."""
        self.watcher.behind(self)

    # -- at the head, by the feed ------------------------------------------------------------------------------------

    def receive(self, news: Event | None, caught_up: Event | None, reached: int) -> bool:
        """Send the event if the connection accepts it at once. False: not all was sent; the position says how much."""
        if news is not None:
            if not self.watcher.offer(self.name, news):
                return False
            self.feed.live.figures.pushed += 1
        self.position = reached
        if caught_up is None:
            self.live = False
            return True
        if not self.live:
            if not self.watcher.offer(self.name, caught_up):
                return False
            self.live = True
        elif news is None:
            # skipped records count as delivered: the next id says so
            self.watcher.delivered[self.name] = caught_up.position
        return True

    # -- behind, by the watcher --------------------------------------------------------------------------------------

    async def advance(self) -> list[Event]:
        """Read the next records only for this subscription. At the head, it joins a cohort. If it raises RecordCorrupt
        or Unreadable, the position is before the unreadable record."""
        feed = self.feed
        self.live = False
        await feed.live.scheduler.take(READING, feed.priority)
        if self.gone:
            return []
        found: list[Event] = []
        if self.opening or self.position < feed.visible(self.options):
            try:
                result = await self._read()
            except TopicNotFound:
                self.deleted()
                return []
            if self.gone:
                return []
            epoch = feed.topic.log.epoch
            if result.tombstone is not None:
                found.append(frames.tombstone(self._key, result.tombstone, opening=self.opening, epoch=epoch))
                self.position, self.epoch = result.tombstone.gap_to, epoch
            text = None
            if self.room is not None:
                memory, shape = feed.live.memory, self.options.shape
                async with memory.rendering:
                    text = await render.records_in_slices(result.records, shape, result.bytes, memory.acquire)
                if self.gone:
                    return []
            news = frames.records(self._key, result, self.options.shape, self.position, epoch, text)
            if news is not None:
                found.append(news)
            self.position = result.next_from_seq
            self.opening = False
        if self.position >= feed.visible(self.options):
            self.live = True
            found.append(frames.caught_up(self._key, self.position, Position(self.epoch, self.position)))
            feed.join(self)  # nothing was awaited since the head was read: no commit can have come in between
        return found

    def release(self) -> None:
        """Release the memory of its records: they were sent or dropped."""
        if self.room is not None:
            self.room.release()
            self.room = None

    async def _read(self) -> ReadResult:
        """Read the next records: first a small part, then more if memory can be reserved for it. If a single record
        exceeds the small part, wait for that memory."""
        memory, most = self.feed.live.memory, self.options.max_batch_bytes
        result = await self._read_in_front(min(most, SMALL))
        large = result.bytes > SMALL
        count = len(result.records)
        is_all = most <= SMALL or result.next_from_seq >= result.head_seq or count in (0, self.options.limit)
        if is_all and not large:
            return result
        if large:
            least, result.records = result.bytes, ()
            self.room = await memory.hold_for_push(self.watcher, least * COPIES)
        else:
            self.room = memory.answers.try_hold(self.watcher, most * COPIES)
        room = self.room
        if room is None or self.gone:
            return result
        if large and memory.answers.has_room(self.watcher, most * COPIES - room.size):
            room.resize(max(room.size, most * COPIES))
        await memory.acquire(min(most, SMALL))
        result = await self._read_in_front(min(most, room.size // COPIES))
        room.resize(result.bytes * COPIES)
        return result

    async def _read_in_front(self, max_bytes: int) -> ReadResult:
        """Records before a damaged one are delivered before the error is raised."""
        try:
            return await self.feed.read(self, max_bytes=max_bytes)
        except RecordCorrupt as error:
            result = await self.feed.read(self, to_seq=error.detail["seq"] - 1, max_bytes=max_bytes)
            if not result.records and result.tombstone is None:
                raise
            return result
