"""The share group of each queue: the first one that has fetched from it, also after restarts, until the group is
deleted.

A queue delivers each job once. Two groups on one queue would take jobs from each other, whereas in Kafka each group
gets all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic

#: Kind of the states: a group's id, by the number of the topic, which no later topic has.
KIND: Final = "share_group"


class Owners:
    """Owners of an engine's queues. All methods belong to the loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taking = asyncio.Lock()

    def owner(self, topic: Topic) -> str | None:
        """The group that the queue belongs to; None: to none yet."""
        found = self._engine.states.get(KIND, str(topic.topic_id))
        return None if found is None else found.decode()

    async def take(self, topic: Topic, group_id: str, begin: Callable[[Topic], Awaitable[None]] | None = None) -> str:
        """The group that it belongs to: this one if it had none; durable on return. Raises StorageError.

        In that case `begin` runs first; after a crash in between it runs again.
        """
        found = self.owner(topic)
        if found is not None:
            return found
        async with self._taking:
            found = self.owner(topic)
            if found is None:
                await self._forget_deleted()
                if begin is not None:
                    await begin(topic)
                await self._engine.states.put(KIND, str(topic.topic_id), group_id.encode())
        return found or group_id

    def queues(self, group_id: str) -> list[Topic]:
        """The queues of that group."""
        return [topic for owner, topic in self.all() if owner == group_id]

    def all(self) -> list[tuple[str, Topic]]:
        """Every queue that belongs to a group, by the id of the group."""
        by_id = self._engine.catalog.by_id
        return [(value.decode(), by_id[int(key)]) for key, value in self._all() if int(key) in by_id]

    async def release(self, group_id: str) -> None:
        """Its queues belong to no group; durable on return. Raises StorageError."""
        async with self._taking:
            for topic in self.queues(group_id):
                await self._engine.states.delete(KIND, str(topic.topic_id))

    async def release_one(self, topic: Topic, group_id: str) -> None:
        """That queue belongs to no group, if it was this group's; durable on return. Raises StorageError."""
        async with self._taking:
            if self.owner(topic) == group_id:
                await self._engine.states.delete(KIND, str(topic.topic_id))

    async def _forget_deleted(self) -> None:
        for key, _ in self._all():
            if int(key) not in self._engine.catalog.by_id:
                await self._engine.states.delete(KIND, key)

    def _all(self) -> list[tuple[str, bytes]]:
        return self._engine.states.items(KIND)
