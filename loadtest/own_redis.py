"""A Redis server for a comparison: a child of this process, on a free port, in a temporary directory.

It syncs its log either before each answer (appendonly yes, appendfsync always), like a topic of class fsync, or once a
second (everysec), similar to a topic of class disk. It takes no RDB snapshots and never rewrites its log, so that no
background work disturbs the measurement.
"""

from __future__ import annotations

import shutil
import socket

from loadtest.own_server import OwnServer, free_port
from loadtest.scenario import encoded


def is_there() -> bool:
    """Whether a redis-server can be run here."""
    return shutil.which("redis-server") is not None


class OwnRedis(OwnServer):
    """Start, ask, close. Raises RuntimeError when it does not start or does not answer as it should."""

    def __init__(self, *, parent: str = "", sync: str = "always") -> None:
        """`sync`: always or everysec."""
        super().__init__("topics-redis-", parent)
        self._sync = sync

    def start(self) -> None:
        """Until it answers."""
        self.port = free_port(self.host)
        command = ["redis-server", "--bind", self.host, "--port", str(self.port), "--dir", str(self._work)]
        command += ["--appendonly", "yes", "--appendfsync", self._sync, "--auto-aof-rewrite-percentage", "0"]
        command += ["--save", "", "--daemonize", "no"]
        self._begin("redis-server", command, self._ping)

    def _ping(self) -> None:
        if (said := self.ask([encoded(b"PING")], 1)) != b"+PONG\r\n":
            raise RuntimeError(said.decode("utf-8", "replace"))

    def ask(self, commands: list[bytes], answers: int) -> bytes:
        """Send all commands at once; returns the bytes of the answers, each of them one line, or two for a string."""
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
