"""HTTP/1.1 over one connection with as little code as possible: dozens of writers share a core with the broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Self

#: The longest wait for an answer. A broker that takes longer has failed.
ANSWER_S = 40.0


class Cut(Exception):
    """The connection ended before the answer. `sent`: the request may have arrived."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("after the request" if sent else "before the request")
        self.sent = sent


class Connection:
    """Sends requests one after the other. Raises Cut, and TimeoutError if no answer comes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        try:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            raise Cut(sent=False) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writer is not None
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the decoded JSON of the answer."""
        assert self._reader is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.send(method, path, body)
                return await self._answer(self._reader)
        except (OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise Cut(sent=True) from None

    async def send(self, method: str, path: str, body: Any = None) -> None:
        """Send the request without waiting for the answer. Raises OSError."""
        assert self._writer is not None
        text = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: [::]\r\ncontent-type: application/json\r\ncontent-length: {len(text)}"
        )
        self._writer.write(head.encode() + b"\r\n\r\n" + text)
        await self._writer.drain()

    @staticmethod
    async def _answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        status = int(head[0].split()[1])
        fields = dict(line.lower().split(b": ", 1) for line in head[1:] if line)
        return status, json.loads(await reader.readexactly(int(fields[b"content-length"])))


async def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request on a connection of its own."""
    async with Connection(port) as connection:
        return await connection.call(method, path, body)
