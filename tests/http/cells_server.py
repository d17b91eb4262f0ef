"""A set of cells in the place of a `HotServer`, for tests that need nothing of it but its address."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import httpx

from tests.http.hot_server import Wire
from tests.support.cells_in_process import CellsInProcess


class CellsServer:
    """`server` is the gateway's. It has no engine to look into."""

    def __init__(self, made: CellsInProcess) -> None:
        self.server = made.servers[-1]
        self._wires: list[Wire] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires:
            await wire.close()

    async def connect(self) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._wires.append(wire)
        return wire

    async def topic(self, name: str) -> None:
        async with httpx.AsyncClient(base_url=self.server.url, timeout=30) as http:
            (await http.put(f"/v0/topics/{name}")).raise_for_status()
