"""The share group that each queue belongs to: the first one that fetched from it, until that group is deleted. Durable.

A queue has only one group, because it delivers each job once: two groups would take jobs from each other, whereas in
Kafka each group gets all records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage import Engine
    from storage.state import Topic

#: The kind of the states: a group id, by the number of the topic, which is never used again.
KIND: Final = "share_group"


class Owners:
    """The groups of an engine's queues. All methods run on the loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._taking = asyncio.Lock()

    def owner(self, topic: Topic) -> str | None:
        """The group that the queue belongs to; None: none yet."""
        found = self._engine.states.get(KIND, str(topic.topic_id))
        return None if found is None else found.decode()

    async def take(self, topic: Topic, group_id: str, begin: Callable[[Topic], Awaitable[None]] | None = None) -> str:
        """Assign the queue to this group if it has none. Returns its group; durable on return. Raises StorageError.

        If the queue has none, `begin` runs first. After a crash in between, it runs again.
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
        """The queues of a group."""
        return [topic for owner, topic in self.all() if owner == group_id]

    def all(self) -> list[tuple[str, Topic]]:
        """All queues that belong to a group, with the group id, ordered by it."""
        by_id = self._engine.catalog.by_id
        return [(value.decode(), by_id[int(key)]) for key, value in self._all() if int(key) in by_id]

    async def release(self, group_id: str) -> None:
        """Take all queues away from a group. Durable on return. Raises StorageError."""
        async with self._taking:
            for topic in self.queues(group_id):
                await self._engine.states.delete(KIND, str(topic.topic_id))

    async def release_one(self, topic: Topic, group_id: str) -> None:
        """Take a queue away from a group, if it has it. Durable on return. Raises StorageError."""
        async with self._taking:
            if self.owner(topic) == group_id:
                await self._engine.states.delete(KIND, str(topic.topic_id))

    async def _forget_deleted(self) -> None:
        for key, _ in self._all():
            if int(key) not in self._engine.catalog.by_id:
                await self._engine.states.delete(KIND, key)

    def _all(self) -> list[tuple[str, bytes]]:
        return self._engine.states.items(KIND)
