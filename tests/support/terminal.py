"""A directory in which the documents' commands are run, with a real server that `make run` starts there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.broker_process import PYTHON_PATH
from tests.support.console import Step

ROOT = Path(__file__).resolve().parents[2]
CURL = f'"{sys.executable}" "{ROOT / "tests/support/curl.py"}"'
ADDRESS = "127.0.0.1:4000"
START = "make run"
PATIENCE_S = 60
LOOK_AGAIN_S = 0.02


class Terminal:
    """Runs commands in `directory`. The server keeps its data there and listens on a port of its own.

    127.0.0.1:4000 in a command is replaced by that port. Every wait ends with an AssertionError after PATIENCE_S.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port_file = directory / "port"
        self._log = directory / "server.log"
        self._server: subprocess.Popen[bytes] | None = None
        self._address = ADDRESS
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        self._environment["PYTHONPATH"] = PYTHON_PATH
        self._environment["PATH"] = f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        # The commands of the environment under their documented names, wherever this environment is.
        self._command(".venv/bin/topics", f'"{sys.executable}" -c "from topics_client.cli import main; main()" "$@"')
        self._command(".venv/bin/python", f'"{sys.executable}" "$@"')
        if shutil.which("curl") is None:
            self._command("bin/curl", f'{CURL} "$@"')

    def _command(self, path: str, line: str) -> None:
        file = self._directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\nexec {line}\n")
        file.chmod(0o755)

    def do(self, step: Step) -> str:
        """The output of the step, on both streams. AssertionError if it ends with an error."""
        if step.text == START:
            self._start()
            return ""
        if step.kind == "python":
            program = self._directory / "program.py"
            program.write_text(step.text.replace(ADDRESS, self._address))
            return self._run([sys.executable, str(program)])
        return self._run(["/bin/sh", "-c", step.text.replace(ADDRESS, self._address)])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env=self._environment | {"TOPICS_URL": f"http://{self._address}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _start(self) -> None:
        """Start a server and wait until it serves. The one before must be about to end."""
        if self._server is not None:
            self._server.wait(PATIENCE_S)
        self._port_file.unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "broker"],
                cwd=self._directory,
                env=self._environment | {"TOPICS_PORT": "0", "TOPICS_PORT_FILE": str(self._port_file)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + PATIENCE_S
        while not self._port_file.exists():
            self._still_starting(deadline)
        self._address = f"127.0.0.1:{self._port_file.read_text().strip()}"
        while '"status":"ready"' not in self._probe():
            self._still_starting(deadline)

    def _probe(self) -> str:
        command = f"{CURL} -s {self._address}/v0/ready"
        return subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False).stdout

    def _still_starting(self, deadline: float) -> None:
        assert self._server is not None
        assert self._server.poll() is None, f"the server ended:\n{self._log.read_text()}"
        assert time.monotonic() < deadline, f"the server does not come up:\n{self._log.read_text()}"
        time.sleep(LOOK_AGAIN_S)

    def close(self) -> int:
        """Ask the server to stop. Returns its exit code, 0 if there is none."""
        if self._server is None:
            return 0
        self._server.send_signal(signal.SIGTERM)
        try:
            return self._server.wait(PATIENCE_S)
        finally:
            self._server.kill()
