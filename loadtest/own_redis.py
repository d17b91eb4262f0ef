"""A Redis started for a comparison: a child of this process, on a free port, in a directory that is thrown away.

It syncs its log before it answers (appendonly yes, appendfsync always), as a topic of class fsync does, or once a
second (everysec), not unlike one of class disk; it takes no RDB snapshots and never rewrites its log, so that nothing
else goes on while it is measured.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from loadtest.scenario import encoded

_START_WITHIN_S = 30.0
_STOP_WITHIN_S = 30.0


def is_there() -> bool:
    """Whether a redis-server can be run here."""
    return shutil.which("redis-server") is not None


class OwnRedis:
    """Start, ask, close. Raises RuntimeError when it does not start or does not answer as it should."""

    def __init__(self, *, parent: str = "", sync: str = "always") -> None:
        """`sync`: always or everysec."""
        self._sync = sync
        self._work = Path(tempfile.mkdtemp(prefix="topics-redis-", dir=parent or None))
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Until it answers."""
        with socket.socket() as free:
            free.bind((self.host, 0))
            self.port = free.getsockname()[1]
        command = ["redis-server", "--bind", self.host, "--port", str(self.port), "--dir", str(self._work)]
        command += ["--appendonly", "yes", "--appendfsync", self._sync, "--auto-aof-rewrite-percentage", "0"]
        command += ["--save", "", "--daemonize", "no"]
        with (self._work / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        begin = time.monotonic()
        while time.monotonic() < begin + _START_WITHIN_S and self._process.poll() is None:
            try:
                if self.ask([encoded(b"PING")], 1) == b"+PONG\r\n":
                    return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"redis-server did not start:\n{(self._work / 'log').read_text()}")

    def ask(self, commands: list[bytes], answers: int) -> bytes:
        """Send all of them at once; the bytes of so many answers, each of them one line, or two for a string."""
        with socket.create_connection((self.host, self.port), timeout=60) as connection:
            connection.sendall(b"".join(commands))
            found = b""
            while found.count(b"\r\n") < answers + found.count(b"$"):
                piece = connection.recv(1 << 20)
                if not piece:
                    raise RuntimeError("redis-server closed the connection")
                found += piece
            if b"-ERR" in found:
                raise RuntimeError(found[:300].decode())
            return found

    def close(self) -> None:
        """End it and remove its data."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._work, ignore_errors=True)
