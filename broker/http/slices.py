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
#: Rounds between two slices. A request that comes in is accepted, read and answered within so many: it waits for one
#: slice, and not for one slice at each of these steps.
ROUNDS: Final = 8

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def let_others_run() -> None:
    """Let other requests run before the next slice."""
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


@asynccontextmanager
async def exclusive() -> AsyncGenerator[None]:
    """Work on a large body alone. Other large bodies wait, in the order in which they came."""
    lock = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await let_others_run()
        yield
        await let_others_run()
