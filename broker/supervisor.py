"""Runs a set of cells: a process for each cell and one for each gateway. It starts them, starts those again that end,
and stops them in order. It handles no request.

    lock the set → bind the ports → cells → gateways → [signal] gateways end → cells end

The processes inherit the listening sockets, so a port stays open while a process starts again: clients that connect
meanwhile wait.

Source: docs/cells.md#processes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from broker import VERSION
from broker.cells import Peers, PeerUnavailable, Role, write_restarts
from broker.kafka import listen_for_kafka
from broker.lifecycle import ExitCode
from broker.net import listen, write_port_file
from broker.settings import Settings
from broker.telemetry import EXTEND, Notifier
from storage import CellSet, StorageError, open_set, run_folder
from storage.platform import PosixFileSystem, take_lock

_log = structlog.get_logger("broker.supervisor")

#: Connections that may wait for a gateway.
BACKLOG: Final = 2048
#: A process that ended is started again after this time, which doubles with each end (`backoff_after`).
MIN_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 10.0
#: A process that ran for this time, and for so many times its last wait, starts again after the shortest wait.
STEADY_S: Final = 10.0
STEADY_WAITS: Final = 10
#: Whether the cells are ready is asked this often.
LOOK_S: Final = 0.05
#: The longest path of a unix socket on Linux, and the longest name of one in a set.
_MAX_SOCKET_PATH: Final = 107
_LONGEST_NAME: Final = len("/cell-0000.http")
#: A process with one of these codes would end in the same way again.
_FINAL: Final = (ExitCode.CANNOT_START, ExitCode.BAD_SETTINGS)


def backoff_after(waited_s: float, ran_s: float) -> float:
    """How long to wait before the next start of a process that ran for `ran_s` seconds. `waited_s`: the wait before it
    ran, 0 before its first start. Pure.

    A process that ends at once again and again is started every 10 s. One that is killed now and then is away for
    little more than its start takes, and less than a tenth of the time in any case.
    """
    if not waited_s or ran_s >= max(STEADY_S, STEADY_WAITS * waited_s):
        return MIN_BACKOFF_S
    return min(MAX_BACKOFF_S, waited_s * 2)


class Child:
    """One process of the set, over all its restarts."""

    def __init__(
        self, name: str, module: str, role: Role, environment: Mapping[str, str], on_restart: Callable[[], None]
    ) -> None:
        self.name = name
        self._on_restart = on_restart
        self._command = command(module, role)
        self._environment = environment
        self._sockets = tuple(each for each in (role.http_fd, role.kafka_fd) if each is not None)
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        #: It ended by itself with a code that it would have again.
        self.code: int | None = None
        self._stopping = False
        self._began = 0.0

    async def run(self) -> None:
        """Keep the process running until `stop`, or until its code says that it cannot run."""
        waited_s = 0.0
        loop = asyncio.get_running_loop()
        while not self._stopping:
            self._began = loop.time()
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self._command, env=self._environment, pass_fds=self._sockets
                )
            except OSError as error:  # no memory, or too many processes: perhaps not for long
                waited_s = backoff_after(waited_s, 0.0)
                _log.error("process_not_started", process=self.name, error=str(error), again_in_s=waited_s)
                await asyncio.sleep(waited_s)
                continue
            if self._stopping:
                self.signal(signal.SIGTERM)
            code = await self.process.wait()
            if self._stopping:
                return
            if code in _FINAL and not self.restarts:
                self.code = code
                return
            waited_s = backoff_after(waited_s, loop.time() - self._began)
            _log.error("process_ended", process=self.name, exit_code=code, again_in_s=waited_s)
            self.restarts += 1
            self._on_restart()
            await asyncio.sleep(waited_s)

    def stop(self) -> None:
        """End it: with SIGTERM, so that it drains. A second call shortens the drain."""
        self._stopping = True
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


def command(module: str, role: Role) -> tuple[str, ...]:
    """How a process of that role is started."""
    return sys.executable, "-m", module, "--role", msgspec.json.encode(role).decode()


class Supervisor:
    """See the module."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], notifier: Notifier) -> None:
        """`environment`: what the processes get; it has the settings, and keys."""
        self._settings = settings
        self._environment = {name: value for name, value in environment.items() if not name.startswith("NOTIFY_")}
        self._notifier = notifier
        self._fs = PosixFileSystem()
        self._stop = asyncio.Event()
        self._cells: list[Child] = []
        self._gateways: list[Child] = []
        self._tasks: dict[Child, asyncio.Task[None]] = {}

    async def run(self) -> int:
        """Run the set until a signal, or until a process cannot run. Returns the exit code."""
        settings, root = self._settings, str(self._settings.data_dir.absolute())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        try:
            lock = take_lock(self._fs, root)
            lock.write(f"{os.getpid()}\n")
            found = open_set(self._fs, root, settings.cells)
        except (StorageError, OSError) as error:
            reason = error.message if isinstance(error, StorageError) else str(error)
            _log.error("cannot_start", reason=reason, data_dir=root)
            return ExitCode.CANNOT_START
        try:
            return await self._run(root, found)
        finally:
            lock.release()

    async def _run(self, root: str, found: CellSet) -> int:
        settings = self._settings
        public = listen(settings.host, settings.port)
        # Connections that come before a gateway accepts them wait instead of being refused.
        public.listen(BACKLOG)
        kafka, direct = self._listen_for_kafka(found.cells), self._listen_for_cells(found.cells)
        role = Role(
            set_id=found.set_id,
            count=found.cells,
            run=str(sockets_folder(root, found.set_id)),
            parent=os.getpid(),
            kafka_ports=tuple(each.getsockname()[1] for each in kafka),
            http_ports=tuple(each.getsockname()[1] for each in direct),
        )
        folder = Path(role.run)

        def note() -> None:
            with suppress(OSError):  # it is for information only
                write_restarts(folder, {child.name: child.restarts for child in (*self._cells, *self._gateways)})

        note()
        for cell in range(found.cells):
            its_role = msgspec.structs.replace(
                role,
                cell=cell,
                kafka_fd=kafka[cell].fileno() if kafka else None,
                http_fd=direct[cell].fileno() if direct else None,
            )
            self._start(
                Child(f"cell-{cell:02d}", module_name("broker"), its_role, self._environment, note), self._cells
            )
        scheme, (host, port, *_) = "https" if settings.tls_cert else "http", public.getsockname()
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        telling = asyncio.create_task(self._notifier.repeat(lambda: [] if not self._stop.is_set() else [EXTEND]))
        its_role = msgspec.structs.replace(role, http_fd=public.fileno())
        for number in range(settings.gateways):
            child = Child(f"gateway-{number:02d}", module_name("broker.gateway"), its_role, self._environment, note)
            self._start(child, self._gateways)
        _log.info("listening", url=url, docs=f"{url}/docs", data_dir=root, version=VERSION)
        if settings.port_file is not None:
            write_port_file(settings.port_file, port)
        await self._until_stopped(role, url)
        telling.cancel()
        return await self._wind_down()

    def _listen_for_kafka(self, cells: int) -> list[socket.socket]:
        """A socket for the Kafka clients of each cell: at consecutive ports, or at free ones."""
        port = self._settings.kafka_port
        if port is None:
            return []
        sockets = [listen_for_kafka(self._settings, port + cell if port else 0) for cell in range(cells)]
        if self._settings.kafka_port_file is not None:
            write_port_file(self._settings.kafka_port_file, sockets[0].getsockname()[1])
        return sockets

    def _listen_for_cells(self, cells: int) -> list[socket.socket]:
        """A socket for the HTTP clients of each cell: at consecutive ports, or at free ones."""
        settings = self._settings
        port = settings.cell_ports
        if port is None:
            return []
        sockets: list[socket.socket] = []
        for cell in range(cells):
            sockets.append(listen(settings.host, port + cell if port else 0, port_from="TOPICS_CELL_PORTS"))
            sockets[-1].listen(BACKLOG)
        return sockets

    def _start(self, child: Child, children: list[Child]) -> None:
        children.append(child)
        task = self._tasks[child] = asyncio.create_task(child.run(), name=child.name)

        def ended(_: object) -> None:
            if child.code is not None:
                _log.error("process_cannot_run", process=child.name, exit_code=child.code)
                self._stop.set()

        task.add_done_callback(ended)

    async def _until_stopped(self, role: Role, url: str) -> None:
        ready = asyncio.create_task(self._ready(role))
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((ready, stop), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            self._notifier.notify("READY=1", f"STATUS=Serving at {url}.")
            _log.info("cells_ready", url=url, cells=role.count, set_id=role.set_id)
            await stop
        ready.cancel()
        stop.cancel()

    async def _ready(self, role: Role) -> None:
        """Wait until every cell has recovered."""
        peers = Peers({cell: role.peer_socket(cell) for cell in range(role.count)})
        for cell in range(role.count):
            while True:
                with suppress(PeerUnavailable):
                    await peers.call(cell, "ready", None)
                    break
                self._notifier.notify(f"STATUS=Waiting for cell {cell}.", EXTEND)
                await asyncio.sleep(LOOK_S)
        await peers.close()

    def _on_signal(self) -> None:
        if self._stop.is_set():
            _log.info("stopping_at_once")
            for child in (*self._gateways, *self._cells):
                child.stop()
        else:
            _log.info("stopping", drain_ms=self._settings.drain_ms)
        self._stop.set()

    async def _wind_down(self) -> int:
        """End the gateways, then the cells: what gateways have taken is answered."""
        self._notifier.notify("STOPPING=1", "STATUS=Stopping.", EXTEND)
        for children in (self._gateways, self._cells):
            for child in children:
                child.stop()
            tasks = [self._tasks[child] for child in children]
            for child, task in zip(children, tasks, strict=True):
                if child.process is None or child.process.returncode is not None:
                    task.cancel()  # it waits to be started again
            await asyncio.gather(*tasks, return_exceptions=True)
        children = (*self._cells, *self._gateways)
        codes = [child.code for child in children if child.code is not None]
        codes += [ExitCode.STORAGE_FAILED for child in self._cells if _failed(child)]
        _log.info("stopped", exit_code=int(codes[0] if codes else 0))
        return codes[0] if codes else ExitCode.OK


def _failed(child: Child) -> bool:
    return child.process is not None and child.process.returncode == ExitCode.STORAGE_FAILED


def module_name(name: str) -> str:
    """The module by its name in this installation: a wheel has all of the server in one package."""
    return f"{__name__.removesuffix('broker.supervisor')}{name}"


def sockets_folder(root: str, set_id: str) -> Path:
    """A folder for this user alone. If the path would be too long for a unix socket, it is in the system's folder for
    temporary files."""
    path = Path(run_folder(root))
    if len(str(path).encode()) + _LONGEST_NAME > _MAX_SOCKET_PATH:
        path = Path(tempfile.gettempdir()) / f"topics-{os.getuid()}-{set_id[:16]}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user.")
    path.chmod(0o700)
    return path
