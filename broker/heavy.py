"""Work that keeps a processor busy for long, on threads, so that the loop goes on meanwhile; so much at once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

#: More of it at once would only take memory: the work is bound by processors.
AT_ONCE: Final = max(2, min(4, os.cpu_count() or 1))

A = ParamSpec("A")
T = TypeVar("T")


class Heavy:
    """`at_once` pieces of work run, the others wait in the order in which they came. Belongs to a loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._slots = asyncio.Semaphore(at_once)

    async def run(self, work: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs) -> T:
        """What `work` returns or raises. When cancelled, work that is begun keeps its place until it ends."""
        await self._slots.acquire()
        try:
            working = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
        except BaseException:
            self._slots.release()
            raise
        working.add_done_callback(self._ended)
        try:
            return await asyncio.shield(working)
        finally:
            # An error leads to this frame, and the frame to what holds the error: without this, all that the work had
            # in memory would stay until the garbage collector comes by, which is seldom.
            del working

    def _ended(self, working: asyncio.Future[T]) -> None:
        self._slots.release()
        if not working.cancelled():
            working.exception()  # where nobody waits any more, nobody else asks for it
