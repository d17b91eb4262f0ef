"""A data directory, and the real broker processes that serve it one after the other.

Every process is `python -m broker` on a free port. It is killed when the `with` block ends, or by the kernel if the
test process dies. Every wait has a deadline. If a broker ends early, the failure shows its log.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from storage.platform import PosixFileSystem

ROOT = Path(__file__).resolve().parents[2]
#: PYTHONPATH of child processes: the whole repository, and nothing else.
PYTHON_PATH = f"{ROOT}{os.pathsep}{ROOT / 'clients/python'}"
#: A crowded machine takes many times as long as an idle one.
PATIENCE_S = 120.0
#: Of a stop: ten seconds for requests in flight, and the last snapshot.
STOP_S = 120.0
LOOK_AGAIN_S = 0.005
JSON = {"content-type": "application/json"}

# PR_SET_PDEATHSIG (1), SIGKILL (9): a program run under this is killed when the test process ends, however it ends.
TETHER = (
    sys.executable,
    "-I",
    "-S",
    "-c",
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])",
)


def environment(data_dir: Path, **settings: object) -> dict[str, str]:
    """The environment of this process with no TOPICS_* settings but these. Names are in lower case, without the
    prefix."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("TOPICS_")}
    kept["PYTHONPATH"] = PYTHON_PATH
    backend = os.environ.get("TOPICS_TEST_BACKEND", "")
    cells = os.environ.get("TOPICS_TEST_CELLS", "")
    chosen = {**({"io_backend": backend} if backend else {}), **({"cells": cells} if cells else {})}
    named = {"data_dir": data_dir, "port": 0, **chosen, **settings}
    return kept | {f"TOPICS_{name.upper()}": str(value) for name, value in named.items()}


class BrokerProcess:
    """`directory` holds data/, the log of all processes and the port file. `prefix`: a command to run the broker under.

    `program`: the command of an installed broker, which runs in `directory`, instead of the checkout's.

    Log files are small unless a setting says otherwise: to preallocate the usual ones would take most of a test's time.
    """

    def __init__(
        self,
        directory: Path,
        *,
        data_dir: Path | None = None,
        prefix: Sequence[str] = (),
        program: Path | None = None,
        **settings: object,
    ) -> None:
        self.data_dir = data_dir or directory / "data"
        self._command = [sys.executable, "-m", "broker"] if program is None else [str(program)]
        self._cwd = ROOT if program is None else directory
        self._log = directory / "broker.log"
        self._port_file = directory / "port"
        self._prefix = list(prefix)
        self._settings = {"wal_file_bytes": 1 << 20, "wal_reserve_bytes": 1 << 16, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    # -- life --------------------------------------------------------------------------------------------------------

    def launch(self, **settings: object) -> None:
        """Start a process without waiting for anything. `settings` apply to this process only."""
        assert self._process is None or self._process.poll() is not None, "the broker before this one still runs"
        self._port_file.unlink(missing_ok=True)
        wanted = environment(self.data_dir, port_file=self._port_file, **{**self._settings, **settings})
        if self._cwd != ROOT:
            del wanted["PYTHONPATH"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*TETHER, *self._prefix, *self._command],
                env=wanted,
                cwd=self._cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start(self, **settings: object) -> None:
        """Start a process and wait until it serves."""
        self.launch(**settings)
        self.wait_listening()
        self.wait_ready()

    def wait_listening(self) -> None:
        """Wait until the port is known. Then it is in `port`."""
        self.until(self._port_file.exists)
        self.port = int(self._port_file.read_text())

    def wait_ready(self) -> None:
        self.until(lambda: self.call("GET", "/v0/ready")[0] == 200)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, patience_s: float = STOP_S) -> int:
        """The exit code, once the process has ended. AssertionError if it does not end."""
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the broker does not end within {patience_s} s:\n{self.log()}") from None

    def stop(self) -> int:
        """Ask it to stop, wait, and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_cell(self, cell: int) -> None:
        """kill -9 to the process of a cell. It has ended at the return: its connections are closed, and it accepts no
        other."""
        pid = self.cell_pid(cell)
        os.kill(pid, signal.SIGKILL)
        wait_ended(pid)

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "no broker has been started"
        return self._process

    def cell_pid(self, cell: int) -> int:
        """The process that serves a cell now, or did last."""
        return int((self.data_dir / f"cell-{cell:02d}" / ".lock").read_text().partition("\n")[0])

    def log(self) -> str:
        """The output of all processes of this directory."""
        return self._log.read_text() if self._log.exists() else ""

    def complaints(self) -> list[str]:
        """The errors in the output. A process that is killed or stopped has none."""
        return [line for line in self.log().splitlines() if "[error" in line or "Traceback" in line]

    def until(self, condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
        """Wait for a condition, for as long as the process runs."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert self.process.poll() is None, f"the broker ended with {self.process.returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"nothing came of it in {patience_s} s:\n{self.log()}"
            time.sleep(LOOK_AGAIN_S)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request on a connection of its own. Returns (status, decoded JSON)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            if body is None:
                connection.request(method, path)
            else:
                connection.request(method, path, json.dumps(body), JSON)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def metric(self, name: str) -> float:
        """The value of a metric without labels."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("GET", "/v0/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        [value] = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return float(value)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """Like `call`, which must succeed. Returns the decoded JSON."""
        status, answer = self.call(method, path, body)
        assert status in (200, 201), (method, path, status, answer)
        return answer

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Like `call`, which must be refused. Returns (status, code)."""
        status, answer = self.call(method, path, body)
        assert "error" in answer, (method, path, status, answer)
        return status, answer["error"]["code"]


def wait_ended(pid: int) -> None:
    """Wait until that process has ended, whether or not its parent has waited for it."""
    deadline = time.monotonic() + PATIENCE_S
    while PosixFileSystem().is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} goes on"
        time.sleep(LOOK_AGAIN_S)


def verify(data_dir: Path, prefix: Sequence[str] = ()) -> str:
    """The output of `python -m storage verify` for a directory in which it finds nothing wrong."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "storage", "verify", str(data_dir)],
        cwd=ROOT,
        env=environment(data_dir),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
