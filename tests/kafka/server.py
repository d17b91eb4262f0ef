"""A broker with a Kafka port in this process, and a plain connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from broker.cells import Cells, Role
from broker.kafka.apis import APIS
from broker.kafka.call import Handler
from broker.kafka.codec.schema import Message, decode, encode
from broker.kafka.port import Port
from broker.kafka.table import HANDLERS
from broker.net.listening import listen, tls_context
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine
from storage.platform.filesystem import FileSystem

PATIENCE_S = 15
#: Small, so that a start takes no time.
SMALL = {"wal_shards": 1, "wal_file_bytes": 1 << 20}
A = TypeVar("A", bound=Message)


class Wire:
    """One connection that sends what a test says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation = 0

    def send(self, api_key: int, version: int, body: bytes, *, client_id: bytes = b"\0\4test") -> int:
        """Send a request with a correct header for its version. Returns its correlation id."""
        self._correlation += 1
        api = APIS.get(api_key)
        tags = b"\0" if api is not None and version >= api.flexible_since else b""
        frame = struct.pack(">hhi", api_key, version, self._correlation) + client_id + tags + body
        self.raw(struct.pack(">i", len(frame)) + frame)
        return self._correlation

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        """The correlation id of the next answer, and the rest of it."""
        async with asyncio.timeout(PATIENCE_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            frame = await self.reader.readexactly(size)
        return int.from_bytes(frame[:4], "big"), frame[4:]

    async def ask(self, api_key: int, version: int, request: Message, kind: type[A]) -> A:
        """Send a request and read its answer."""
        correlation = self.send(api_key, version, encode(request, version))
        found, body = await self.answer()
        assert found == correlation
        flexible = version >= APIS[api_key].flexible_since and api_key != 18
        return decode(kind, version, body, 1 if flexible else 0)

    async def ended(self) -> None:
        """Check that the broker closes the connection without sending more."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionResetError):
                assert await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)


class KafkaServer:
    """`async with KafkaServer(tmp_path, api_keys=...) as server`. The settings are those of the broker."""

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[int, Handler] = HANDLERS,
        *,
        fs: FileSystem | None = None,
        role: Role | None = None,
        listener: socket.socket | None = None,
        **given: object,
    ) -> None:
        settings = Settings.model_validate({"data_dir": directory / "data", "kafka_port": 0, **SMALL, **given})
        options = settings.storage_options(None if role is None else role.cell)
        self.engine = Engine(directory / "data", options, fs=fs)
        self.cells = None if role is None else Cells(role, self.engine)
        self.broker = Broker(self.engine, settings, cells=self.cells)
        tls = None if settings.tls_cert is None else tls_context(settings.tls_cert, settings.tls_key)
        self.port = Port(self.broker, listener or listen("127.0.0.1", 0), tls, handlers)
        self._wires: list[Wire] = []

    @property
    def address(self) -> str:
        """The value for bootstrap.servers."""
        return f"127.0.0.1:{self.port.number}"

    async def __aenter__(self) -> Self:
        await self.engine.start()
        if self.cells is not None:
            await self.cells.start()
        await self.port.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires:
            await wire.close()
        self.engine.begin_shutdown()
        await self.port.close(grace_s=5)
        if self.cells is not None:
            await self.cells.stop()
        await self.engine.close()

    async def connect(self, **more: Any) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port.number, **more))
        self.keep(wire)
        return wire

    def keep(self, wire: Wire) -> None:
        """Close it at the end."""
        self._wires.append(wire)
