"""A broker in a process of its own, on a free port. Its log is read line by line.

    with LiveServer(tmp_path / "data") as server:
        httpx.get(f"{server.url}/v0/ready")

Nothing is polled: tests wait for what the server writes into its JSON log.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: A crowded machine takes many times as long as an idle one.
START_S = 120
STOP_S = 120


class ServerEnded(Exception):
    """The server ended before it logged the awaited event."""


class LiveServer:
    """Started by `with`. At its end stopped cleanly, or killed if that fails."""

    def __init__(self, data_dir: Path, *, ready: bool = True, **settings: str) -> None:
        self.data_dir = data_dir
        self.url = ""
        self.port = 0
        self.events: list[dict[str, Any]] = []
        self._wait_ready = ready
        self._settings = settings
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> LiveServer:
        self._process = start(self.data_dir, **self._settings)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            listening = self.event("listening")
            self.url = listening["url"]
            self.port = int(self.url.rpartition(":")[2])
            if self._wait_ready:
                self.event("ready")
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print("log of the server:", *self.events, sep="\n  ")  # shown by pytest when the test fails
        if self.process.poll() is None:
            try:
                self.stop()
            finally:
                self.kill()

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def event(self, name: str) -> dict[str, Any]:
        """Wait for the next log line of that event. Raises ServerEnded."""
        while True:
            line = self._lines.get(timeout=START_S)
            if line is None:
                raise ServerEnded(f"exit code {self.process.wait(STOP_S)}, log: {self.events}")
            if line.get("event") == name:
                return line

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit code, once it has ended. Its last output is among the events then."""
        code = self.process.wait(STOP_S)
        if self._reader is not None:
            self._reader.join(STOP_S)
        return code

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """End it like a crash, with SIGKILL."""
        self.process.kill()
        self.process.wait(STOP_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            for text in stderr:
                line = as_event(text)
                self.events.append(line)
                self._lines.put(line)
        self._lines.put(None)


def as_event(text: str) -> dict[str, Any]:
    """A log line. One that is not JSON (an interpreter's last output) becomes an event of its own."""
    try:
        return json.loads(text)
    except ValueError:
        return {"event": "text", "text": text.rstrip()}


def start(data_dir: Path, **settings: str) -> subprocess.Popen[str]:
    """Start the process alone. Settings are named without the prefix: `port="0"`."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "broker"],
        cwd=ROOT,
        env=environment(data_dir, settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def environment(data_dir: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without its own `TOPICS_*`, with small files and JSON logs."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
    given = {"data_dir": str(data_dir), "port": "0", "log_format": "json", "wal_file_bytes": str(1 << 22)} | settings
    return inherited | {f"TOPICS_{name.upper()}": value for name, value in given.items()}
