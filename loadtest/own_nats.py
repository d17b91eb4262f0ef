"""A NATS server started for a comparison: a child of this process, on a free port, in a directory that is thrown away.

JetStream with file storage, one replica. With `sync_interval: always` it syncs each message before it acknowledges it,
as a topic of class fsync does; with the default it syncs every two minutes and acknowledges what it has written to the
file, which a topic of class disk does sooner (it syncs every 50 ms). `always` is known from version 2.10 on: an older
server is not taken.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from loadtest.scenario import NATS_CONNECT, nats_publish

_PROGRAM = "nats-server"
#: The first that can sync each message.
OLDEST = (2, 10)
_START_WITHIN_S = 30.0
_STOP_WITHIN_S = 30.0
_INBOX = "_INBOX.own"


def version() -> tuple[int, ...]:
    """Of the nats-server that can be run here; () when there is none."""
    if shutil.which(_PROGRAM) is None:
        return ()
    said = subprocess.run([_PROGRAM, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else ()


def is_there() -> bool:
    """Whether a nats-server that can do what is compared can be run here."""
    return version() >= OLDEST


class OwnNats:
    """Start, make streams, close. Raises RuntimeError when it does not start or does not answer as it should."""

    def __init__(self, *, parent: str = "", sync: str = "always") -> None:
        """`sync`: always or default."""
        self._sync = sync
        self._work = Path(tempfile.mkdtemp(prefix="topics-nats-", dir=parent or None))
        self._process: subprocess.Popen[bytes] | None = None
        self.host = "127.0.0.1"
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Until JetStream answers."""
        with socket.socket() as free:
            free.bind((self.host, 0))
            self.port = free.getsockname()[1]
        sync = "" if self._sync == "default" else f", sync_interval: {self._sync}"
        config = self._work / "config"
        config.write_text(
            f'listen: "{self.host}:{self.port}"\njetstream {{ store_dir: "{self._work / "data"}"{sync} }}\n'
        )
        with (self._work / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [_PROGRAM, "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        begin = time.monotonic()
        while time.monotonic() < begin + _START_WITHIN_S and self._process.poll() is None:
            try:
                self.ask("$JS.API.INFO")
            except (OSError, RuntimeError):
                time.sleep(0.01)
            else:
                return
        raise RuntimeError(f"{_PROGRAM} did not start:\n{(self._work / 'log').read_text()}")

    def make_anew(self, streams: list[str]) -> None:
        """Streams of these names, with a subject of the same name each, and nothing in them."""
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
        """One request to JetStream: its answer. Raises LookupError for what is not there."""
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
