"""One watching connection: decides what is sent to it, in which order, and by which task.

While its task has nothing to do, the connection is *parked*, and feeds write to it directly. The task sends events that
did not fit and events that are read only for this connection, and waits for the client as long as needed. Feeds and the
task never send at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from broker.content import render
from broker.live import cursor, frames
from broker.live.cursor import Position
from broker.live.frames import Event
from broker.live.subscription import Subscription
from broker.live.watch_options import Options
from storage import RecordCorrupt, StorageError, TopicNotFound, Unreadable

if TYPE_CHECKING:
    from broker.live.hub import Live

#: A piece to send: bytes of a stream, or the text of a message.
P = TypeVar("P", bytes, str)

#: The most answers and notices that wait for a connection. Above that, their sender waits.
MAX_NOTICES: Final = 512


class Heartbeat(NamedTuple, Generic[P]):
    """A piece that is sent after this long without any other."""

    every_s: float
    make: Callable[[], P]


class Watcher(Generic[P]):
    """`encode` makes a piece from an event; `failure` makes one from an error that ends a topic, or (None) all topics.

    `positions`, by topic, is updated to the last delivered position. `closes`: if a topic could not be read, the
    watcher ends with its last topic.
    """

    def __init__(
        self,
        live: Live,
        *,
        encode: Callable[[Watcher[P], Event], P],
        failure: Callable[[StorageError, str | None], P],
        positions: dict[str, Position],
        closes: bool = False,
    ) -> None:
        self.live = live
        self.subscriptions: dict[str, Subscription] = {}
        self.positions = positions
        #: By topic: the last position that was delivered on this connection.
        self.delivered: dict[str, Position] = {}
        self._encode = encode
        self._failure = failure
        self._closes = closes
        self._unread = False
        self._over = False
        self.push: Callable[[P], bool] = lambda _: False
        self._behind: dict[Subscription, None] = {}
        self._notices: list[P] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._parked = False
        self._sent_at = 0.0
        #: The error that ends it.
        self.error: StorageError | None = None

    def attach(self, push: Callable[[P], bool]) -> None:
        """Attach the connection. `push` sends a piece if that is possible without waiting."""
        self.push = push

    # -- topics ------------------------------------------------------------------------------------------------------

    def watch(self, name: str, options: Options, start: Position) -> None:
        """Start watching a topic, or restart. If it does not exist, the client gets topic_deleted."""
        self.drop(name)
        self.delivered[name] = start
        try:
            feed = self.live.feed(name)
        except TopicNotFound:
            self.lost(name, start.seq)
            return
        subscription = Subscription(self, feed, options, start)
        self.subscriptions[name] = subscription
        feed.add(subscription)
        self.behind(subscription)

    def drop(self, name: str) -> bool:
        """Stop watching this topic. False: it was not watched."""
        self.delivered.pop(name, None)
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            return False
        self._behind.pop(subscription, None)
        if not subscription.gone:
            subscription.end()
        return True

    def close(self) -> None:
        """Stop sending."""
        for name in list(self.subscriptions):
            self.drop(name)

    def id(self) -> bytes:
        """The cursor of all its topics."""
        return cursor.encode(
            [cursor.entry(b'"%b"' % cursor.key(name).encode(), each) for name, each in self.delivered.items()]
        )

    # -- events ------------------------------------------------------------------------------------------------------

    def behind(self, subscription: Subscription) -> None:
        """Register a subscription that the task must read for."""
        self._behind[subscription] = None
        self._wake.set()

    def lost(self, name: str, head_seq: int) -> None:
        """A topic was deleted. It stays in the cursor, so that a later topic of that name is recognised as new."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is not None:
            self._behind.pop(subscription, None)
        event = frames.topic_deleted(render.topic_fields(name), head_seq, self.delivered[name])
        self.send_notice(self._encode(self, event))
        self._end_if_empty()

    def give_up(self, subscription: Subscription, error: StorageError) -> None:
        """A topic cannot be read further: tell the client, and continue with the other topics. A client that reconnects
        with its id gets the error again, because the id is before the failure."""
        del self.subscriptions[subscription.name]
        self._behind.pop(subscription, None)
        subscription.end()
        self.send_notice(self._failure(error, subscription.name))
        self._unread = True
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._closes and self._unread and not self.subscriptions:
            self._over = True
            self._wake.set()

    def fail(self, error: StorageError) -> None:
        """End the watcher. The error is the last thing that the client gets."""
        if self.error is None:
            self.error = error
            self._wake.set()

    def send_notice(self, piece: P) -> None:
        """Send a piece before all records, in the order of the calls."""
        if self._parked and not self._notices and self.push(piece):
            self._sent_at = asyncio.get_running_loop().time()
            return
        self._notices.append(piece)
        self._wake.set()

    async def room(self) -> None:
        """Wait until fewer than MAX_NOTICES wait."""
        while len(self._notices) >= MAX_NOTICES:
            self._room.clear()
            await self._room.wait()

    def offer(self, name: str, event: Event) -> bool:
        """Send an event if nothing waits and the connection accepts it at once. Returns whether it was sent."""
        if not self._parked or self._wake.is_set():
            return False
        before = self.delivered[name]
        self.delivered[name] = event.position
        if not self.push(self._encode(self, event)):
            self.delivered[name] = before
            return False
        self.positions[name] = event.position
        self._sent_at = asyncio.get_running_loop().time()
        return True

    # -- the task ----------------------------------------------------------------------------------------------------

    async def pieces(self, heartbeat: Heartbeat[P] | None = None) -> AsyncGenerator[P]:
        """All pieces that the task must send while the client is connected. The last one is the reason for the end."""
        loop = asyncio.get_running_loop()
        self._sent_at = loop.time()
        while True:
            self._wake.clear()
            if self._notices:
                notices, self._notices = self._notices, []
                self._room.set()
                for piece in notices:
                    yield piece
            elif self.error is not None:
                yield self._failure(self.error, None)
                return
            elif self._over:
                return
            elif self._behind:
                subscription = next(iter(self._behind))
                del self._behind[subscription]
                async for piece in self._advance(subscription):
                    yield piece
            elif heartbeat is not None and loop.time() >= self._sent_at + heartbeat.every_s:
                yield heartbeat.make()
            else:
                await self._park(None if heartbeat is None else self._sent_at + heartbeat.every_s - loop.time())
                continue
            self._sent_at = loop.time()

    async def _advance(self, subscription: Subscription) -> AsyncGenerator[P]:
        try:
            async for piece in self._next_records(subscription):
                yield piece
        finally:
            subscription.release()

    async def _next_records(self, subscription: Subscription) -> AsyncGenerator[P]:
        try:
            events = await subscription.advance()
        except (RecordCorrupt, Unreadable) as error:
            if self.subscriptions.get(subscription.name) is subscription:
                self.give_up(subscription, error)
            return
        except StorageError as error:
            self.fail(error)
            return
        if subscription.cohort is None and not subscription.gone:
            self._behind[subscription] = None  # after the other topics of this connection
        for event in events:
            if self.subscriptions.get(subscription.name) is not subscription:
                return  # it was removed, or its topic deleted, while the client was slow
            self.delivered[subscription.name] = self.positions[subscription.name] = event.position
            yield self._encode(self, event)

    async def _park(self, seconds: float | None) -> None:
        self._parked = True
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
        finally:
            self._parked = False
