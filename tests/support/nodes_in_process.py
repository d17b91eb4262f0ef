"""A cluster in the loop of the test: nodes with a gateway, a relay and a folder of sockets each. The cells keep their
directories when they move, and the test says who owns them, as nodes do after they have looked into their bucket.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from broker.api import build_app
from broker.cell import listen_at, plain_settings, settings_of
from broker.cells import Cells, Role, home_cell
from broker.cluster import (
    Address,
    ClusterMap,
    LinkTls,
    NodeEntry,
    NodeState,
    Owner,
    OwnersFile,
    Plan,
    Takeover,
    newest,
    write_owners,
)
from broker.gateway import Gateway, GatewayApp, HotForwards
from broker.kafka.port import Port
from broker.net import listen
from broker.server import BrokerServer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from tests.support.cells_in_process import SMALL, topic_of
from tests.support.memory_bucket import MemoryBucket
from tests.support.relays import SET_ID, RelayNode


class RunningCell:
    """One cell at one node."""

    def __init__(self, cluster: NodesInProcess, cell: int, node: NodeInProcess) -> None:
        self._cell = cell
        self.node = node
        self._kafka = listen("127.0.0.1", 0)
        self._direct = listen("127.0.0.1", 0)
        role = Role(set_id=SET_ID, count=cluster.count, run=str(node.run), parent=0, cell=cell, node=node.name)
        settings = settings_of(cluster.settings, role)
        engine = Engine(str(settings.data_dir), settings.storage_options(cell))
        self.cells = Cells(role, engine)
        self.broker = Broker(engine, settings, cells=self.cells)
        app = build_app(self.broker)
        self._server = BrokerServer(app, plain_settings(settings), listen_at(role.http_socket(cell)), grace_s=1)
        self._beside = BrokerServer(app, settings, self._direct, beside=self._server)
        self._port = Port(self.broker, self._kafka)
        self._tasks: list[asyncio.Task[Any]] = []

    def owner(self, generation: int) -> Owner:
        """What other processes are told."""
        http, kafka = (Address("127.0.0.1", each.getsockname()[1]) for each in (self._direct, self._kafka))
        return Owner(
            node=self.node.name, generation=generation, cluster=self.node.relays.address, http=http, kafka=kafka
        )

    async def start(self) -> None:
        """The steps of a cell's process, in their order."""
        for server in (self._server, self._beside):
            self._tasks.append(asyncio.create_task(server.serve_until_stopped()))
            await server.listening()
        await self.broker.engine.start()
        self.broker.proxy.start()
        await self.cells.start()
        await self._port.open()

    async def stop(self) -> None:
        """The steps of its stop."""
        self.broker.live.shut_down()
        self.broker.engine.begin_shutdown()
        await self._port.close(grace_s=2)
        for server in (self._server, self._beside):
            server.request_stop()
        await asyncio.gather(*self._tasks)
        await self.broker.proxy.stop()
        await self.cells.stop()
        await self.broker.engine.close()


class NodeInProcess:
    """One node. `url`: its gateway's."""

    def __init__(
        self, name: str, settings: Settings, tls: LinkTls | None, cells: int, store: MemoryBucket | None = None
    ) -> None:
        """`store`: takes the orders of operators."""
        self.name = name
        self._settings = settings
        self.relays = RelayNode(name, tls, cells)
        self.run = self.relays.run
        paths = [self.relays.role.http_socket(cell) for cell in range(cells)]
        self.gateway = Gateway(settings, paths, SET_ID, cluster=OwnersFile(self.run))
        self.app = GatewayApp(self.gateway, None if store is None else lambda: store)
        self._listener = listen("127.0.0.1", 0)
        self.http = Address("127.0.0.1", self._listener.getsockname()[1])
        self.url = f"http://{self.http}"
        self._tasks: list[asyncio.Task[Any]] = []
        self._server: BrokerServer | None = None

    async def start(self) -> None:
        await self.relays.start()
        hot = HotForwards(self.app.dispatcher, self.gateway)
        self._server = BrokerServer(self.app.dispatcher, self._settings, self._listener, hot=hot, grace_s=1)
        self._tasks.append(asyncio.create_task(self._server.serve_until_stopped()))
        await self._server.listening()
        self._tasks += [asyncio.create_task(self.gateway.run()), asyncio.create_task(self.app.status.watch())]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.request_stop()
            await self._tasks[0]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.gateway.close()
        await self.relays.stop()


class NodesInProcess:
    """Two or more nodes. Cell i starts at node i modulo their number."""

    def __init__(self, directory: Path, cells: int, nodes: Sequence[LinkTls | None], **settings: Any) -> None:
        given = {"data_dir": directory / "data", "cells": cells, "kafka_port": 0, **SMALL, **settings}
        self.settings = Settings.model_validate(given)
        self.count = cells
        #: Has only what operators order, and nobody follows it.
        self.store = MemoryBucket()
        self.nodes = [NodeInProcess(f"node-{i}", self.settings, tls, cells, self.store) for i, tls in enumerate(nodes)]
        self.running: dict[int, RunningCell] = {}
        self._generations = [0] * cells

    def topic(self, cell: int, number: int = 0) -> str:
        """The name of a topic whose home is that cell."""
        return topic_of(cell, number, self.count)

    def home(self, name: str) -> int:
        """The cell that decides about this name."""
        return home_cell(name, self.count)

    async def start(self) -> None:
        self.settings.data_dir.mkdir(parents=True, exist_ok=True)
        for node in self.nodes:
            await node.start()
        for cell in range(self.count):
            await self.start_cell(cell, cell % len(self.nodes), told=False)
        self.tell()

    async def start_cell(self, cell: int, node: int, *, told: bool = True) -> None:
        """Start a cell at a node, with a new generation."""
        self._generations[cell] += 1
        running = RunningCell(self, cell, self.nodes[node])
        await running.start()
        self.running[cell] = running
        if told:
            self.tell()

    async def stop_cell(self, cell: int) -> None:
        """Stop a cell. The nodes are not told."""
        await self.running.pop(cell).stop()

    async def move(self, cell: int, node: int) -> None:
        """Stop the cell, start it at another node, and tell all nodes."""
        await self.stop_cell(cell)
        await self.start_cell(cell, node)

    def tell(self, *takeovers: Takeover | None) -> None:
        """Write to all nodes who owns the cells now. `takeovers`: of cells 0, 1 and so on."""
        owners = [
            self.running[cell].owner(self._generations[cell]) if cell in self.running else None
            for cell in range(self.count)
        ]
        entries = tuple(
            NodeEntry(
                node=each.name,
                state=NodeState.ALIVE,
                cluster=each.relays.address,
                http=each.http,
                seen_at_ms=int(time.time() * 1000),
            )
            for each in self.nodes
        )
        plan = newest(self.store, Plan())
        for node in self.nodes:
            known = ClusterMap(me=node.name, cells=tuple(owners), takeovers=takeovers, nodes=entries, plan=plan)
            write_owners(node.run, known)

    async def stop(self) -> None:
        for cell in [*self.running]:
            await self.stop_cell(cell)
        for node in self.nodes:
            await node.stop()


@contextlib.asynccontextmanager
async def nodes(
    directory: Path, cells: int = 4, tls: Sequence[LinkTls | None] = (None, None), **settings: Any
) -> AsyncGenerator[NodesInProcess]:
    """Run a cluster within the block, with a node for each item of `tls`."""
    made = NodesInProcess(directory, cells, tls, **settings)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
