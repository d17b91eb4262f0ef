"""Large work in slices, with iterations of the event loop in between: bodies, lists of everything, scrapes.

All such work shares one pace: however many requests want a slice, only one gets one in a fixed number of iterations. A
thread would not help: the work holds the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

#: Work on a body up to this size is done at once: a few milliseconds.
LARGE_BYTES: Final = 1 << 20
#: Bytes of a large body that are processed before others run: a millisecond or two.
SLICE_BYTES: Final = 256 * 1024
#: What each item counts in addition to its bytes.
EACH_BYTES: Final = 2 * 1024
#: Iterations of the loop between two slices. In this many, a new request is accepted, read and answered, so that it
#: waits for one slice, and not for one slice at each of these steps.
ROUNDS: Final = 8

T = TypeVar("T")

_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_paces: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pace] = WeakKeyDictionary()


class _Pace:
    """The waiters for the next slice, in the order in which they came. Each event loop has one."""

    __slots__ = ("_left", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        #: Iterations until the next slice; 0: nobody waits.
        self._left = 0

    def wait(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = loop.create_future()
        self.waiting.append(waiter)
        if not self._left:
            self._left = ROUNDS
            loop.call_soon(self._next_round, loop)
        return waiter

    def _next_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left -= 1
        if not self._left:
            while self.waiting:
                waiter = self.waiting.popleft()
                if not waiter.done():  # otherwise its caller is gone
                    waiter.set_result(None)
                    break
            self._left = ROUNDS if self.waiting else 0
        if self._left:
            loop.call_soon(self._next_round, loop)


def _pace(loop: asyncio.AbstractEventLoop) -> _Pace:
    found = _paces.get(loop)
    if found is None:
        found = _paces[loop] = _Pace()
    return found


async def yield_to_loop() -> None:
    """Let other requests run before the next slice: first those that arrive, then those that wait for theirs."""
    loop = asyncio.get_running_loop()
    await _pace(loop).wait(loop)


class Slices:
    """Work on many small items: others run whenever a slice of them is done."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: int | None = None

    async def done(self, size: int, *, each: int = EACH_BYTES) -> None:
        """One item of `size` bytes is done, or is about to be; `each` is what it counts in addition."""
        if self._done is None:
            # Of many requests that come at once only the first has its first slice at once.
            self._done = 0
            if _pace(asyncio.get_running_loop()).waiting:
                await yield_to_loop()
        self._done += size + each
        if self._done >= SLICE_BYTES:
            self._done = 0
            await yield_to_loop()


async def in_slices(items: Iterable[T], *, each: int = EACH_BYTES) -> AsyncIterator[T]:
    """The items; others run whenever a slice of them is done. `each` is what an item counts, in bytes."""
    work = Slices()
    for item in items:
        await work.done(0, each=each)
        yield item


@asynccontextmanager
async def exclusive() -> AsyncGenerator[None]:
    """Work on one large body. Other large bodies wait, in the order in which they arrived."""
    lock = _locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with lock:
        await yield_to_loop()
        yield
        await yield_to_loop()
