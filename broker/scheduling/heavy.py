"""Runs work that keeps a processor busy for long on a few threads, so that the loop continues meanwhile."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec, TypeVar

#: More at a time would only take memory: the processors are the limit.
AT_ONCE: Final = max(2, min(4, os.cpu_count() or 1))

A = ParamSpec("A")
T = TypeVar("T")


class Heavy:
    """At most `at_once` pieces of work run; the others wait, in the order in which they came. Belongs to a loop."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._slots = asyncio.Semaphore(at_once)

    async def run(self, work: Callable[A, T], /, *args: A.args, **kwargs: A.kwargs) -> T:
        """Run `work` on a thread. If cancelled, work that has begun still counts until it ends."""
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
            # The error refers to this frame, and the frame to the future that holds the error. Without this, everything
            # that the work had in memory would stay until the garbage collector runs, which is seldom.
            del working

    def _ended(self, working: asyncio.Future[T]) -> None:
        self._slots.release()
        if not working.cancelled():
            working.exception()  # if nobody waits any more, nobody else retrieves it
