"""A proxy that breaks connections to the broker again and again, so that answers are lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
from types import TracebackType
from typing import Self


class SeveringProxy:
    """`async with SeveringProxy(port, dice) as proxy`: clients connect to `proxy.port`, so the broker must advertise
    it. Every connection is cut after a number of bytes of answers; the rest of the answer is lost.
    """

    def __init__(self, target: int, dice: random.Random, *, least: int, most: int, port: int = 0) -> None:
        self._target = target
        self._dice = dice
        self._least, self._most = least, most
        self.severed = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._target)
        there = asyncio.create_task(self._pass(reader, their_writer))
        try:
            left = self._dice.randrange(self._least, self._most)
            while data := await their_reader.read(1 << 16):
                if len(data) > left:
                    self.severed += 1
                    break
                left -= len(data)
                writer.write(data)
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            there.cancel()
            for each in (writer, their_writer):
                each.transport.abort()
            await asyncio.gather(there, return_exceptions=True)
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
