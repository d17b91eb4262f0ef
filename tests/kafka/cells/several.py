"""Several cells in this process, linked by sockets as the processes of a set are."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from broker.cells import Role, home_cell
from broker.kafka.apis import ApiKey
from broker.kafka.codec.schema import Message
from broker.kafka.messages.session import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.net.listening import listen
from tests.kafka.server import KafkaServer, Wire

CELLS = 3
A = TypeVar("A", bound=Message)


class Several:
    """`servers`: the cells that run, by number."""

    def __init__(self, directory: Path, run: str, given: dict[str, Any]) -> None:
        self._directory = directory
        self._given = given
        listeners = [listen("127.0.0.1", 0) for _ in range(CELLS)]
        self.ports = tuple(each.getsockname()[1] for each in listeners)
        self._listeners = listeners
        self._run = run
        self.servers: dict[int, KafkaServer] = {}
        self._wires: dict[int, Wire] = {}

    async def start(self, cell: int) -> None:
        role = Role(set_id="a-set", count=CELLS, run=self._run, parent=os.getpid(), cell=cell, kafka_ports=self.ports)
        # The supervisor does the same, so that the port stays when a cell ends.
        listener = self._listeners[cell].dup()
        server = KafkaServer(self._directory / f"cell-{cell}", role=role, listener=listener, cells=CELLS, **self._given)
        await server.__aenter__()
        self.servers[cell] = server

    async def stop(self, cell: int) -> None:
        self._wires.pop(cell, None)
        await self.servers.pop(cell).__aexit__(None, None, None)

    async def close(self) -> None:
        for cell in [*self.servers]:
            await self.stop(cell)
        for each in self._listeners:
            each.close()

    async def ask(self, cell: int, api_key: int, version: int, request: Message, kind: type[A]) -> A:
        """Send a request to a cell. Returns the answer."""
        return await (await self.wire(cell)).ask(api_key, version, request, kind)

    async def forget(self, cell: int) -> None:
        """The next request to the cell uses a new connection."""
        await self._wires.pop(cell).close()

    async def wire(self, cell: int) -> Wire:
        if cell not in self._wires:
            self._wires[cell] = await self.servers[cell].connect()
        return self._wires[cell]


@asynccontextmanager
async def several(directory: Path, **given: object) -> AsyncGenerator[Several]:
    """Cells of one set, with these settings."""
    async with AsyncExitStack() as stack:
        run = stack.enter_context(tempfile.TemporaryDirectory(prefix="cells-"))  # the path of a socket must be short
        cells = Several(directory, run, given)
        stack.push_async_callback(cells.close)
        await asyncio.gather(*(cells.start(cell) for cell in range(CELLS)))
        yield cells


def name_of(cell: int, stem: str = "t") -> str:
    """A name whose home is this cell."""
    return next(name for name in (f"{stem}-{number}" for number in range(1000)) if home_cell(name, CELLS) == cell)


async def log_in(cells: Several, at: int, key: str) -> None:
    await cells.ask(at, ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    token = b"\0me\0" + key.encode()
    answer = await cells.ask(
        at, ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse
    )
    assert answer.error_code == 0
