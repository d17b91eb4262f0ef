"""A real broker, `python -m broker`, as a process that tests may kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.ports import free_port
from topics_client import Client

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class RealBroker:
    """Keeps its address and its data over `kill` and `start`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        settings = {
            "TOPICS_PORT": str(self._port),
            "TOPICS_DATA_DIR": str(self._directory / "data"),
            "TOPICS_WAL_SHARDS": "1",
            "TOPICS_WAL_FILE_BYTES": str(4 << 20),
            "TOPICS_WAL_RESERVE_BYTES": str(1 << 16),
        }
        if cells := os.environ.get("TOPICS_TEST_CELLS", ""):
            settings["TOPICS_CELLS"] = cells
        with (self._directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "broker"],
                cwd=ROOT,
                env=inherited | settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with Client(self.url) as client:
            client.wait_until_ready(PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
