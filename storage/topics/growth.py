"""Making topics of several partitions and adding partitions to them.

The new partitions' TopicCreates are synced first; they count from partition 0's frame on, its TopicCreate or its
ConfigUpdate{partitions}. Until then nobody finds them, so nothing can be written to what a crash would undo.

Source: docs/reference/guarantees.md#recovery, docs/reference/api.md#partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from storage.config import TopicConfig
from storage.errors import StorageError, StorageFailed
from storage.format import control
from storage.log.encode import encode_controls
from storage.state.catalog import Topic
from storage.state.partition_rules import check_partitions
from storage.state.partition_sets import creation

if TYPE_CHECKING:
    from storage.engine import Engine

_log = structlog.get_logger("storage")


class Growth:
    """The partitions above 0 of topics that are being made or grown."""

    def __init__(self, engine: Engine) -> None:
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
            # A router may have come meanwhile.
            check_partitions(self._engine.catalog, self._engine.options, topic.name, config, topic)
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
        await self.wait_deleted([self.delete(part) for part in parts])

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
        await self.wait_deleted(pending)

    def delete(self, topic: Topic) -> asyncio.Future[int | None]:
        """The TopicDelete of a partition that counts no more."""
        engine = self._engine
        encoded = encode_controls([control.TopicDelete(name=topic.title)], topic.topic_id, engine.now_ms())
        return engine.submit_controls(topic.log, encoded, frees=True)

    @staticmethod
    async def wait_deleted(pending: list[asyncio.Future[int | None]]) -> None:
        """Wait for deletions of partitions; a start does those that fail."""
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, StorageError):
                _log.warning("partition_not_deleted", error=str(outcome))
            elif isinstance(outcome, BaseException):
                raise outcome
