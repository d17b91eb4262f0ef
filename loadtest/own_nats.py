"""A NATS server for a comparison: a child of this process, on a free port, in a temporary directory.

JetStream with file storage, one replica. With `sync_interval: always` the server syncs each message before it
acknowledges it, like a topic of class fsync. With the default it syncs every two minutes and acknowledges after writing
to the file; a topic of class disk does the same but syncs every 50 ms. Version 2.10 introduced `always`: an older
server is not used.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from contextlib import suppress
from functools import partial

import msgspec

from loadtest.own_server import OwnServer, free_port
from loadtest.scenario import NATS_CONNECT, nats_publish

_PROGRAM = "nats-server"
#: The first that can sync each message.
OLDEST = (2, 10)
_INBOX = "_INBOX.own"


def version() -> tuple[int, ...]:
    """Of the nats-server that can be run here; () when there is none."""
    if shutil.which(_PROGRAM) is None:
        return ()
    said = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def is_there() -> bool:
    """Whether a nats-server that supports the comparison is installed."""
    return version() >= OLDEST


class OwnNats(OwnServer):
    """Start, make streams, close. Raises RuntimeError when it does not start or does not answer as it should."""

    def __init__(self, *, parent: str = "", sync: str = "always") -> None:
        """`sync`: always or default."""
        super().__init__("topics-nats-", parent)
        self._sync = sync

    def start(self) -> None:
        """Until JetStream answers."""
        self.port = free_port(self.host)
        sync = "" if self._sync == "default" else f", sync_interval: {self._sync}"
        config = self._work / "config"
        config.write_text(
            f'listen: "{self.host}:{self.port}"\njetstream {{ store_dir: "{self._work / "data"}"{sync} }}\n'
        )
        self._begin(_PROGRAM, [_PROGRAM, "-c", str(config)], partial(self.ask, "$JS.API.INFO"))

    def make_anew(self, streams: list[str]) -> None:
        """Create empty streams with these names, each with a subject of the same name."""
        for name in streams:
            with suppress(LookupError):
                self.ask(f"$JS.API.STREAM.DELETE.{name}")
            config = {"name": name, "subjects": [name], "storage": "file", "num_replicas": 1}
            self.ask(f"$JS.API.STREAM.CREATE.{name}", config)

    def count(self, stream: str) -> int:
        """Messages in it; 0 also when there is no such stream."""
        try:
            return self.ask(f"$JS.API.STREAM.INFO.{stream}")["state"]["messages"]
        except LookupError:
            return 0

    def ask(self, subject: str, body: object = None) -> dict[str, dict[str, int]]:
        """One request to JetStream; returns its answer. Raises LookupError when the object does not exist."""
        asked = b"" if body is None else msgspec.json.encode(body)
        with socket.create_connection((self.host, self.port), timeout=60) as connection:
            connection.sendall(NATS_CONNECT % _INBOX.encode() + nats_publish(subject, _INBOX, asked))
            found = b""
            while not (message := _whole_message(found)):
                piece = connection.recv(1 << 20)
                if not piece or b"-ERR" in found:
                    raise RuntimeError(f"{_PROGRAM} closed the connection: {found[-300:]!r}")
                found += piece
        answer = msgspec.json.decode(message)
        if (error := answer.get("error")) is not None:
            raise LookupError(subject) if error["code"] == 404 else RuntimeError(f"{subject}: {error}")
        return answer


def _whole_message(found: bytes) -> bytes:
    """The payload of the first message, b"" while it is not whole. An answer of JetStream is never empty."""
    head = re.search(rb"^H?MSG \S+ \S+ (?:(\d+) )?(\d+)\r\n", found, re.MULTILINE)
    if head is None:
        return b""
    headers, size = int(head[1] or 0), int(head[2])
    payload = found[head.end() + headers : head.end() + size]
    if len(found) < head.end() + size:
        return b""
    # Nobody listens: the server says so with headers alone, for JetStream is not ready yet.
    if not payload:
        raise RuntimeError(found[head.end() :].decode("ascii", "replace"))
    return payload
