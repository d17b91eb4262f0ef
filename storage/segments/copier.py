"""Has large copies of the flusher made by a process of its own, which leaves the interpreter to the event loop.

The process is started when it is first wanted, and ended when it has had nothing to do for a while. One that dies costs
time only: it is gone, for good, before anybody else is at its files, and the same copy is made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from storage.platform.io.choose import backend_of
from storage.platform.runtime import Runtime
from storage.segments.copy_process import CopyProcess, CopyProcessDied
from storage.segments.copying import Copied, Copy

#: After so long without work it is ended.
_IDLE_MS = 60_000
#: So long a copy may take, about: it is a few MiB.
_PATIENCE_S = 60.0
#: After a death the next process comes no sooner than this, doubled each time, until one has made a copy.
_BACKOFF_MS = 1000
_MAX_BACKOFF_MS = 60_000
#: A record of a turn counts as so many bytes of it: work is done by the record, and bytes are moved.
_BYTES_A_RECORD = 1024

_log = structlog.get_logger("storage")


class Copier:
    """Belongs to the loop. What is for the process waits in a thread's queue: no copy waits for a turn of the loop that
    only hands over to the next.
    """

    def __init__(self, runtime: Runtime, lock_descriptor: Callable[[], int | None]) -> None:
        """`lock_descriptor`: by which the process holds the directory too; None where there can be no process."""
        self._runtime = runtime
        self._lock_descriptor = lock_descriptor
        self._process: CopyProcess | None = None
        self._starting = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._watching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._outcomes = 0
        self._used_ms = 0
        self._not_before_ms = 0
        self._backoff_ms = _BACKOFF_MS
        #: Counters for the metrics: processes started, those that died or could not be started, copies made.
        self.started = 0
        self.died = 0
        self.copies = 0

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def wants(self, records: int, size_bytes: int) -> bool:
        """Whether a copy of so much is worth the way."""
        least = self._runtime.options.absorb_process_records
        return 0 < least <= max(records, size_bytes // _BYTES_A_RECORD)

    async def make(self, wal_directory: str, job: Copy) -> Copied | None:
        """What `copying.copy` returns or raises; None: it is to be made here, and nobody is at the files."""
        process = self._process or await self._ready()
        if process is None:
            return None
        self._waiting += 1
        try:
            copied: Copied = await self._in_thread(process.run, wal_directory, job)
        except CopyProcessDied as error:
            if self._process is process:  # else another copy that waited for it was told before
                self._process = None
                retry_in_ms = self._put_off()
                _log.warning("copy_process_died", retry_in_ms=retry_in_ms, pid=process.pid, error=str(error))
            return None
        finally:
            self._waiting -= 1
            self._outcomes += 1
            self._used_ms = self._runtime.monotonic_ms()
        self._backoff_ms = _BACKOFF_MS
        self.copies += 1
        return copied

    def _in_thread(self, job: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="storage-copy")
        return asyncio.get_running_loop().run_in_executor(self._thread, job, *arguments)

    async def _ready(self) -> CopyProcess | None:
        """A process, started now; None where there can be none."""
        runtime = self._runtime
        async with self._starting:
            if self._process is not None:
                return self._process
            lock = self._lock_descriptor()
            if lock is None or backend_of(runtime.fs) is None or runtime.monotonic_ms() < self._not_before_ms:
                return None
            try:
                self._process = await self._in_thread(CopyProcess, lock)
            except OSError as error:
                _log.warning("copy_process_not_started", retry_in_ms=self._put_off(), error=str(error))
                return None
            self.started += 1
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch(), name="storage-copyist")
            return self._process

    async def _watch(self) -> None:
        """Kill a process that somebody waits for and that comes to no end. Who waits is told."""
        while True:
            before = self._outcomes
            await self._runtime.clock.sleep(_PATIENCE_S)
            if self._process is not None and self._waiting and self._outcomes == before:
                self._process.kill()

    def _put_off(self) -> int:
        """There is no process: when the next may be started, in ms from now."""
        self.died += 1
        wait_ms = self._backoff_ms
        self._not_before_ms = self._runtime.monotonic_ms() + wait_ms
        self._backoff_ms = min(wait_ms * 2, _MAX_BACKOFF_MS)
        return wait_ms

    def forked(self) -> None:
        """This is a forked process: the process that copies must end with the parent, whoever forked from it."""
        if self._process is not None:
            self._process.forked()

    async def rest(self) -> None:
        """End the process if nobody has had use for it for a while."""
        if self._process is not None and self._runtime.monotonic_ms() - self._used_ms >= _IDLE_MS:
            await self.close()

    async def close(self) -> None:
        """No process is left on return, nor a thread. Nobody may be in `make`."""
        process, self._process = self._process, None
        if process is not None:
            await self._in_thread(process.close)
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
