"""Relays of several nodes in the loop of the test, each with a folder of sockets of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from broker.cell import listen_at
from broker.cells import Kind, Role, connect_relayed, relay_socket
from broker.cluster import Address, ClusterMap, LinkTls, NodeEntry, NodeState, Owner, write_owners
from broker.relay import Relay

SET_ID = "set-1"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RelayNode:
    """A node that has nothing but a relay. `serve` gives it a cell."""

    def __init__(
        self, name: str, tls: LinkTls | None = None, cells: int = 4, set_id: str = SET_ID, handshake_s: float = 5
    ) -> None:
        self.name = name
        # The path of a socket must be short.
        self._folder = tempfile.TemporaryDirectory(prefix="relay-")
        self.run = Path(self._folder.name)
        self.role = Role(set_id=set_id, count=cells, run=self._folder.name, parent=os.getpid())
        self._port = socket.socket()
        self._port.bind(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._port.getsockname()[1])
        self._local = listen_at(relay_socket(self.run))
        self.relay = Relay(self.role, tls, self._local, self._port, handshake_s=handshake_s)
        self._task: asyncio.Task[None] | None = None
        self._servers: list[asyncio.Server] = []

    def owner(self, generation: int = 1) -> Owner:
        """This node, as the owner of a cell."""
        return Owner(node=self.name, generation=generation, cluster=self.address)

    def knows(self, *owners: Owner | None) -> None:
        """Write what this node knows about the cells."""
        me = NodeEntry(node=self.name, state=NodeState.ALIVE, cluster=self.address)
        write_owners(self.run, ClusterMap(me=self.name, cells=owners, nodes=(me,)))

    async def serve(self, cell: int, serve: Serve, kind: Kind = Kind.HTTP) -> asyncio.Server:
        """Accept connections for a cell."""
        path = self.role.http_socket(cell) if kind is Kind.HTTP else self.role.peer_socket(cell)
        server = await asyncio.start_unix_server(serve, str(path))
        self._servers.append(server)
        return server

    async def connect(self, cell: int, kind: Kind = Kind.HTTP) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a cell of another node. Raises OSError."""
        async with asyncio.timeout(20):
            connection = await connect_relayed(self.run, cell, kind)
            return await asyncio.open_unix_connection(sock=connection)

    async def start(self) -> None:
        self._task = asyncio.create_task(self.relay.run())
        await asyncio.sleep(0)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for each in (*self._servers, self._local, self._port):
            each.close()
        self._folder.cleanup()


@contextlib.asynccontextmanager
async def running(*nodes: RelayNode) -> AsyncGenerator[None]:
    """Run the relays of these nodes within the block."""
    for node in nodes:
        await node.start()
    try:
        yield
    finally:
        for node in nodes:
            await node.stop()
