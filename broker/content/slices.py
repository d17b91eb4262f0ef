"""Work on large bodies: one body at a time, in slices, with iterations of the event loop in between.

A thread would not help: the work holds the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakKeyDictionary

#: Work on a body up to this size is done at once: a few milliseconds.
LARGE_BYTES: Final = 1 << 20
#: Bytes of a large body that are worked on before others run: a millisecond or two.
SLICE_BYTES: Final = 256 * 1024
#: What each item counts in addition to its bytes.
EACH_BYTES: Final = 2 * 1024
#: Iterations of the loop between two slices. In this many, a new request is accepted, read and answered, so that it
#: waits for one slice, and not for one slice at each of these steps.
ROUNDS: Final = 8

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def yield_to_loop() -> None:
    """Let other requests run before the next slice."""
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


class Slices:
    """Work on many small items: others run whenever a slice of them is done."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done = 0

    async def done(self, size: int) -> None:
        """One item of `size` bytes is done."""
        self._done += size + EACH_BYTES
        if self._done >= SLICE_BYTES:
            self._done = 0
            await yield_to_loop()


@asynccontextmanager
async def exclusive() -> AsyncGenerator[None]:
    """Work on one large body. Other large bodies wait, in the order in which they arrived."""
    lock = _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await yield_to_loop()
        yield
        await yield_to_loop()
