"""Work on large bodies: one body at a time, in slices, with rounds of the event loop in between.

A thread would not help: what is done here holds the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

#: Work on a body up to this size is done at once: a few milliseconds.
LARGE_BYTES: Final = 1 << 20
#: So much of it is done without letting others run: a millisecond or two.
SLICE_BYTES: Final = 256 * 1024
#: What each thing costs beside its bytes.
EACH_BYTES: Final = 2 * 1024
#: Rounds between two slices. A request that comes in is accepted, read and answered within so many: it waits for one
#: slice, and not for one slice at each of these steps.
ROUNDS: Final = 8

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def yield_to_loop() -> None:
    """Let other requests run before the next slice."""
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


class Slices:
    """Of work on many small things: others run whenever a slice of them is done."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    async def done(self, size: int) -> None:
        """One thing of so many bytes is done."""
        self._done += size + EACH_BYTES
        if self._done >= SLICE_BYTES:
            self._done = 0
            await yield_to_loop()


@asynccontextmanager
async def exclusive() -> AsyncGenerator[None]:
    """Work on a large body alone. Other large bodies wait, in the order in which they came."""
    lock = _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await yield_to_loop()
        yield
        await yield_to_loop()
