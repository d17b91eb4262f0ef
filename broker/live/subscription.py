"""One watcher's place in one topic: a position, and whether it is with the others at the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.http import render
from broker.live import frames
from broker.live.cursor import Position
from broker.live.frames import Event
from broker.live.turns import READING
from broker.live.wish import Options
from broker.memory.memory import SMALL
from storage.errors import RecordCorrupt, TopicNotFound
from storage.records.values import ReadResult

if TYPE_CHECKING:
    from broker.live.feed import Feed
    from broker.live.watcher import Watcher
    from broker.memory.budget import Hold


#: What is sent is there so many times while it is made and sent: as records, as an event, as what goes out.
COPIES: Final = 3


class Subscription:
    """`position` is the last seq examined for it. What it was told of, and ids are made of, its watcher keeps."""

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
        #: It was at the head when it was last given something.
        self.live = False
        #: Nothing was read for it yet.
        self.opening = True
        #: It has ended: the topic was deleted, or it is not wanted any more.
        self.gone = False
        #: What is held for what was read for it alone, until that is sent.
        self.room: Hold | None = None

    def end(self) -> None:
        """It is not wanted any more."""
        self.gone = True
        self.feed.leave(self)

    def deleted(self) -> None:
        """Its topic was."""
        if not self.gone:
            self.end()
            self.watcher.lost(self.name, self.feed.topic.log.head)

    def fall_behind(self) -> None:
        """From here on it is read for by its watcher."""
        self.watcher.behind(self)

    # -- at the head, by the feed ------------------------------------------------------------------------------------

    def receive(self, news: Event | None, caught_up: Event | None, reached: int) -> bool:
        """Send it on if the connection takes it now. False: not all of it, and the position says how much."""
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
            self.watcher.handed[self.name] = caught_up.position  # examined and left out: the next id says so
        return True

    # -- behind, by the watcher --------------------------------------------------------------------------------------

    async def advance(self) -> list[Event]:
        """The next stretch, read for this one alone; at the head it joins the others. Raises RecordCorrupt, Unreadable:
        the position is in front of what cannot be read.
        """
        feed = self.feed
        self.live = False
        await feed.live.turns.take(READING, feed.priority)
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
                    text = await render.records_in_turns(result.records, shape, result.bytes, memory.turn)
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
            feed.join(self)  # no wait since the look at the head: nothing can have been committed in between
        return found

    def release(self) -> None:
        """What was read for it has been sent, or nobody wants it any more."""
        if self.room is not None:
            self.room.release()
            self.room = None

    async def _read(self) -> ReadResult:
        """What comes next: a small part of it, unless there is more; the memory of that is held then, and waited for
        where a single record is more than a small part.
        """
        memory, most = self.feed.live.memory, self.options.max_batch_bytes
        result = await self._read_in_front(min(most, SMALL))
        large = result.bytes > SMALL
        count = len(result.records)
        is_all = most <= SMALL or result.next_from_seq >= result.head_seq or count in (0, self.options.limit)
        if is_all and not large:
            return result
        if large:
            least, result.records = result.bytes, ()
            self.room = await memory.patiently(self.watcher, least * COPIES)
        else:
            self.room = memory.answers.try_hold(self.watcher, most * COPIES)
        room = self.room
        if room is None or self.gone:
            return result
        if large and memory.answers.has_room(self.watcher, most * COPIES - room.size):
            room.resize(max(room.size, most * COPIES))
        await memory.turn(min(most, SMALL))
        result = await self._read_in_front(min(most, room.size // COPIES))
        room.resize(result.bytes * COPIES)
        return result

    async def _read_in_front(self, max_bytes: int) -> ReadResult:
        """What lies in front of a damaged record is given before its time has come to be raised."""
        try:
            return await self.feed.read(self, max_bytes=max_bytes)
        except RecordCorrupt as error:
            result = await self.feed.read(self, to_seq=error.detail["seq"] - 1, max_bytes=max_bytes)
            if not result.records and result.tombstone is None:
                raise
            return result
