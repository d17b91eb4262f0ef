"""One request to a cell and its answer. The answer is read no faster than it is consumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

import structlog

from broker.cells import PeerUnavailable
from broker.gateway.heads import BadAnswer, Chunks, Head, head_of
from broker.gateway.links import Link
from broker.memory import SMALL

_log = structlog.get_logger("broker.gateway")

#: Bytes of an answer that may wait to be consumed. Above this, reading from the cell stops.
MOST_WAITING: Final = SMALL


class Exchange:
    """A request that uses the connection `link`. The creator must end it, by reading the whole answer or by `close`.

    `changes`: whether the request may change something. If so, the outcome is unknown when the cell goes away.
    """

    def __init__(self, link: Link, cell: int, *, changes: bool, bodiless: bool = False, received: bytes = b"") -> None:
        """`bodiless`: the request is a HEAD. `received`: bytes of the answer that have arrived already."""
        self.cell = cell
        #: Whether the body of the request is still being sent.
        self.is_sending = False
        self._link: Link | None = link
        self._changes = changes
        self._bodiless = bodiless
        self._buffer = bytearray(received)
        self._wake = asyncio.Event()
        self._is_paused = False
        self._is_lost = False
        self._head: Head | None = None
        link.user = self

    # -- of the connection -------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > MOST_WAITING and not self._is_paused and self._link is not None:
            self._is_paused = True
            self._link.transport.pause_reading()
        self._wake.set()

    def lost(self) -> None:
        self._is_lost = True
        self._wake.set()

    # -- of the request ----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._link is not None:
            self._link.transport.write(data)

    async def drain(self) -> None:
        if self._link is not None:
            await self._link.drain()

    def close(self) -> None:
        """Stop: the client has gone, or does not want the rest."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def end(self) -> None:
        """The answer is complete: release the connection."""
        link, self._link = self._link, None
        if link is None:
            return
        assert self._head is not None
        if self._buffer or not self._head.lasts or self._is_lost or self.is_sending:
            link.close()
            return
        if self._is_paused:
            link.transport.resume_reading()
        link.release()

    async def head(self) -> Head:
        """The head of the answer. Raises PeerUnavailable."""
        while self._head is None:
            try:
                self._head = head_of(self._buffer, bodiless=self._bodiless)
            except BadAnswer as error:
                raise self._bad(error) from None
            if self._head is None:
                await self._more()
            else:
                del self._buffer[: self._head.size]
        return self._head

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The pieces of the body, after `head`. The first piece is empty, so that closing the generator ends the
        exchange.

        Raises PeerUnavailable.
        """
        try:
            yield b""
            assert self._head is not None
            left = 0 if self._bodiless else self._head.length
            chunks = Chunks() if left is None else None
            while left if chunks is None else not chunks.is_complete:
                if not self._buffer:
                    await self._more()
                    continue
                piece = self._take(left)
                if chunks is None:
                    assert left is not None
                    left -= len(piece)
                else:
                    try:
                        piece = chunks.feed(piece)
                    except BadAnswer as error:
                        raise self._bad(error) from None
                if piece:
                    yield piece
            self.end()
        finally:
            self.close()

    async def body(self, most: int) -> bytes:
        """The whole body, at most `most` bytes, after `head`. Raises PeerUnavailable."""
        parts: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > most:
                raise self._bad(BadAnswer(f"more than {most} bytes"))
            parts.append(piece)
        return b"".join(parts)

    def _take(self, most: int | None) -> bytes:
        piece = bytes(self._buffer if most is None else memoryview(self._buffer)[:most])
        if len(piece) == len(self._buffer):
            self._buffer = bytearray()
        else:
            del self._buffer[: len(piece)]
        if self._is_paused and self._link is not None:
            self._is_paused = False
            self._link.transport.resume_reading()
        return piece

    async def _more(self) -> None:
        """Wait for more of the answer. Raises PeerUnavailable."""
        if self._is_lost:
            raise PeerUnavailable(self.cell, "unknown" if self._changes else "none")
        self._wake.clear()
        await self._wake.wait()

    def _bad(self, error: BadAnswer) -> PeerUnavailable:
        _log.error("bad_answer_of_cell", cell=self.cell, reason=str(error))
        self.close()
        return PeerUnavailable(self.cell, "unknown" if self._changes else "none")
