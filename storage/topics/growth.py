"""Making topics of several partitions and adding partitions to them. Source: storage.md §6; kafka.md §1.

The new partitions' TopicCreates are synced first; they count from partition 0's frame on, its TopicCreate or its
ConfigUpdate{partitions}. Until then nobody finds them, so nothing can be written to what a crash would undo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from storage.config import TopicConfig, TopicType
from storage.errors import InvalidRequest, LimitReached, StorageError, StorageFailed, TopicIncompatible
from storage.format import control
from storage.log.encode import encode_controls
from storage.records.partitions import MAX_PARTITIONS
from storage.state.catalog import Topic
from storage.topics.partition_recovery import creation

if TYPE_CHECKING:
    from storage.core import EngineCore

_log = structlog.get_logger("storage")


def check_partitions(engine: EngineCore, name: str, config: TopicConfig, topic: Topic | None, within: str = "") -> None:
    """Whether the topic (None: there is none yet) may be set so; `within` is where the config stands in the request.

    Raises InvalidRequest, LimitReached, TopicIncompatible.
    """
    there = topic.config.partitions if topic is not None else 1
    wanted, limit, field = config.partitions, engine.options.max_partitions, f"{within}partitions"
    if not 1 <= wanted <= MAX_PARTITIONS:
        raise InvalidRequest(f"partitions must be 1 to {MAX_PARTITIONS}.", field=field)
    if wanted < there:
        raise TopicIncompatible(f"{name} has {there} partitions; they can be added, not removed.", field=field)
    if limit and wanted > max(limit, there):
        raise LimitReached(f"A topic can have {limit} partitions at most.", limit="max_partitions", max=limit)
    if config.dead_letter in engine.catalog.spread:
        raise _needs_one(f"{config.dead_letter} has several, so it takes no dead letters", f"{within}dead_letter")
    if wanted == 1:
        return
    if config.type is TopicType.QUEUE:
        raise _needs_one("a queue has one", field)
    if there > 1:
        return
    routes = engine.catalog.routes
    if topic is not None and (topic.topic_id in routes.out_of or topic.topic_id in routes.into):
        raise _needs_one(f"{name} is an end of a router", field)
    queue = next((each for each in engine.catalog.by_id.values() if each.config.dead_letter == name), None)
    if queue is not None:
        raise _needs_one(f"{name} takes the dead letters of {queue.name}", field)


def check_single(engine: EngineCore, name: str, what: str, field: str) -> None:
    """Raises TopicIncompatible for a topic of several partitions; `what` it cannot be."""
    if name in engine.catalog.spread:
        raise _needs_one(f"{name} has several, so it cannot be {what}", field)


def _needs_one(why: str, field: str) -> TopicIncompatible:
    return TopicIncompatible(f"This takes a topic of one partition: {why}.", field=field)


class Growth:
    """The partitions above 0 of topics that are being made or grown."""

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine

    async def make(self, root: Topic, config: TopicConfig, first: int) -> list[Topic]:
        """Partitions `first` and up, as many as `config` says; durable on return, and found by nobody yet.

        Raises Unavailable; then there are none of them.
        """
        engine = self._engine
        made: list[Topic] = []
        pending: list[asyncio.Future[int | None]] = []
        try:
            for partition in range(first, config.partitions):
                topic_id = engine.catalog.claim_topic_id(engine.shard_is_open)
                value = creation(root.title, root.topic_id, partition, config.partitions, topic_id, config.to_map())
                topic = engine.catalog.add(topic_id, value)
                topic.provisional = True
                made.append(topic)
                pending.append(self._submit(topic, value))
            await asyncio.gather(*pending)
        except StorageError:
            await asyncio.gather(*pending, return_exceptions=True)
            await self.discard(made)
            raise
        return made

    async def create(self, topic: Topic, creating: control.TopicCreate) -> bool:
        """All of a topic whose partition 0 stands there provisionally. False: it has gone, nothing was made."""
        engine = self._engine
        made: list[Topic] = []
        try:
            made = await self.make(topic, topic.config, 1)
            if engine.catalog.by_id.get(topic.topic_id) is not topic:
                await self.discard(made)  # its shard has failed or filled up meanwhile
                return False
            await engine.admin.submit_creation(topic, creating)
        except StorageFailed:
            self._forget_unmade(topic)
            raise  # partition 0 may be in the log: whether the others count is known after the next start
        except StorageError:
            self._forget_unmade(topic)
            await self.discard(made)
            raise
        return True

    def _forget_unmade(self, topic: Topic) -> None:
        if self._engine.catalog.by_id.get(topic.topic_id) is topic:
            self._engine.catalog.remove(topic)

    async def change(self, topic: Topic, config: TopicConfig) -> None:
        """Partition 0's settings count: what fails behind them is done by the next PUT of the same, or start."""
        for each in (topic, *topic.others):
            self._engine.shards[each.log.shard].refuse_when_full()
            await self._engine.consumers.check_change(each, config)
        made = await self.make(topic, config, topic.config.partitions)
        before = topic.others
        try:
            check_partitions(self._engine, topic.name, config, topic)  # a router may have come
            await self._engine.admin.change(topic, config)
        except StorageFailed:
            raise  # as in `create`
        except StorageError:
            if topic.config.partitions < config.partitions:
                await self.discard(made)
            raise
        if before:
            await asyncio.gather(*(self._engine.admin.change(each, config) for each in before))

    async def follow(self, behind: Sequence[Topic], config: TopicConfig) -> None:
        """Give these partitions the settings of partition 0."""
        for each in behind:
            await self._engine.admin.change(each, config)

    async def delete_all(self, done: asyncio.Future[int | None], parts: list[Topic]) -> None:
        """`done`: the deletion of partition 0, with which all of it is gone."""
        await done
        await self.told([self.delete(part) for part in parts])

    def _submit(self, topic: Topic, value: control.TopicCreate) -> asyncio.Future[int | None]:
        engine = self._engine
        shard = engine.shards[topic.log.shard]
        shard.refuse_when_full()
        values: list[control.Control] = [value]
        if (reserve := engine.reservations.first(topic, 0)) is not None:
            values.append(reserve)
        encoded = encode_controls(values, topic.topic_id, engine.now_ms())
        return engine.submit_controls(topic.log, encoded, generation=shard.generation)

    async def discard(self, made: list[Topic]) -> None:
        """They are not to count after all. What cannot be said now the next start finds out by itself."""
        engine = self._engine
        pending: list[asyncio.Future[int | None]] = []
        for topic in made:
            if topic.provisional:
                engine.catalog.remove(topic)
            else:
                pending.append(self.delete(topic))
        await self.told(pending)

    def delete(self, topic: Topic) -> asyncio.Future[int | None]:
        """The TopicDelete of a partition that counts no more."""
        engine = self._engine
        encoded = encode_controls([control.TopicDelete(name=topic.title)], topic.topic_id, engine.now_ms())
        return engine.submit_controls(topic.log, encoded, frees=True)

    @staticmethod
    async def told(pending: list[asyncio.Future[int | None]]) -> None:
        """Wait for deletions of partitions; a start does those that fail."""
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, StorageError):
                _log.warning("partition_not_deleted", error=str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
