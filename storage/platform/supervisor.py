"""Runs background workers: each has a tick at an interval of the injected clock, and waits longer when it raises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from storage.platform.clock import Clock

MAX_BACKOFF_S = 30.0
_log = structlog.get_logger("storage")


class Supervisor:
    """Workers are started in order and stopped in reverse order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: list[tuple[str, asyncio.Task[None]]] = []
        #: The number of times each worker's tick has raised.
        self.failures: dict[str, int] = {}

    def start(self, name: str, interval_s: float, tick: Callable[[], Awaitable[None]]) -> None:
        """Call `tick` every `interval_s`, the first time after one interval."""
        self.failures[name] = 0
        self._tasks.append((name, asyncio.create_task(self._run(name, interval_s, tick), name=f"storage-{name}")))

    async def _run(self, name: str, interval_s: float, tick: Callable[[], Awaitable[None]]) -> None:
        backoff_s = 0.0
        while True:
            await self._clock.sleep(interval_s + backoff_s)
            try:
                await tick()
                backoff_s = 0.0
            except Exception as error:
                self.failures[name] += 1
                backoff_s = min(MAX_BACKOFF_S, max(interval_s, backoff_s * 2))
                _log.warning("worker_failed", worker=name, error=str(error), retry_in_s=interval_s + backoff_s)

    async def stop(self) -> None:
        """Cancel all workers and wait until they have ended."""
        for _, task in reversed(self._tasks):
            task.cancel()
        for _, task in reversed(self._tasks):
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
