"""Starts a worker again whenever the code below the folder changes: for developing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

#: Folders that hold no code of the program's own.
_LEFT_OUT = {"__pycache__", "node_modules", "venv", "build", "dist"}
_LOOK_EVERY_S = 0.3
#: So long a worker has to end before it is killed.
_PATIENCE_S = 35.0


def reload(arguments: Sequence[str]) -> int:
    """Runs `python -m topics_client worker` with these arguments in a process of its own, over and over, until SIGTERM
    or SIGINT. Returns the exit status."""
    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        ended.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    while not ended:
        seen = dict(sources(Path.cwd()))
        # In a group of its own: Ctrl-C in a terminal is told by this process alone.
        command = [sys.executable, "-m", "topics_client", "worker", *arguments]
        process = subprocess.Popen(command, start_new_session=True)
        while not ended and dict(sources(Path.cwd())) == seen:
            # Also where it has ended by itself: it waits for the mistake to be mended.
            time.sleep(_LOOK_EVERY_S)
        _end(process)
        if not ended:
            sys.stderr.write("Code has changed: starting again.\n")
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
