"""A process that runs `scan_worker`, and the thread that takes in what it finds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from storage.log.scan_inline import Job
from storage.platform import worker_process
from storage.platform.worker_pipe import receive, send

#: What a worker has found and nobody has asked for yet; then it waits. A file of 64 MiB makes 4 to 16 MiB of it.
_HELD_BYTES = 16 << 20


class ScanProcess:
    """One worker. `changed` guards what it has in common with the thread that asks; `next_job` is called with it held.

    Raises OSError when the process cannot be started.
    """

    def __init__(self, changed: threading.Condition, next_job: Callable[[ScanProcess], tuple[int, Job] | None]) -> None:
        self._changed = changed
        self._next_job = next_job
        #: (index of the job, pickled Found), in the order of the jobs.
        self._found: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self._ended = False  # nothing more comes
        self._closed = False
        self._process = worker_process.start("storage.log.scan_worker")
        with changed:
            self._first = next_job(self)  # now, so that nobody finds the worker with nothing to do
        self._thread = threading.Thread(target=self._run, name="storage-scan", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def take(self, index: int, idle: Callable[[], None]) -> bytes | None:
        """The next Found of that job, pickled; None when the process has died before it was through with it.

        Jobs are asked for in the order in which they were given; those that nobody asked for are passed over.
        """
        with self._changed:
            while True:
                while self._found and self._found[0][0] < index:
                    self._pop()
                if self._found:
                    return self._pop() if self._found[0][0] == index else None
                if self._ended:
                    return None
                self._changed.wait(0.1)
                idle()

    def _pop(self) -> bytes:
        _, data = self._found.popleft()
        self._held_bytes -= len(data)
        self._changed.notify_all()
        return data

    def _run(self) -> None:
        """The thread: one job after another, until there is none left or the process has ended."""
        assert self._process.stdin is not None
        job = self._first
        with suppress(OSError):  # the process is gone: who asks for the rest will be told
            while job is not None:
                send(self._process.stdin, job[0], True, job[1])
                job = self._take_in()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take_in(self) -> tuple[int, Job] | None:
        """All that one job yields; the next job, None when there is none or the process has ended."""
        assert self._process.stdout is not None
        job, last = None, False
        while not last:
            message = receive(self._process.stdout)
            with self._changed:
                while self._held_bytes > _HELD_BYTES and not self._closed:
                    self._changed.wait()
                if message is None or self._closed:
                    return None
                index, last, data = message
                if last:
                    job = self._next_job(self)  # before anybody can see that this worker has nothing to do
                self._found.append((index, data))
                self._held_bytes += len(data)
                self._changed.notify_all()
        return job

    def close(self) -> None:
        """End the process, whatever it is doing; it and the thread are gone on return."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._process.kill()
        self._process.wait()
        self._thread.join()  # it is at the pipes
        worker_process.end(self._process)
