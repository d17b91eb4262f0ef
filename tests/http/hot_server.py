"""A broker on a real port, in this process and with a disk in memory, and connections that send bytes to it.

async with HotServer() as server:
    wire = await server.connect()
    wire.send(post("t", b'{"records":[{"data":1}]}'))
    assert (await wire.answer()).status == 200
    assert server.taken == 1             # writes that went past ASGI
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from broker.api.app import build_app
from broker.net.listening import listen
from broker.server.server import BrokerServer
from broker.settings import Settings
from broker.wiring import Broker
from storage import Engine, Sample, TopicConfig
from storage.log.append import PendingAppend
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, options

#: Sends a request along the slow path: the fast path does not accept parameters of a media type.
ASGI = {"content-type": "application/json; charset=utf-8"}
PATIENCE_S = 20


class Reply(NamedTuple):
    """One answer as it was received."""

    status: int
    headers: list[tuple[str, str]]
    raw: bytes

    @property
    def body(self) -> Any:
        """Decoded JSON."""
        return json.loads(self.text)

    @property
    def text(self) -> bytes:
        """Decompressed."""
        return gzip.decompress(self.raw) if ("content-encoding", "gzip") in self.headers else self.raw

    @property
    def code(self) -> str:
        return self.body["error"]["code"]

    def header(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each == name]


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self.transport: Any = writer.transport

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self) -> Reply:
        """Read the next answer."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = [line.split(": ", 1) for line in head[1:] if line]
            headers = [(name.lower(), value) for name, value in pairs]
            status = int(head[0].split()[1])
            size = next((int(value) for name, value in headers if name == "content-length"), 0)
            return Reply(status, headers, await self._reader.readexactly(size))

    async def read(self) -> bytes:
        """The bytes that have arrived, at least one; b"" at the end."""
        return await self._reader.read(1 << 16)

    async def ended(self) -> None:
        """Check that the server closes the connection without sending more."""
        async with asyncio.timeout(PATIENCE_S):
            assert await self._reader.read() == b""

    async def close(self) -> None:
        """Close this side without a request. The server sees the end of this side, as of a client that reads on."""
        self.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def reset(self) -> None:
        """Reset the connection: both directions end at once."""
        wire = self.transport.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()


class HotServer:
    """`taken` counts writes that bypassed ASGI and that the engine accepted at once, `left` those that continued in a
    task. `is_direct` is set while a request that bypasses ASGI is begun.
    """

    is_direct = False

    def __init__(self, *, grace_s: float = 5, disk: SimDisk | None = None, limits: Any = None, **given: object) -> None:
        self.disk = disk or SimDisk()
        self.engine = Engine(DATA, limits or options(), fs=self.disk)
        settings = Settings.model_validate({"data_dir": Path(DATA), **given})
        self.broker = Broker(self.engine, settings)
        app = build_app(self.broker)
        self.routes = app.table
        self.server = BrokerServer(app, settings, listen("127.0.0.1", 0), grace_s=grace_s)
        self.taken = self.left = 0
        self._wires: list[Wire] = []
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.engine.start()
        self._count_direct()
        try_append = self.engine.try_append

        def counted(*arguments: Any, **more: Any) -> bool:
            taken = try_append(*arguments, **more)
            self.taken += self.is_direct and taken
            self.left += self.is_direct and not taken
            return taken

        self.engine.try_append = counted
        self._count_together()
        self._serving = asyncio.create_task(self.server.serve_until_stopped())
        await self.server.listening()
        return self

    def _count_direct(self) -> None:
        http: Any = self.server.config.http
        hot = http.http1.hot if hasattr(http, "http1") else None
        if hot is None:
            return

        def direct(*arguments: Any) -> None:
            self.is_direct = True
            try:
                type(hot).take(hot, *arguments)
            finally:
                self.is_direct = False

        hot.take = direct

    def _count_together(self) -> None:
        """Count the writes of single records that arrived together. They are tried together first, then each alone."""
        engine, together = self.engine, self.engine.appender
        try_append_coalesced, attempt = engine.try_append_coalesced, together._attempt  # pyright: ignore[reportPrivateUsage]
        direct: set[Any] = set()

        def noted(name: str, data: Any, settled: Any, left: Any, **more: Any) -> bool:
            if self.is_direct:
                direct.add(settled)
            return try_append_coalesced(name, data, settled, left, **more)

        def counted(name: str, node: str | None, singles: list[PendingAppend]) -> bool:
            taken = False
            ours = sum(on_result in direct for _, on_result, _ in singles)
            try:
                taken = attempt(name, node, singles)
                return taken
            finally:
                self.taken += ours if taken else 0
                self.left += not taken and len(singles) == ours == 1

        engine.try_append_coalesced = noted
        together._attempt = counted  # pyright: ignore[reportPrivateUsage]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for wire in self._wires:
            await wire.close()
        assert self._serving is not None
        if not self._serving.done():
            self._serving.cancel()
            await asyncio.wait((self._serving,))
            for each in self.server.servers:
                each.close()
            while self.server.server_state.connections or self.server.server_state.tasks:
                await asyncio.sleep(0.001)
        await self.engine.close()

    async def connect(self) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.server.port))
        self._wires.append(wire)
        return wire

    async def topic(self, name: str, config: TopicConfig | None = None) -> None:
        await self.engine.put_topic(name, config)

    async def ask(self, request: bytes) -> Reply:
        """One request on a new connection."""
        wire = await self.connect()
        wire.send(request)
        return await wire.answer()

    def stop(self) -> asyncio.Task[None]:
        """Like a signal whose drain is over. The returned awaitable completes with the server."""
        assert self._serving is not None
        self.broker.stopping = True
        self.server.request_stop()
        return self._serving

    def counted(self, family: str) -> dict[tuple[str, ...], float]:
        """The samples of a counter of HTTP requests, by the values of their labels."""
        [found] = [each for each in self.broker.http_metrics.families() if each.name == family]
        return {
            tuple(value for _, value in each.labels): each.value for each in found.samples if isinstance(each, Sample)
        }


def post(
    topic: str,
    body: bytes | object,
    headers: Mapping[str, str] | None = None,
    *,
    query: str = "",
    version: str = "1.1",
    length: int | None = None,
) -> bytes:
    """A write as bytes; `headers` are added, or replace those of the same name."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    size = len(content) if length is None else length
    given = {"host": "localhost", "content-type": "application/json", "content-length": str(size)} | dict(headers or {})
    lines = [f"POST /v0/topics/{topic}{query} HTTP/{version}", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode(errors="surrogateescape") + content


def records(*values: Any, **fields: Any) -> dict[str, Any]:
    """The body of a write."""
    return {"records": [{"data": value} for value in values], **fields}
