"""A broker started for a measurement: on any free port, in a data directory that is thrown away."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from loadtest.own_server import OwnServer

_START_WITHIN_S = 120.0
_LOG_LINES_SHOWN = 15


class BrokerFailed(Exception):
    """The broker did not start or did not stay; the end of its log is in the message."""


def add_set(parser: argparse.ArgumentParser) -> None:
    """The option `--set`, of which `dict` makes settings for a broker."""
    parser.add_argument(
        "--set", action="append", default=[], type=_setting, metavar="NAME=VALUE", help="TOPICS_<NAME> for the broker"
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


class OwnBroker(OwnServer):
    """Start, kill, start again on the same data, close. `tree` is the folder whose `broker` package is run."""

    def __init__(
        self,
        *,
        tree: Path | None = None,
        settings: dict[str, str] | None = None,
        parent: str = "",
        environment: dict[str, str] | None = None,
    ) -> None:
        """`settings` are TOPICS_* without that prefix and count from the next start on; `environment` is all else."""
        super().__init__("topics-load-", parent)
        self._tree = tree or Path(__file__).resolve().parents[1]
        self.settings = settings or {}
        self._others = environment or {}

    @property
    def data_dir(self) -> Path:
        return self._work / "data"

    def _spawn(self) -> tuple[subprocess.Popen[bytes], Path]:
        """Start the process; returns it, and the file in which it will write its port."""
        port_file = self._work / "port"
        port_file.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "broker"],
                cwd=self._tree,
                env=self._environment(port_file),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return process, port_file

    def start(self) -> float:
        """Until it is ready; returns how many seconds that took, the interpreter's start included."""
        begin = time.monotonic()
        self._process, port_file = self._spawn()
        while time.monotonic() < begin + _START_WITHIN_S:
            if self._process.poll() is not None:
                break
            if not self.port and port_file.exists():
                self.port = int(port_file.read_text())
            if self.port and self.is_ready():
                return time.monotonic() - begin
            time.sleep(0.005)
        raise self.failed("did not become ready")

    def is_ready(self) -> bool:
        """Whether it serves requests."""
        return is_ready(self.host, self.port)

    def _environment(self, port_file: Path) -> dict[str, str]:
        # Settings of a broker that is run for other purposes must not reach this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        own = {
            "TOPICS_HOST": self.host,
            "TOPICS_PORT": "0",
            "TOPICS_PORT_FILE": str(port_file),
            "TOPICS_DATA_DIR": str(self.data_dir),
            "PYTHONPATH": str(self._tree),
        }
        return inherited | self._others | own | {f"TOPICS_{name}": value for name, value in self.settings.items()}

    @property
    def serving_pid(self) -> int:
        """The process whose event loop takes HTTP requests: this one, or the first gateway of a set of cells."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            if b"broker.gateway" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        return self.pid

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone. `start` continues with the same data."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.port = 0

    def ended(self) -> bool:
        """Whether its process has ended."""
        return self._process is None or self._process.poll() is not None

    def failed(self, what: str) -> BrokerFailed:
        """An error that says what the broker did, with the end of its log."""
        lines = self._log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:]
        return BrokerFailed("\n".join([f"The broker {what}. The end of its log:", *lines]))


def is_ready(host: str, port: int) -> bool:
    """Whether the broker there serves requests."""
    try:
        status, _ = ask(host, port, "GET", "/v0/ready")
    except (OSError, HTTPException):
        return False
    return status == 200


def ask(host: str, port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """One request on a new connection: (status, body)."""
    connection = HTTPConnection(host, port, timeout=60)
    try:
        connection.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
