"""A cell of which only the socket exists. It answers requests as a test says, or goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

#: How it answers a request: (head, body) -> bytes of the answer. None: it goes away without an answer.
Act = Callable[[bytes, bytes], Awaitable[bytes | None]]


def answer(status: int, body: bytes, headers: bytes = b"") -> bytes:
    """A complete answer."""
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        headers,
        len(body),
        body,
    )


class ScriptedCell:
    """`requests`: the heads that have arrived. `gone`: how many of its clients have closed a connection."""

    def __init__(self, path: Path, act: Act) -> None:
        self.path = path
        self.act = act
        self.requests: list[bytes] = []
        self.gone = asyncio.Semaphore(0)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=8 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"0")
                body = await reader.readexactly(length)
                self.requests.append(head)
                acting = asyncio.ensure_future(self.act(head, body))
                leaving = asyncio.ensure_future(reader.read(1))
                await asyncio.wait((acting, leaving), return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    acting.cancel()
                    self.gone.release()
                    return
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
                done = acting.result()
                if done is None:
                    return
                writer.write(done)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
