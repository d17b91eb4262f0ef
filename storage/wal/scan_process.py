"""A process that runs `scan_worker`, and the thread that takes in what it finds.

Not multiprocessing: that would import the main module of whoever embeds the engine once more, or fork a process that
has threads. The interpreter is started afresh, without `site` and without the engine's package but for what the worker
needs; so it is there in a fraction of the time `import storage` takes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable

from storage.wal.scan_inline import Job
from storage.wal.scan_worker import receive, send

#: What a worker has found and nobody has asked for yet; then it waits. A file of 64 MiB makes 4 to 16 MiB of it.
_HELD_BYTES = 16 << 20

_BOOT = """
import sys, types
sys.path[:] = sys.argv[2:]
package = types.ModuleType("storage")
package.__path__ = [sys.argv[1]]
sys.modules["storage"] = package
from storage.wal.scan_worker import main
main()
"""


class ScanProcess:
    """One worker. `changed` guards what it has in common with the thread that asks; `next_job` is called with it held.

    Raises OSError when the process cannot be started.
    """

    def __init__(self, changed: threading.Condition, next_job: Callable[[ScanProcess], tuple[int, Job] | None]) -> None:
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self._changed = changed
        self._next_job = next_job
        #: (index of the job, pickled Found), in the order of the jobs.
        self._found: deque[tuple[int, bytes]] = deque()
        self._held_bytes = 0
        self._ended = False  # nothing more comes
        self._closed = False
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-u", "-c", _BOOT, package, *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for the process that was started by hand, which then ends this one
        )
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
        with contextlib.suppress(OSError):  # the process is gone: who asks for the rest will be told
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
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
