"""A worker that gets jobs as they become ready.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from storage.errors import ShuttingDown
from storage.queues.lease_queue import ClaimedJob

if TYPE_CHECKING:
    from types import TracebackType

    from storage.queues.queues import Queues


class Worker:
    """`async with` it, then iterate over it: jobs come one by one, and at most `max` of them are leased at a time.

    Leaving gives back the jobs that it still holds, with penalty and backoff. Iterating raises TopicNotFound when the
    queue is deleted, and ShuttingDown when the engine stops.
    """

    def __init__(self, queues: Queues, topic: str, node: str, max: int, lease_ms: int) -> None:
        self.topic = topic
        self.node = node
        self.max = max
        self.lease_ms = lease_ms
        #: Awaited before a claim of at most this many jobs. Returns how many bytes they may have; 0 = no limit.
        self.room_for: Callable[[int], Awaitable[int]] | None = None
        self._queues = queues
        #: Token by seq, of the leases that it holds.
        self._held: dict[int, int] = {}
        self._coming: deque[ClaimedJob] = deque()
        self._room = asyncio.Event()

    async def __aenter__(self) -> Worker:
        self._queues.workers.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Worker:
        return self

    async def __anext__(self) -> ClaimedJob:
        while not self._coming:
            while (room := self.max - len(self._held)) <= 0:
                if self._queues.leaving:
                    raise ShuttingDown()
                self._room.clear()
                await self._room.wait()
            max_bytes = 0 if self.room_for is None else await self.room_for(room)
            claimed = await self._queues.claim_for(self, room, max_bytes)
            for job in claimed.jobs:
                if claimed.stands(job):  # `lease_ended` is not called any more for a lease that has ended
                    self._held[job.record.seq] = job.lease_id
                    self._coming.append(job)
        return self._coming.popleft()

    def lease_ended(self, seq: int) -> None:
        """A lease of this worker has ended, for any reason."""
        self._held.pop(seq, None)
        self._room.set()

    def wake(self) -> None:
        """The engine stops: end the wait for room."""
        self._room.set()

    def close(self) -> None:
        """Give everything back at once."""
        self._queues.workers.discard(self)
        held, self._held = self._held, {}
        self._coming.clear()
        self._queues.give_back(self.topic, self.node, list(held.items()))
