"""Spare processes of a node: they have imported the program, and wait for a cell. A cell of a lost node then waits for
no start of a process, which takes seconds of a processor.

The node sends a spare its role and the sockets for the clients of the cell. From then on the spare is the process of
that cell, like one that was started for it. A spare whose node ends, or that is closed, ends too.

Source: docs/cluster.md#spare-processes.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from broker.cells import Role
from broker.supervisor import module_name

_LATE: Final = ("obstore.store", module_name("storage.cells.founding"), module_name("storage.cells.owner"))
#: The most bytes of a role.
_MAX_ROLE_BYTES: Final = 1 << 16
#: The sockets of a cell: for HTTP and for Kafka clients.
_MAX_SOCKETS: Final = 2


class Spares:
    """The spare processes of a node."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._waiting: list[tuple[asyncio.subprocess.Process, socket.socket]] = []

    async def keep(self, wanted: int) -> None:
        """Start a process if there are fewer, or end those that are too many."""
        for each in [*self._waiting]:
            if each[0].returncode is not None:
                each[1].close()
                self._waiting.remove(each)
        while len(self._waiting) > wanted:
            await self._end(*self._waiting.pop())
        if len(self._waiting) < wanted:
            with suppress(OSError):  # no memory, or too many processes: it is tried again
                await self._start()

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", module_name("broker"), "--spare", str(theirs.fileno())),
                    env=self._environment,
                    pass_fds=(theirs.fileno(),),
                )
        except BaseException:
            ours.close()
            raise
        self._waiting.append((process, ours))

    def take(self, role: Role) -> asyncio.subprocess.Process | None:
        """The process that runs with this role from now on. None: there is no spare."""
        fds = [each for each in (role.http_fd, role.kafka_fd) if each is not None]
        while self._waiting:
            process, channel = self._waiting.pop(0)
            with channel:
                if process.returncode is None:
                    with suppress(OSError):  # it has ended
                        socket.send_fds(channel, [msgspec.json.encode(role)], fds)
                        return process
        return None

    async def close(self) -> None:
        """End all of them."""
        for each in self._waiting:
            await self._end(*each)
        self._waiting.clear()

    async def _end(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        channel.close()
        with suppress(ProcessLookupError):
            process.kill()  # it has nothing to stop
        await process.wait()


def wait_for_role(fd: int) -> Role | None:
    """In a spare process: return the role that the node sends, however late. None: the node has ended, or does not need
    this process."""
    # A terminal sends Ctrl-C to all processes of a node; the node stops them in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_all()
    with socket.socket(fileno=fd) as channel:
        data, fds, _, _ = socket.recv_fds(channel, _MAX_ROLE_BYTES, _MAX_SOCKETS)
    if not data:
        return None
    role = msgspec.json.decode(data, type=Role)
    sent = iter(fds)
    return msgspec.structs.replace(
        role,
        http_fd=None if role.http_fd is None else next(sent),
        kafka_fd=None if role.kafka_fd is None else next(sent),
    )


def _import_all() -> None:
    """What a cell of a cluster uses besides what the program imports at its start."""
    for name in _LATE:
        importlib.import_module(name)
