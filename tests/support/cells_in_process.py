"""A set of cells in the loop of the test: engines that call each other over sockets, as in a set of processes, and a
gateway in front of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx

from broker.api import build_app
from broker.cell import listen_at, plain_settings, settings_of
from broker.cells import Cells, Role, home_cell
from broker.gateway import Gateway, GatewayApp, HotForwards
from broker.kafka.port import Port
from broker.net import listen, tls_context
from broker.server import BrokerServer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine

SMALL = {"wal_shards": 1, "wal_file_bytes": 1 << 20, "wal_reserve_bytes": 1 << 16}
SET_ID = "set-1"


def topic_of(cell: int, number: int = 0, cells: int = 3) -> str:
    """The name of a topic whose home is that cell."""
    names = (f"t{each}" for each in range(2000))
    return [name for name in names if home_cell(name, cells) == cell][number]


class CellsInProcess:
    """`url` is the gateway's. `topic(cell)` is the name of a topic of that cell.

    If the settings have a Kafka port, each cell has one, and `kafka` is the address of the first.
    """

    def __init__(self, directory: Path, cells: int, base: Settings | None = None, **settings: Any) -> None:
        """`base`: settings of the set; `settings` are added."""
        given = {"data_dir": directory / "data", "cells": cells, **SMALL, **settings}
        self.settings = Settings.model_validate(given) if base is None else base.model_copy(update=given)
        # The path of a socket must be short.
        self._run = tempfile.TemporaryDirectory(prefix="cells-")
        listeners = [] if self.settings.kafka_port is None else [listen("127.0.0.1", 0) for _ in range(cells)]
        self._kafka_listeners = listeners
        self.kafka_ports = tuple(each.getsockname()[1] for each in listeners)
        self._roles = [
            Role(
                set_id=SET_ID,
                count=cells,
                run=self._run.name,
                parent=os.getpid(),
                cell=cell,
                kafka_ports=self.kafka_ports,
            )
            for cell in range(cells)
        ]
        self.sockets = [role.http_socket(cell) for cell, role in enumerate(self._roles)]
        self._brokers: dict[int, Broker] = {}
        self.servers: list[BrokerServer] = []
        self._ports: list[Port] = []
        self.gateway = Gateway(self.settings, self.sockets, SET_ID, kafka_ports=self.kafka_ports)
        self.app = GatewayApp(self.gateway)
        self._tasks: list[asyncio.Task[Any]] = []
        self.url = ""
        self.port = 0

    @property
    def brokers(self) -> list[Broker]:
        """By cell."""
        return [self._brokers[cell] for cell in sorted(self._brokers)]

    @property
    def kafka(self) -> str:
        """The address of the first cell, for `bootstrap.servers`."""
        return f"127.0.0.1:{self.kafka_ports[0]}"

    def topic(self, cell: int, number: int = 0) -> str:
        """The name of a topic whose home is that cell."""
        return topic_of(cell, number, len(self.sockets))

    def home(self, name: str) -> int:
        """The cell that decides about this name."""
        return home_cell(name, len(self.sockets))

    async def start_cell(self, number: int) -> None:
        """The steps of a cell's process, in their order."""
        role = self._roles[number]
        settings = settings_of(self.settings, role)
        engine = Engine(str(settings.data_dir), settings.storage_options(number))
        cells = Cells(role, engine)
        broker = Broker(engine, settings, cells=cells)
        server = BrokerServer(build_app(broker), plain_settings(settings), listen_at(self.sockets[number]), grace_s=1)
        self._brokers[number] = broker
        self.servers.append(server)
        self._tasks.append(asyncio.create_task(server.serve_until_stopped()))
        await server.listening()
        await engine.start()
        broker.proxy.start()
        await cells.start()
        if self._kafka_listeners:
            tls = None if settings.tls_cert is None else tls_context(settings.tls_cert, settings.tls_key)
            port = Port(broker, self._kafka_listeners[number], tls)
            self._ports.append(port)
            await port.open()

    async def start(self) -> None:
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        await asyncio.gather(*(self.start_cell(number) for number in range(len(self.sockets))))
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
        for port in self._ports:
            await port.close(grace_s=5)
        for server in self.servers:
            server.request_stop()
        await asyncio.gather(*self._tasks)
        self.gateway.close()
        for broker in self.brokers:
            await broker.proxy.stop()
            assert isinstance(broker.cells, Cells)
            await broker.cells.stop()
            await broker.engine.close()
        self._run.cleanup()


@contextlib.asynccontextmanager
async def cells(
    directory: Path, count: int = 3, base: Settings | None = None, **settings: Any
) -> AsyncGenerator[CellsInProcess]:
    """Run a set within the block."""
    made = CellsInProcess(directory, count, base, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def client_of(made: CellsInProcess, **given: Any) -> httpx.AsyncClient:
    """A client of the gateway."""
    return httpx.AsyncClient(base_url=made.url, timeout=30, **given)
