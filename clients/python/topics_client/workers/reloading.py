"""Restarts a worker whenever the code below a folder changes, for development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

#: Folders without code of the program itself.
_LEFT_OUT = {"__pycache__", "node_modules", "venv", "build", "dist"}
_LOOK_EVERY_S = 0.3
#: How long a worker may take to end before it is killed.
_PATIENCE_S = 35.0


def reload(arguments: Sequence[str]) -> int:
    """Run `python -m topics_client worker` with these arguments as a separate process, again and again until SIGTERM or
    SIGINT. Returns the exit status."""
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        ended.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    while not ended:
        seen = dict(sources(Path.cwd()))
        # In a process group of its own: only this process tells it of Ctrl-C in a terminal.
        command = [sys.executable, "-m", "topics_client", "worker", *arguments]
        process = subprocess.Popen(command, start_new_session=True)
        while not ended and dict(sources(Path.cwd())) == seen:
            # Also if it has ended: it then waits for the error to be fixed.
            time.sleep(_LOOK_EVERY_S)
        _end(process)
        if not ended:
            sys.stderr.write("Code has changed: restarting.\n")
    return 0


def sources(folder: Path) -> Iterator[tuple[str, int]]:
    """The Python files below the folder, and when each was written (ns)."""
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(where, name)
                try:
                    yield path, os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    continue


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
