"""The demonstration's broker: a process that is started, killed and started again, and always stopped at the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from topics_client import AsyncClient, RetryPolicy, TopicsError

START_WITHIN_S = 60.0
_STOP_WITHIN_S = 15.0
_LOG_LINES_SHOWN = 15


class BrokerDied(Exception):
    """The broker ended although nobody stopped it."""


class OwnBroker:
    """`start` and `kill` may alternate. The first start takes any free port, and the others the same one.

    `close` stops the broker in any state.
    """

    def __init__(self, data_dir: Path, work_dir: Path) -> None:
        self._data_dir = data_dir
        self._port_file = work_dir / "port"
        self._log_path = work_dir / "broker.log"
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._client: AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        """A client of the running broker. Each start makes a new one."""
        assert self._client is not None, "not started"
        return self._client

    @property
    def url(self) -> str:
        """The address of the broker, from its first start on."""
        assert self._port, "not started"
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Start the broker and wait until it serves. Raises BrokerDied, with the end of the log, when it does not."""
        await self._close_client()
        self._port_file.unlink(missing_ok=True)
        self._process = self._spawn()
        # The writers must see a broken connection: a silent reconnect would hide what is demonstrated.
        retry = RetryPolicy(total_s=30.0, reconnect=False)
        self._port = await self._opened_port()
        self._client = AsyncClient(self.url, retry=retry)
        try:
            await self._client.wait_until_ready(START_WITHIN_S)
        except TopicsError as error:
            raise self._died(str(error)) from error

    async def kill(self) -> None:
        """Send SIGKILL: the broker cannot finish or flush. The client stays open for calls that still wait on it."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)

    def check(self) -> None:
        """Raises BrokerDied when the broker is not running."""
        if self._process is None or self._process.poll() is not None:
            raise self._died("The broker ended by itself")

    async def close(self) -> None:
        """Stop the broker: cleanly if possible, else by SIGKILL."""
        await self._close_client()
        self.stop_process()

    def stop_process(self) -> None:
        """The part of `close` that needs no event loop."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    async def _close_client(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log_path.open("ab") as log:
            # In a new session, so that Ctrl-C in the terminal reaches only the demonstration, which then stops
            # the broker cleanly.
            return subprocess.Popen(
                [sys.executable, "-m", "broker"],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        # Settings meant for another broker must not reach this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOPICS_")}
        return inherited | {
            "TOPICS_HOST": "127.0.0.1",
            "TOPICS_PORT": str(self._port),
            "TOPICS_PORT_FILE": str(self._port_file),
            "TOPICS_DATA_DIR": str(self._data_dir),
        }

    async def _opened_port(self) -> int:
        """The broker's port, as soon as the port file has it."""
        deadline = asyncio.get_running_loop().time() + START_WITHIN_S
        while asyncio.get_running_loop().time() < deadline:
            self.check()
            try:
                return int(self._port_file.read_text())
            except (FileNotFoundError, ValueError):
                await asyncio.sleep(0.02)
        raise self._died(f"The broker did not open a port within {START_WITHIN_S:g} s")

    def _died(self, what: str) -> BrokerDied:
        lines = self._log_path.read_text("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:]
        return BrokerDied("\n".join([f"{what.rstrip('.')}. The end of its log:", *lines]))
