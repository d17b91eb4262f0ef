"""Runs the background work on segments in rounds: flushing, reclaiming, then housekeeping, never two at once.

A round in progress always runs to its end, also when the worker is stopped, because threads are using the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from storage.errors import StorageError
from storage.segments.errors import SegmentError
from storage.segments.flusher import Flusher
from storage.segments.housekeeping import Housekeeping
from storage.segments.segments import Segments


class SegmentWorker:
    """See the module."""

    def __init__(
        self,
        segments: Segments,
        flusher: Flusher,
        reclaim: Callable[[], Awaitable[None]],
        align: Callable[[], Awaitable[None]],
        housekeeping: Housekeeping,
    ) -> None:
        """`reclaim` and `align` are called in each round. Housekeeping finds the segments that they free."""
        self._segments = segments
        self._logs = segments.logs
        self._flusher = flusher
        self._reclaim = reclaim
        self._align = align
        self._housekeeping = housekeeping
        self._round: asyncio.Task[None] | None = None
        #: Rounds of flushing since the start, and how long the last one took.
        self.rounds = 0
        self.last_seconds = 0.0
        self._going = asyncio.Event()
        self._going.set()

    async def tick(self) -> None:
        """One round. Raises the error of a step that failed; the next round tries it again."""
        await self._run(everything=False)

    async def flush_all(self) -> None:
        """Move everything published into segments, and run housekeeping."""
        await self._run(everything=True)

    async def _run(self, *, everything: bool) -> None:
        await self.wait_idle()
        while self.pausing:
            await self._going.wait()
            await self.wait_idle()
        self._round = asyncio.ensure_future(self._work(everything))
        self._round.add_done_callback(_take_error)
        await asyncio.shield(self._round)

    async def _work(self, everything: bool) -> None:
        begin = self._logs.clock.monotonic_ns()
        await (self._flusher.flush_all() if everything else self._flusher.work())
        self.rounds += 1
        self.last_seconds = (self._logs.clock.monotonic_ns() - begin) / 1e9
        await self._reclaim()
        # On a full disk, the steps that free space must not wait.
        full = any(shard.log.full for shard in self._logs.shards)
        if not full:
            await self._align()
        if everything or full or not self._logs.runtime.load_shedding.must_wait("housekeeping"):
            await self._housekeeping.work()

    @property
    def pausing(self) -> bool:
        """Whether somebody waits for the round to end. It ends at its next step."""
        return self._segments.pausing

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """Within this, no round is in progress and none begins."""
        self._segments.pausing = True
        self._going.clear()
        try:
            await self.wait_idle()
            yield
        finally:
            self._segments.pausing = False
            self._going.set()

    async def wait_idle(self) -> None:
        """Wait until no round is in progress."""
        while self._round is not None and not self._round.done():
            await asyncio.wait([self._round])

    async def stop(self, *, ready: bool) -> None:
        """Wait for the round in progress, flush what would make the next start slow, close the files."""
        await self.wait_idle()
        if ready:
            with suppress(StorageError, SegmentError, OSError):  # the records are still in the log
                await self._flusher.finish()
        await self._flusher.close()


def _take_error(ended: asyncio.Task[None]) -> None:
    """Who waits for the round gets its error. If nobody does, because the engine stops, asyncio shall not report it
    later, at any moment: the shard or the segment that failed has been reported."""
    if not ended.cancelled():
        ended.exception()
