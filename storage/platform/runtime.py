"""The process around the engine, for every part of it: options, files, time, threads and the event loop.

Tests inject the file system and the clock here, and run without threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from storage.options import Options
from storage.platform.clock import Clock, EngineTime, SystemClock
from storage.platform.filesystem import FileSystem
from storage.platform.heaps import bound_heaps
from storage.platform.io import close_file_system, open_file_system
from storage.platform.load_shedding import LoadShedding
from storage.platform.posix import PosixFileSystem
from storage.platform.supervisor import Supervisor

_log = structlog.get_logger("storage")


#: Threads for copies: a thread is started when it is first needed.
_COPY_THREADS = 16


class Runtime:
    """One engine's surroundings. `start` and `stop` belong to the event loop that runs the engine."""

    loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: Options,
        *,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        threaded: bool = True,
    ) -> None:
        self.path: str = os.path.abspath(os.fspath(path))
        self.options = options
        self.threaded = threaded
        self.fs = fs or PosixFileSystem()
        self._own_fs = fs is None
        self.clock = clock or SystemClock()
        self._time = EngineTime(self.clock, lambda step: _log.warning("clock_step", step_ms=step))
        #: Engine time in ms: never goes backwards, not even across a restart.
        self.now_ms: Callable[[], int] = self._time.now_ms
        self.supervisor = Supervisor(self.clock)
        self.load_shedding = LoadShedding(self.clock)
        self._pool: ThreadPoolExecutor | None = None
        self._cold_pool: ThreadPoolExecutor | None = None
        self._copy_pool: ThreadPoolExecutor | None = None

    def start(self) -> None:
        """Bind to the running loop, start the threads, open the file system that the options name."""
        self.loop = asyncio.get_running_loop()
        if self.threaded:
            bound_heaps()
            self._pool = ThreadPoolExecutor(self.options.io_threads, thread_name_prefix="storage-io")
            self._cold_pool = ThreadPoolExecutor(self.options.cold_threads, thread_name_prefix="storage-cold")
            self._copy_pool = ThreadPoolExecutor(_COPY_THREADS, thread_name_prefix="storage-copy")
        if self._own_fs:
            self.fs = open_file_system(self.options.io_backend)

    def stop(self) -> None:
        """End the threads and close the file system. No job runs after this returns."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)  # after this, the next process owns these files
            self._pool = None
        if self._copy_pool is not None:
            self._copy_pool.shutdown(wait=True)
            self._copy_pool = None
        if self._cold_pool is not None:
            self._cold_pool.shutdown(wait=True, cancel_futures=True)
            self._cold_pool = None
        if self._own_fs:
            close_file_system(self.fs)

    def now_from(self, stored_ms: int) -> int:
        """Engine time, from here on never below `stored_ms`, the greatest timestamp found at recovery."""
        self._time.raise_to(stored_ms)
        return self._time.now_ms()

    def monotonic_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    async def run_io(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking job on the I/O pool; without threads, run it at once."""
        if self._pool is None:
            return job(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._pool, job, *arguments)

    async def run_copy(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Run a job that mostly waits for syncs, on a pool of its own: reads need the threads of the other."""
        if self._copy_pool is None:
            return job(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._copy_pool, job, *arguments)

    async def run_cold(self, job: Callable[..., Any], *arguments: Any) -> Any:
        """Run a blocking job on the pool for requests that may wait for the cold store."""
        if self._cold_pool is None:
            return job(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._cold_pool, job, *arguments)

    def spawn(self, job: Callable[[], None]) -> None:
        """Run a blocking job on the I/O pool without waiting for it; without threads, run it at once."""
        if self._pool is None:
            job()
        else:
            self._pool.submit(job)
