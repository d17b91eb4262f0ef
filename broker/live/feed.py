"""What a topic gives to those who watch it: each stretch of new records is read and rendered once for all of them.

    cohort   the subscriptions that stand at the same position with the same options, all at the head

A commit wakes the feed. It serves cohort after cohort: one read, one rendering, and the same bytes to every connection
that takes them now. Who does not, is left behind: its watcher reads for itself, from the position at which it stands,
and joins again at the head. So a slow reader is a number here, and nothing is ever queued for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from broker.http import render
from broker.live import frames
from broker.live.cursor import Position
from broker.live.turns import READING
from broker.live.wish import Options
from broker.service.topics import priority_of
from storage.errors import StorageError
from storage.records.values import ReadQuery, ReadResult

if TYPE_CHECKING:
    from broker.live.hub import Live
    from broker.live.subscription import Subscription
    from storage.state.catalog import Topic

_log = structlog.get_logger("broker.live")

#: Connections written to in one turn: others get theirs in between.
SLICE: Final = 64
#: Bytes that count as one of them.
BYTES_A_WRITE: Final = 64 * 1024


class Feed:
    """Of one topic, for as long as somebody watches it. All of it belongs to the event loop."""

    def __init__(self, live: Live, topic: Topic) -> None:
        self.live = live
        self.topic = topic
        self.name = render.place(topic.name)
        self.subscriptions: dict[Subscription, None] = {}
        self._cohorts: dict[tuple[Options, int], dict[Subscription, None]] = {}
        self._news = asyncio.Event()
        self._serving = asyncio.create_task(self._run())

    # -- who watches -------------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription) -> None:
        self.subscriptions[subscription] = None
        if subscription.options.strong:
            self.live.follow_syncs(self)

    def join(self, subscription: Subscription) -> None:
        """It stands at the head, as of this moment. What is committed from here on, it gets."""
        key = (subscription.options, subscription.position)
        subscription.cohort = self._cohorts.setdefault(key, {})
        subscription.cohort[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        """It does not want anything of this topic any more."""
        self.subscriptions.pop(subscription, None)
        self.part(subscription)
        if not self.subscriptions:
            self.live.forget(self)

    def part(self, subscription: Subscription) -> None:
        """It is not with a cohort any more."""
        cohort, subscription.cohort = subscription.cohort, None
        if cohort is not None:
            cohort.pop(subscription, None)

    def close(self) -> None:
        self._serving.cancel()

    # -- news --------------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """Something of the topic was committed or synced; perhaps it was deleted."""
        if self.live.engine.catalog.by_id.get(self.topic.topic_id) is self.topic:
            self._news.set()
            return
        for subscription in list(self.subscriptions):
            try:
                subscription.deleted()
            except Exception:  # called amid a commit, to which a watcher's trouble must be none
                _log.exception("delivery_failed", topic=self.topic.name)

    def visible(self, options: Options) -> int:
        """The last seq that may be given."""
        return self.live.durable_seq(self.topic) if options.strong else self.topic.log.head

    def priority(self) -> int:
        """How urgent its records are now."""
        return priority_of(self.live.engine, self.topic)

    async def read(
        self, subscription: Subscription, to_seq: int | None = None, *, max_bytes: int | None = None
    ) -> ReadResult:
        """What is behind its position, at most up to `to_seq`, and `max_bytes` instead of what it asks for. Raises
        RecordCorrupt, Unreadable, TopicNotFound.
        """
        options = subscription.options
        if options.strong:
            to_seq = self.visible(options) if to_seq is None else min(to_seq, self.visible(options))
        query = ReadQuery(
            from_seq=subscription.position,
            limit=options.limit,
            max_bytes=options.max_batch_bytes if max_bytes is None else max_bytes,
            exclude_nodes=options.exclude_nodes,
            epoch=subscription.epoch,
            skip_corrupt=options.skip_corrupt,
            to_seq=to_seq,
        )
        self.live.figures.reads += 1
        return await self.live.engine.read(self.topic.name, query)

    # -- serving -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            if self.live.pressure.coalesce_s:
                await asyncio.sleep(self.live.pressure.coalesce_s)
            self._news.clear()
            while (key := self._due()) is not None:
                try:
                    await self._serve(key)
                except Exception:
                    _log.exception("delivery_failed", topic=self.topic.name)

    def _due(self) -> tuple[Options, int] | None:
        """The cohort that has waited longest of those for whom there is something."""
        for key in list(self._cohorts):
            if not self._cohorts[key]:
                del self._cohorts[key]
            elif key[1] < self.visible(key[0]):
                return key
        return None

    async def _serve(self, key: tuple[Options, int]) -> None:
        """Give a cohort the next stretch. Whoever does not get it is left behind."""
        cohort = self._cohorts.pop(key)
        try:
            await self.live.turns.take(READING, self.priority)
            first = next(iter(cohort), None)
            if first is not None:
                result = await self.read(first)
                # A gap is for each to find by itself: a reader at the head has none but in rare cases.
                if result.tombstone is None:
                    await self._give(cohort, result, key)
        except StorageError:
            pass  # each of them finds out for itself, and tells its client
        finally:
            for member in list(cohort):
                self._leave_behind(member)

    async def _give(self, cohort: dict[Subscription, None], result: ReadResult, key: tuple[Options, int]) -> None:
        options, from_seq = key
        reached = result.next_from_seq
        epoch = self.topic.log.epoch
        news = frames.records(self.name, result, options.shape, from_seq, epoch)
        caught_up = None
        if reached >= self.visible(options):
            caught_up = frames.caught_up(self.name, reached, Position(epoch, reached))
        members = list(cohort)
        # Each gets bytes of its own: of large news so many copies are made in one turn, and no more.
        weight = 1 if news is None else max(1, len(news.data) // BYTES_A_WRITE)
        size = max(1, SLICE // weight)
        for begin in range(0, len(members), size):
            part = members[begin : begin + size]
            await self.live.turns.take(len(part) * weight, self.priority)
            target = self._cohorts.setdefault((options, reached), {})
            for member in part:
                if member.cohort is not cohort:
                    continue  # it has left meanwhile
                if member.receive(news, caught_up, reached):
                    del cohort[member]
                    member.cohort = target
                    target[member] = None
                else:
                    self._leave_behind(member)

    def _leave_behind(self, subscription: Subscription) -> None:
        self.part(subscription)
        subscription.fall_behind()
