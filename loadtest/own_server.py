"""A server started for a measurement: a child of this process, its files in a directory that is thrown away."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_START_WITHIN_S = 30.0
_STOP_WITHIN_S = 30.0


class OwnServer:
    """What those have in common that can be measured beside one another. `port` is known once it has been started."""

    def __init__(self, prefix: str, parent: str = "") -> None:
        """`prefix` of the directory's name, which is made in `parent` ("" = where temporary files go)."""
        self._work = Path(tempfile.mkdtemp(prefix=prefix, dir=parent or None))
        self._log = self._work / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def _begin(
        self, name: str, command: Sequence[str], answers: Callable[[], object], *, cwd: Path | None = None
    ) -> None:
        """Until `answers` does not raise OSError, RuntimeError or ValueError. Raises RuntimeError, the log in it."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        begin = time.monotonic()
        while time.monotonic() < begin + _START_WITHIN_S and self._process.poll() is None:
            try:
                answers()
            except (OSError, RuntimeError, ValueError):
                time.sleep(0.01)
            else:
                return
        raise RuntimeError(f"{name} did not start:\n{self._log.read_text('utf-8', 'replace')}")

    def close(self) -> None:
        """End it, in good order if it can, and remove its data."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._work, ignore_errors=True)


def free_port(host: str) -> int:
    """A port that is free now, for servers that cannot choose one themselves."""
    with socket.socket() as free:
        free.bind((host, 0))
        port: int = free.getsockname()[1]
        return port
