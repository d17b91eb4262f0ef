"""The process that copies records into segments for the flusher: a `Copy` comes in at stdin, what came of it goes out.

Started by `copy_process`, and by nobody else. It has the lock of the data directory open, as the engine has, so that
nobody else opens the directory before both are gone: it writes to files there, and may be in the middle of that when
the engine is killed. It ends when stdin does, or stdout has no reader any more, and at nothing else: where everybody is
asked to stop, the engine still has use for it. It holds one `Copy` and its bytes at a time.
"""

from __future__ import annotations

import pickle
import signal
import sys

from storage.platform.posix import PosixFileSystem
from storage.platform.worker_pipe import receive, send
from storage.segments.copying import Copied, copy


def main() -> None:
    """Work off what comes."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fs = PosixFileSystem()
    try:
        while _serve(fs):
            pass
    except BrokenPipeError:
        pass  # whoever wanted this is gone


def _serve(fs: PosixFileSystem) -> bool:
    """One; False when there is none any more. Nothing of it is held on return."""
    message = receive(sys.stdin.buffer)
    if message is not None:
        send(sys.stdout.buffer, 0, True, _outcome(fs, message[2]))
    return message is not None


def _outcome(fs: PosixFileSystem, data: bytes) -> Copied | Exception:
    """What `copy` returns or raises. An error that does not go through the pipe ends the process."""
    try:
        wal_directory, job = pickle.loads(data)
        return copy(fs, wal_directory, job)
    except Exception as error:
        return error
