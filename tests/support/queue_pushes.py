"""The stream of pushed jobs as a client reads it: server-sent events in HTTP/1.1 chunks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Self

from tests.support.kill_connection import Cut

#: The longest wait for the beginning of a stream.
OPEN_S = 40.0


class Pushes:
    """One stream. Raises Cut if it cannot be opened, and at its end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[dict[str, Any]] | None = None
        self._rest = b""

    async def __aenter__(self) -> Self:
        try:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            raise Cut(sent=False) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close at once, whatever is on its way."""
        assert self._writer is not None
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, Cut):
                await self._reading
        self._writer.transport.abort()

    async def open(self, path: str) -> None:
        assert self._reader is not None
        assert self._writer is not None
        try:
            async with asyncio.timeout(OPEN_S):
                self._writer.write(
                    f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode()
                )
                head = await self._reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise Cut(sent=True) from None
        status = int(head.split(None, 2)[1])
        if status == 503:
            raise Cut(sent=False)
        assert status == 200, head
        assert b"transfer-encoding: chunked" in head.lower(), head

    async def job(self, within_s: float) -> dict[str, Any] | None:
        """The next job. None if none came in time."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._next())
        await asyncio.wait([self._reading], timeout=within_s)
        if not self._reading.done():
            return None
        done, self._reading = self._reading, None
        return done.result()

    async def _next(self) -> dict[str, Any]:
        while True:
            while b"\n\n" not in self._rest:
                self._rest += await self._chunk()
            frame, _, self._rest = self._rest.partition(b"\n\n")
            fields = dict(line.split(": ", 1) for line in frame.decode().split("\n") if not line.startswith(":"))
            match fields.get("event"):
                case "job":
                    job = json.loads(fields["data"])
                    assert int(fields["id"]) == job["$seq"]
                    return job
                case "error":
                    raise Cut(sent=True)
                case None:
                    pass
                case other:
                    raise AssertionError(f"an event {other}: {frame!r}")

    async def _chunk(self) -> bytes:
        assert self._reader is not None
        try:
            size = int((await self._reader.readuntil(b"\r\n")).strip(), 16)
            chunk = await self._reader.readexactly(size + 2)
        except (OSError, asyncio.IncompleteReadError):
            raise Cut(sent=True) from None
        if not size:
            raise Cut(sent=True)
        return chunk[:-2]
