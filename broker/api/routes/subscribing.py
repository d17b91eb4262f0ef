"""The commands of a WebSocket that start and stop watching.

A subscription to a topic that routers have not caught up with waits, up to a second, while later commands run. Commands
on one topic keep their order: while a subscription waits, later subscribes and unsubscribes of its topics wait too.

Source: docs/reference/api.md#live-reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from broker.api.routes.replies import Replies, ReplyTo
from broker.api.routes.watch import start_of
from broker.auth import COMMANDS, Access
from broker.content import Shape
from broker.live import Watcher, watch_options
from broker.service import routers
from schemas import Subscribe, Unsubscribe
from storage import InvalidRequest, TopicNotFound
from storage.records import address, split

DEFAULT_LIMIT: Final = 1000
DEFAULT_BATCH_BYTES: Final = 1 << 20


class _Waiting:
    """A command that waits, and the heads of its topics before this connection first wrote to them meanwhile."""

    __slots__ = ("done", "heads", "names")

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.done = asyncio.Event()
        self.heads: dict[str, int] = {}


class Subscribing:
    """The subscriptions of one connection. Waiting commands hold `addresses`, like its writes."""

    def __init__(self, watcher: Watcher[str], caller: Access, replies: Replies, addresses: asyncio.Semaphore) -> None:
        self._watcher = watcher
        self._live = watcher.live
        self._caller = caller
        self._replies = replies
        self._slots = addresses
        self._waiting: dict[_Waiting, asyncio.Task[None]] = {}

    def close(self) -> None:
        """The connection has ended: drop the commands that wait."""
        for task in self._waiting.values():
            task.cancel()

    def writes(self, topic: str) -> None:
        """The connection is about to write to this topic: an earlier subscription has to deliver that write."""
        for each in self._waiting:
            for address_ in each.names:
                if split(address_)[0] == topic and address_ not in each.heads:
                    try:
                        each.heads[address_] = self._live.engine.topic(address_).log.head
                    except TopicNotFound:
                        each.heads[address_] = 0

    async def subscribe(self, asked: Subscribe, to: ReplyTo) -> None:
        """Subscribe. Returns once it is done or waits. Raises what refuses it."""
        named = {name: start_of(start) for name, start in asked.starts().items()}
        watch_options.check_topics(named)
        self._caller.require(COMMANDS["subscribe"], named)
        starts = watch_options.addressed(self._live.engine, named, lenient=asked.lenient)
        lagging = any(self._live.engine.routers.lags(name) for name in starts)
        await self._in_order(starts, lagging, lambda heads: self._begin(asked, starts, heads, to), to)

    async def unsubscribe(self, asked: Unsubscribe, to: ReplyTo) -> None:
        """Unsubscribe. Returns and raises like `subscribe`."""
        names = asked.names()
        self._caller.require(COMMANDS["unsubscribe"], names)
        one = [] if asked.partition is None else [asked.partition]
        numbers = [*one, *asked.partitions] if asked.partitions is not None else one or [0]
        addresses = [address(name, number) for name in names for number in dict.fromkeys(numbers)]
        await self._in_order(addresses, False, lambda _: self._end(addresses, to), to)

    # -- one after the other -----------------------------------------------------------------------------------------

    async def _in_order(
        self, names: Iterable[str], lagging: bool, act: Callable[[dict[str, int]], None], to: ReplyTo
    ) -> None:
        waiting = _Waiting(frozenset(names))
        before = [each for each in self._waiting if each.names & waiting.names]
        if not lagging and not before:
            act({})
            return
        await self._slots.acquire()
        task = asyncio.create_task(self._wait_and_act(waiting, before, lagging, act, to))
        self._waiting[waiting] = task
        task.add_done_callback(lambda _: self._acted(waiting))

    async def _wait_and_act(
        self,
        waiting: _Waiting,
        before: list[_Waiting],
        lagging: bool,
        act: Callable[[dict[str, int]], None],
        to: ReplyTo,
    ) -> None:
        try:
            if lagging:
                await routers.all_caught_up(self._live.engine, waiting.names)
            for each in before:
                await each.done.wait()
            await self._watcher.room()
            act(waiting.heads)
        except Exception as error:
            self._replies.refuse(error, to)

    def _acted(self, waiting: _Waiting) -> None:
        waiting.done.set()
        del self._waiting[waiting]
        self._slots.release()

    # -- what they do ------------------------------------------------------------------------------------------------

    def _begin(
        self, asked: Subscribe, starts: dict[str, watch_options.Start], heads: dict[str, int], to: ReplyTo
    ) -> None:
        strong = asked.consistency == "strong"
        opened = watch_options.open_topics(self._live.engine, starts, lenient=asked.lenient, strong=strong, heads=heads)
        if len({*self._watcher.delivered, *opened}) > watch_options.MAX_TOPICS:
            raise InvalidRequest(f"topics: at most {watch_options.MAX_TOPICS} on one connection.", field="topics")
        options = watch_options.Options(
            limit=watch_options.clamped(asked.limit, DEFAULT_LIMIT, watch_options.MAX_LIMIT),
            max_batch_bytes=watch_options.clamped(
                asked.max_batch_bytes, DEFAULT_BATCH_BYTES, watch_options.MAX_BATCH_BYTES
            ),
            shape=Shape(tags=asked.include_tags, meta=asked.include_meta, data=asked.include_data),
            exclude_nodes=watch_options.nodes(asked.node),
            strong=strong,
            skip_corrupt=asked.skip_corrupt,
        )
        for name in opened:
            self._watcher.drop(name)  # after the answer, the client gets no event of an earlier subscription
        self._replies.send("subscribed", to, topics=watch_options.by_topic(opened))
        for name, each in opened.items():
            self._watcher.watch(name, options, each.position)

    def _end(self, addresses: list[str], to: ReplyTo) -> None:
        ended = [split(address_)[0] for address_ in addresses if self._watcher.drop(address_)]
        self._replies.send("unsubscribed", to, topics=[*dict.fromkeys(ended)])
