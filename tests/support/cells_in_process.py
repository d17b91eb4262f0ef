"""A set of cells in the test's own loop: engines with HTTP sockets of their own, and a gateway in front of them.

Unless the cells are linked, a cell here is a broker that does not know about cells: it answers for every topic,
wherever the topic belongs. Linked cells know each other, as the processes of a set do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import msgspec

from broker.api import build_app
from broker.cells import Cells, Role, home_cell
from broker.gateway import Gateway, GatewayApp, HotForwards
from broker.net import listen
from broker.server import BrokerServer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Options

SMALL = Options(wal_shards=1, wal_file_bytes=1 << 20, wal_reserve_bytes=1 << 16)


class CellsInProcess:
    """`brokers` are the cells; `url` is the gateway's. `topic(cell)` is the name of a topic of that cell."""

    def __init__(
        self, directory: Path, cells: int, *, run: str | None = None, options: Options = SMALL, **settings: Any
    ) -> None:
        """`run`: the folder of the sockets between linked cells; `options` of the engines."""
        self.directory = directory
        self.run = run
        self.options = options
        self.settings = Settings.model_validate({"data_dir": directory / "data", **settings})
        self.sockets = [directory / f"{number}.http" for number in range(cells)]
        self.brokers: list[Broker] = []
        self.servers: list[BrokerServer] = []
        self.gateway = Gateway(self.settings, self.sockets, "set-1")
        self.app = GatewayApp(self.gateway)
        self._tasks: list[asyncio.Task[Any]] = []
        self.url = ""
        self.port = 0

    def topic(self, cell: int, number: int = 0) -> str:
        """The name of a topic whose home is that cell."""
        names = (f"t{each}" for each in range(2000))
        found = [name for name in names if home_cell(name, len(self.sockets)) == cell]
        return found[number]

    async def start_cell(self, number: int) -> None:
        count = len(self.sockets)
        options = self.options
        if self.run is not None:
            options = msgspec.structs.replace(options, cell=number, cells=count)
        engine = Engine(str(self.directory / f"cell-{number}"), options)
        linked = None
        if self.run is not None:
            linked = Cells(Role(set_id="set-1", count=count, run=self.run, parent=os.getpid(), cell=number), engine)
        broker = Broker(engine, self.settings, cells=linked)
        listener = socket.socket(socket.AF_UNIX)
        self.sockets[number].unlink(missing_ok=True)
        listener.bind(str(self.sockets[number]))
        server = BrokerServer(build_app(broker), self.settings, listener, grace_s=1)
        self.brokers.append(broker)
        self.servers.append(server)
        self._tasks.append(asyncio.create_task(server.serve_until_stopped()))
        await server.listening()
        await engine.start()
        if linked is not None:
            await linked.start()
        broker.proxy.start()

    async def start(self) -> None:
        for number in range(len(self.sockets)):
            await self.start_cell(number)
        listener = listen("127.0.0.1", 0)
        hot = HotForwards(self.app.dispatcher, self.gateway)
        server = BrokerServer(self.app.dispatcher, self.settings, listener, hot=hot, grace_s=1)
        self.servers.append(server)
        self._tasks.append(asyncio.create_task(server.serve_until_stopped()))
        await server.listening()
        self.url, self.port = server.url, server.port

    async def stop(self) -> None:
        for broker in self.brokers:
            broker.live.shut_down()
            broker.engine.begin_shutdown()
        for server in self.servers:
            server.request_stop()
        await asyncio.gather(*self._tasks)
        self.gateway.close()
        for broker in self.brokers:
            await broker.proxy.stop()
            if broker.cells is not None:
                await broker.cells.stop()
            await broker.engine.close()


@contextlib.asynccontextmanager
async def cells(directory: Path, count: int = 3, **settings: Any) -> AsyncGenerator[CellsInProcess]:
    """Run a set within the block."""
    made = CellsInProcess(directory, count, **settings)
    async with running(made):
        yield made


@contextlib.asynccontextmanager
async def linked_cells(directory: Path, count: int = 3, **settings: Any) -> AsyncGenerator[CellsInProcess]:
    """A set of linked cells that is running."""
    with tempfile.TemporaryDirectory(prefix="cells-") as run:  # the path of a socket must be short
        async with running(CellsInProcess(directory, count, run=run, **settings)) as made:
            yield made


@contextlib.asynccontextmanager
async def running(made: CellsInProcess) -> AsyncGenerator[CellsInProcess]:
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def client_of(made: CellsInProcess, **given: Any) -> httpx.AsyncClient:
    """A client of the gateway."""
    return httpx.AsyncClient(base_url=made.url, timeout=30, **given)
