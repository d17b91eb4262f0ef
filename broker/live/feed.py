"""Delivers a topic to its watchers: new records are read and rendered once for all of them.

    cohort   the subscriptions at the same position with the same options, all at the head

A commit wakes the feed. It serves one cohort after another: one read, one rendering, and the same bytes to each
connection that accepts them at once. Other connections fall behind: their watchers read for themselves, from their own
positions, and join a cohort again at the head. So for a slow reader, the feed keeps only a number and queues nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from broker.content import render
from broker.live import frames
from broker.live.cursor import Position
from broker.live.watch_options import Options
from broker.scheduling import READING
from broker.service import priority_of
from storage import StorageError
from storage.records import ReadQuery, ReadResult

if TYPE_CHECKING:
    from broker.live.hub import Live
    from broker.live.subscription import Subscription
    from storage.state import Topic

_log = structlog.get_logger("broker.live")

#: Connections that are written to before other tasks run.
SLICE: Final = 64
#: Bytes that count as one write.
BYTES_A_WRITE: Final = 64 * 1024


class Feed:
    """The feed of one topic, while it is watched. All methods run on the event loop."""

    def __init__(self, live: Live, topic: Topic) -> None:
        self.live = live
        self.topic = topic
        self.name = render.topic_fields(topic.name)
        self.subscriptions: dict[Subscription, None] = {}
        self._cohorts: dict[tuple[Options, int], dict[Subscription, None]] = {}
        self._news = asyncio.Event()
        self._serving = asyncio.create_task(self._run())

    # -- subscriptions -----------------------------------------------------------------------------------------------

    def add(self, subscription: Subscription) -> None:
        self.subscriptions[subscription] = None
        if subscription.options.strong:
            self.live.follow_syncs(self)

    def join(self, subscription: Subscription) -> None:
        """Add a subscription that is at the head. It gets everything committed from now on."""
        key = (subscription.options, subscription.position)
        subscription.cohort = self._cohorts.setdefault(key, {})
        subscription.cohort[subscription] = None

    def leave(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self.subscriptions.pop(subscription, None)
        self.part(subscription)
        if not self.subscriptions:
            self.live.forget(self)

    def part(self, subscription: Subscription) -> None:
        """Remove a subscription from its cohort."""
        cohort, subscription.cohort = subscription.cohort, None
        if cohort is not None:
            cohort.pop(subscription, None)

    def close(self) -> None:
        self._serving.cancel()

    # -- news --------------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """Records of the topic were committed or synced, or the topic was deleted."""
        if self.live.engine.catalog.by_id.get(self.topic.topic_id) is self.topic:
            self._news.set()
            return
        for subscription in list(self.subscriptions):
            try:
                subscription.deleted()
            except Exception:  # called during a commit, which a watcher's failure must not affect
                _log.exception("delivery_failed", topic=self.topic.name)

    def visible(self, options: Options) -> int:
        """The last seq that may be delivered."""
        return self.live.durable_seq(self.topic) if options.strong else self.topic.log.head

    def priority(self) -> int:
        """The current priority of its records."""
        return priority_of(self.live.engine, self.topic)

    async def read(
        self, subscription: Subscription, to_seq: int | None = None, *, max_bytes: int | None = None
    ) -> ReadResult:
        """Read after a position, up to `to_seq` and `max_bytes`. Raises RecordCorrupt, Unreadable, TopicNotFound."""
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
        """The cohort that has waited longest, among those with new records."""
        for key in list(self._cohorts):
            if not self._cohorts[key]:
                del self._cohorts[key]
            elif key[1] < self.visible(key[0]):
                return key
        return None

    async def _serve(self, key: tuple[Options, int]) -> None:
        """Deliver the next records to a cohort. Subscriptions that do not accept them fall behind."""
        cohort = self._cohorts.pop(key)
        try:
            await self.live.scheduler.take(READING, self.priority)
            first = next(iter(cohort), None)
            if first is not None:
                result = await self.read(first)
                # Each subscription reads a gap for itself: at the head, gaps are rare.
                if result.tombstone is None:
                    await self._give(cohort, result, key)
        except StorageError:
            pass  # each watcher meets the error itself, and tells its client
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
        # Each gets its own copy of the bytes: this bounds how many copies of a large event are made at a time.
        weight = 1 if news is None else max(1, len(news.data) // BYTES_A_WRITE)
        size = max(1, SLICE // weight)
        for begin in range(0, len(members), size):
            part = members[begin : begin + size]
            await self.live.scheduler.take(len(part) * weight, self.priority)
            target = self._cohorts.setdefault((options, reached), {})
            for member in part:
                if member.cohort is not cohort:
                    continue  # it left meanwhile
                if member.receive(news, caught_up, reached):
                    del cohort[member]
                    member.cohort = target
                    target[member] = None
                else:
                    self._leave_behind(member)

    def _leave_behind(self, subscription: Subscription) -> None:
        self.part(subscription)
        subscription.fall_behind()
