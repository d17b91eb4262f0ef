"""Creates, changes and deletes routers.

One at a time, so that the checks for cycles and for the number of routers stay true until the change is written.

Source: docs/reference/api.md#routers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from storage.errors import (
    InvalidRequest,
    LimitReached,
    RouterCycle,
    RouterNotFound,
    StorageError,
    TopicIncompatible,
    TopicNotFound,
)
from storage.format import control
from storage.log import TOPIC_NAME, Logs, encode_controls
from storage.records import TopicConfig, cell_of
from storage.state import Topic, check_unpartitioned
from storage.state.routers import Definition, Router, Start, find_cycle
from storage.topics import Placing, TopicAdmin

#: How long a call to another cell may take while all other changes of routers here wait for it.
HELD_S = 5.0
ROUTER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:>-]{0,254}")


def check_router_name(name: str, field: str = "router") -> None:
    """Raises InvalidRequest for a name that breaks the pattern."""
    if not ROUTER_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{field}: 1 to 255 characters from A-Z a-z 0-9 . _ : - > beginning with a letter, a digit or _.",
            field=field,
        )


def check_definition(definition: Definition) -> None:
    """Raises InvalidRequest for a definition that is impossible."""
    for field, name in (("source", definition.source), ("dest", definition.dest)):
        if not TOPIC_NAME.fullmatch(name):
            raise InvalidRequest(f"{field}: not a topic name.", field=field)
    if definition.source == definition.dest:
        raise InvalidRequest("dest: a router cannot lead from a topic to itself.", field="dest")


class Begin(NamedTuple):
    """A source when a new router is created."""

    topic_id: int
    head: int
    live_floor: int
    #: It was made for the router.
    made: bool = False
    #: Its epoch, if it is in another cell.
    epoch: int | None = None

    def cursor(self, definition: Definition) -> int:
        """Where the router begins. Records lost or deleted before that are not a loss of the router."""
        return self.head if definition.start == Start.HEAD else self.live_floor - 1


def check_ends(name: str, definition: Definition, old: Definition) -> None:
    """Raises TopicIncompatible for another source or dest than before."""
    for field in ("source", "dest"):
        before = getattr(old, field)
        if getattr(definition, field) != before:
            raise TopicIncompatible(f"The {field} of {name} is {before}; it cannot be changed.", field=field)


def check_cycle(others: Iterable[Definition], definition: Definition) -> None:
    """Raises RouterCycle if a new definition closes a cycle with those of other routers."""
    if definition.allow_cycle:
        return
    cycle = find_cycle(((other.source, other.dest) for other in others), definition.source, definition.dest)
    if cycle is not None:
        raise RouterCycle(f"The router would close a cycle: {' → '.join(cycle)}.", cycle=cycle)


def check_room(routers: int, limit: int) -> None:
    """Raises LimitReached if there cannot be another router beside this many."""
    if limit and routers >= limit:
        raise LimitReached(f"There are {limit} routers, which is the limit.", limit="max_routers", max=limit)


class RouterAdmin:
    """Operations on whole routers of one engine."""

    def __init__(self, logs: Logs, topics: TopicAdmin, placing: Placing) -> None:
        self._logs = logs
        self._topics = topics
        self._placing = placing
        #: Held while a router is made, changed or deleted.
        self.one_at_a_time = asyncio.Lock()

    # -- making --------------------------------------------------------------------------------------------------------

    async def put(self, name: str, definition: Definition) -> tuple[Router, bool]:
        """Create the router or change its definition. Durable on return; True when created.

        Raises InvalidRequest, TopicNotFound, TopicIncompatible, RouterCycle, LimitReached, Unavailable: then nothing
        has changed, and no topic was created.
        """
        check_router_name(name)
        check_definition(definition)
        async with self.one_at_a_time:
            return await self._put(name, definition)

    async def alter(self, name: str, changed: Callable[[Definition], Definition]) -> Router:
        """Change the router's definition with a function of the present one. Durable on return.

        No other change can happen in between. Raises RouterNotFound, and the errors of `changed` and `put`.
        """
        check_router_name(name)
        async with self.one_at_a_time:
            old = self._logs.catalog.routes.by_name.get(name)
            if old is None:
                self._check_known()
                raise RouterNotFound(name)
            router, _ = await self._put(name, changed(old.definition))
            return router

    async def _put(self, name: str, definition: Definition) -> tuple[Router, bool]:
        routes = self._logs.catalog.routes
        old = routes.by_name.get(name)
        if old is not None:
            check_ends(name, definition, old.definition)
        check_cycle((router.definition for router in routes.by_name.values() if router is not old), definition)
        if old is None:
            check_room(len(routes.by_name), self._logs.options.max_routers)
        return await self.put_held(name, definition)

    async def put_held(self, name: str, definition: Definition) -> tuple[Router, bool]:
        """`put` for a caller that holds `one_at_a_time` and knows the other routers."""
        self._logs.check_open()
        routes = self._logs.catalog.routes
        old = routes.by_name.get(name)
        self._check_topics(definition)
        made: list[str] = []
        begin: Begin | None = None
        try:
            begin = await self._begin_elsewhere(definition.source)
            for topic in (definition.source, definition.dest) if begin is None else (definition.dest,):
                await self._make(topic, made)
            if old is not None and begin is not None and old.source_id != begin.topic_id:
                await self._delete(old)  # that source is gone: it was about to end
                old = None
            router = await self._write(name, definition, old, begin)
        except StorageError:
            await self._unmake(made)
            if begin is not None and begin.made:
                await self._unmake_elsewhere(begin.topic_id, definition.source)
            raise
        return router, old is None

    def _check_topics(self, definition: Definition) -> None:
        logs = self._logs
        topics = logs.catalog.topics
        for field, topic in (("source", definition.source), ("dest", definition.dest)):
            check_unpartitioned(logs.catalog, topic, f"the {field} of a router", field)
            found = topics.get(topic)
            missing = found is None or found.provisional
            if missing and topic == definition.dest and not definition.create_dest:
                raise TopicNotFound(topic)
        needed = sum(topic not in topics for topic in (definition.source, definition.dest))
        limit = logs.options.max_topics
        if limit and needed and logs.catalog.size + needed > limit:
            raise LimitReached(f"There can be {limit} topics at most.", limit="max_topics", max=limit)

    async def _begin_elsewhere(self, source: str) -> Begin | None:
        """Where a router with a source in another cell begins. The topic is created there if it is missing. None if
        this cell has the topic, or would have it."""
        neighbours = self._logs.neighbours
        if neighbours is None or source in self._logs.catalog.topics:
            return None
        cell, _ = await self._placing.find(source, timeout_s=HELD_S)
        if cell == neighbours.me:
            return None
        return Begin(*await neighbours.call(cell, "source_begin", source, timeout_s=HELD_S))

    async def _unmake_elsewhere(self, topic_id: int, source: str) -> None:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        with suppress(StorageError):
            await neighbours.call(cell_of(topic_id), "source_unmake", [topic_id, source])

    async def _make(self, name: str, made: list[str]) -> None:
        there = self._logs.catalog.topics.get(name)
        if (there is None or there.provisional) and await self._topics.put(
            name, TopicConfig() if there is None else there.config
        ):
            made.append(name)

    async def _unmake(self, made: list[str]) -> None:
        """Delete topics that were created for a refused router, unless they are in use by now."""
        for name in made:
            with suppress(StorageError):
                await self._topics.delete(name, if_empty=True)

    async def _wait_unchanged(self, name: str) -> Topic:
        """The topic, once no change of it is in progress."""
        while True:
            topic = self._logs.topic(name)
            changing = self._logs.changing.get(topic.topic_id)
            if changing is not None:
                await asyncio.wait([changing])
            elif topic.log.topic_id in self._logs.unannounced_losses:
                await self._logs.announce_losses(topic.log)
            else:
                return topic

    async def _write(self, name: str, definition: Definition, old: Router | None, begin: Begin | None) -> Router:
        logs = self._logs
        while True:
            source = await self._wait_unchanged(definition.source) if begin is None else None
            dest = await self._wait_unchanged(definition.dest)
            if source is None:
                break
            if source.topic_id not in logs.changing and logs.catalog.by_id.get(source.topic_id) is source:
                break
        # Either topic may have got more partitions meanwhile.
        if source is not None:
            check_unpartitioned(logs.catalog, source.name, "the source of a router", "source")
            begin = Begin(source.topic_id, source.log.head, source.log.marks.live_floor)
        assert begin is not None
        check_unpartitioned(logs.catalog, dest.name, "the dest of a router", "dest")
        routes = logs.catalog.routes
        shard = logs.shards[dest.log.shard]
        if old is not None and routes.by_id.get(old.router_id) is not old:
            old = None  # it was deleted with a topic just now
        if old is not None and old.definition == definition and shard.log.failed is None:
            return old
        shard.refuse_when_full()
        router_id = old.router_id if old is not None else logs.catalog.claim_id()
        value = control.RouterCreate(
            router_id=router_id,
            name=name,
            definition=definition.to_map(),
            source_id=begin.topic_id,
            dest_id=dest.topic_id,
            source_cursor=old.position if old is not None else begin.cursor(definition),
            source_epoch=begin.epoch if old is None else None,
        )
        encoded = encode_controls([value], dest.topic_id, logs.now_ms())
        await logs.submit_controls(dest.log, encoded, generation=shard.generation)
        router = routes.by_id.get(router_id)
        if router is None:
            raise TopicNotFound(definition.dest)  # its deletion was in progress
        if source is not None and logs.catalog.by_id.get(source.topic_id) is not source:
            routes.drop(router)  # as the next recovery will: the source is gone
            dest.log.section = None
            raise TopicNotFound(definition.source)
        return router

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def delete(self, name: str) -> bool:
        """Delete the router. False if there is none. Durable on return; nothing is copied after that."""
        check_router_name(name)
        async with self.one_at_a_time:
            return await self.delete_held(name)

    async def delete_held(self, name: str) -> bool:
        """`delete` for a caller that holds `one_at_a_time`."""
        router = self.find_held(name)
        if router is None:
            return False
        await self._delete(router)
        return True

    def find_held(self, name: str) -> Router | None:
        """The router of that name, while nobody changes it. Raises StorageError if only the next start knows."""
        self._logs.check_open()
        router = self._logs.catalog.routes.by_name.get(name)
        if router is None:
            self._check_known()
        return router

    async def end(self, router: Router) -> bool:
        """Delete exactly this router, whose source is gone; False: the router is gone already. Durable on return."""
        async with self.one_at_a_time:
            self._logs.check_open()
            if self._logs.catalog.routes.by_id.get(router.router_id) is not router:
                return False
            await self._delete(router)
            return True

    async def _delete(self, router: Router) -> None:
        logs = self._logs
        dest = logs.catalog.by_id[router.dest_id]
        router.leaving = True
        try:
            value = control.RouterDelete(router_id=router.router_id)
            encoded = encode_controls([value], dest.topic_id, logs.now_ms())
            await logs.submit_controls(dest.log, encoded, frees=True)
        finally:
            router.leaving = False  # the router is gone by now, or unchanged

    def _check_known(self) -> None:
        """Raises StorageFailed if a shard has stopped: the next start may find a router that is not visible now."""
        for shard in self._logs.shards:
            if shard.log.failed is not None:
                raise shard.log.failure()
