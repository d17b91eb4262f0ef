"""The other end of `copy_worker`: one process, one `Copy` at a time. Blocking."""

from __future__ import annotations

import io
import pickle
import subprocess
from contextlib import suppress
from typing import cast

from storage.platform import worker_process
from storage.platform.worker_pipe import receive, send
from storage.segments.copying import Copied, Copy

#: How long it has, once it has nothing to do any more, to end by itself.
_FAREWELL_S = 5.0


class CopyProcessDied(Exception):
    """It ended, by itself or not, before it said what came of a copy. It is gone: nobody is at those files."""


class CopyProcess:
    """Holds the lock of the data directory, by its descriptor, as long as it lives. Raises OSError: not started."""

    def __init__(self, lock: int) -> None:
        self._process = worker_process.start("storage.segments.copy_worker", pass_fds=(lock,))

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, wal_directory: str, job: Copy) -> Copied:
        """What `copying.copy` returns or raises; CopyProcessDied."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        message = None
        with suppress(OSError, ValueError):  # closed, when it has died in an earlier copy
            send(self._process.stdin, 0, True, (wal_directory, job))
            message = receive(self._process.stdout)
        if message is None:
            worker_process.end(self._process)
            raise CopyProcessDied(f"exit code {self._process.returncode}")
        outcome = pickle.loads(message[2])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def kill(self) -> None:
        """From any thread, whatever it is doing. Who waits in `run` is told; else `close` follows."""
        self._process.kill()

    def forked(self) -> None:
        """Close, in a forked process, its end of the pipe, without writing what the parent is about to write."""
        cast("io.BufferedWriter", self._process.stdin).raw.close()

    def close(self) -> None:
        """It is gone on return. Nobody may be in `run`."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_S)
        worker_process.end(self._process)
