"""A lock for each name that is in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class NamedLocks:
    """Locks by name; one that nobody holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        """Names that somebody holds or waits for."""
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncGenerator[None]:
        """Hold the lock of this name inside the block. Waiters get it in the order in which they came."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            yield

    def held(self, name: str) -> bool:
        """Whether the lock is held, so that `hold` would wait."""
        lock = self._locks.get(name)
        return lock is not None and lock.locked()
