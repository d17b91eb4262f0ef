"""Live reading in one process: sessions, feeds, scheduling of deliveries, and counters."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.live.feed import Feed
from broker.live.session import Sessions
from broker.scheduling import DeliveryScheduler
from storage import ShuttingDown
from storage.segments import durable_seq, synced_lsn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.live.watcher import Watcher
    from broker.memory import Memory
    from broker.pressure import Pressure
    from storage import Engine
    from storage.state import Topic


class Figures:
    """Counters since the start."""

    __slots__ = ("pushed", "reads", "slow_closed")

    def __init__(self) -> None:
        #: Reads for watchers: shared ones of feeds, and those of slow watchers.
        self.reads = 0
        #: Record events that a feed wrote into a connection directly.
        self.pushed = 0
        #: Connections closed because their client did not read.
        self.slow_closed = 0


class Live:
    """Created with the broker; uses the engine only when somebody watches."""

    def __init__(self, engine: Engine, pressure: Pressure, memory: Memory, *, max_sessions: int) -> None:
        self.engine = engine
        self.pressure = pressure
        self.memory = memory
        self.sessions = Sessions(max_sessions)
        self.scheduler = DeliveryScheduler(engine.clock.monotonic_ns, lambda: pressure.share)
        self.figures = Figures()
        self.watchers: dict[Watcher[Any], None] = {}
        self._feeds: dict[int, Feed] = {}
        #: By shard: the feeds with a watcher that gets only synced records.
        self._strong: dict[int, dict[Feed, None]] = {}
        self._stopped = False

    # -- watchers ----------------------------------------------------------------------------------------------------

    def enter(self, watcher: Watcher[Any]) -> None:
        """Register a watcher, to end it when the broker stops. Raises ShuttingDown if the broker is stopping."""
        if self._stopped:
            raise ShuttingDown
        self.watchers[watcher] = None

    def exit(self, watcher: Watcher[Any]) -> None:
        self.watchers.pop(watcher, None)
        watcher.close()

    def shut_down(self) -> None:
        """Tell every watcher that the broker stops, and end it; no new ones are accepted."""
        self._stopped = True
        for watcher in list(self.watchers):
            watcher.fail(ShuttingDown())

    # -- feeds -------------------------------------------------------------------------------------------------------

    def feed(self, name: str) -> Feed:
        """The feed of a topic. Raises TopicNotFound."""
        topic = self.engine.topic(name)
        feed = self._feeds.get(topic.topic_id)
        if feed is None:
            feed = self._feeds[topic.topic_id] = Feed(self, topic)
            self.engine.publisher.listeners[topic.topic_id] = feed.committed
        return feed

    def forget(self, feed: Feed) -> None:
        """Remove a feed that nobody watches any more."""
        topic_id, shard = feed.topic.topic_id, feed.topic.log.shard
        if self._feeds.pop(topic_id, None) is not None:
            del self.engine.publisher.listeners[topic_id]
        strong = self._strong.get(shard)
        if strong is not None:
            strong.pop(feed, None)
            if not strong:
                del self._strong[shard]
                self.engine.shards[shard].on_synced = None
        feed.close()

    def feeds(self) -> Iterator[Feed]:
        return iter(self._feeds.values())

    # -- syncs -------------------------------------------------------------------------------------------------------

    def follow_syncs(self, feed: Feed) -> None:
        """Wake this feed whenever its shard has synced."""
        shard = feed.topic.log.shard
        self._strong.setdefault(shard, {})[feed] = None
        self.engine.shards[shard].on_synced = partial(self._synced, shard)

    def _synced(self, shard: int) -> None:
        for feed in list(self._strong.get(shard, ())):
            feed.committed()

    def durable_seq(self, topic: Topic) -> int:
        """The last seq of a topic that survives any crash."""
        log = topic.log
        return durable_seq(log, synced_lsn(self.engine.shards[log.shard].log))

    @staticmethod
    def now_ms() -> float:
        """Monotonic time for sessions."""
        return asyncio.get_running_loop().time() * 1000
