"""Connections to the cells. Each carries one request at a time, and is reused for the next.

A connection that a cell closed while it was idle is never used. So if a connection breaks before the answer, the
request may have been carried out, and nothing here repeats it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.cells import Kind, PeerUnavailable, connect_relayed

if TYPE_CHECKING:
    from broker.cluster import OwnersFile

#: The most connections to one cell that are being opened at a time. More would only wait in the cell's backlog.
MAX_CONNECTING: Final = 64
CONNECT_S: Final = 5.0


class User(Protocol):
    """The request that uses a connection."""

    def received(self, data: bytes) -> None:
        """Bytes of the answer have arrived."""
        ...

    def lost(self) -> None:
        """The connection has ended."""
        ...


class Link(asyncio.Protocol):
    """One connection to a cell."""

    __slots__ = ("_cell", "_room", "has_ended", "idle_since", "is_relayed", "transport", "user")

    transport: Any

    def __init__(self, cell: Cell, *, is_relayed: bool = False) -> None:
        """`is_relayed`: the cell is at another node."""
        self._cell = cell
        self.is_relayed = is_relayed
        self._room: asyncio.Event | None = None
        self.user: User | None = None
        self.idle_since = 0.0
        #: Whether this side is closed.
        self.has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._cell.links.add(self)

    def data_received(self, data: bytes) -> None:
        if self.user is None:
            self.transport.abort()  # nobody has asked
        else:
            self.user.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cell.links.discard(self)
        if self._room is not None:
            self._room.set()
        user, self.user = self.user, None
        if user is not None:
            user.lost()

    def pause_writing(self) -> None:
        self._room = asyncio.Event()

    def resume_writing(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    async def drain(self) -> None:
        """Wait until the cell has read most of what was sent."""
        if self._room is not None:
            await self._room.wait()

    def end_side(self) -> None:
        """Close this side: the client has closed its own, and may have gone. The connection is not reused."""
        self.has_ended = True
        self.transport.write_eof()

    def release(self) -> None:
        """The answer is complete: the connection can carry another request."""
        self.user = None
        self._cell.release(self)

    def close(self) -> None:
        """End the connection at once without a call to its user. The cell notices that its client has gone."""
        self.user = None
        self.transport.abort()


class Cell:
    """One cell, as the gateway sees it."""

    def __init__(self, number: int, path: Path, idle_s: float, owners: OwnersFile | None = None) -> None:
        """`path`: its socket at this node. `idle_s`: connections idle for longer are closed here. The cell's own limit
        is longer. `owners`: in a cluster, which cells are at other nodes."""
        self.number = number
        self.links: set[Link] = set()
        self.path = path
        self._owners = owners
        self._idle_s = idle_s
        self._idle: deque[Link] = deque()
        self._connecting = asyncio.Semaphore(MAX_CONNECTING)

    def idle(self) -> Link | None:
        """The idle connection that was used last, if there is one."""
        while self._idle:
            link = self._idle.pop()
            if not link.transport.is_closing():
                return link
        return None

    async def link(self) -> Link:
        """A connection for a request. Raises PeerUnavailable if the cell accepts none."""
        found = self.idle()
        if found is not None:
            return found
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S), self._connecting:
                connection = await self.relayed()
                path = str(self.path) if connection is None else None
                _, link = await loop.create_unix_connection(
                    lambda: Link(self, is_relayed=connection is not None), path, sock=connection
                )
        except (OSError, TimeoutError):
            raise PeerUnavailable(self.number, "none") from None
        if link.transport.is_closing():  # the cell has gone before the link got a user, who would wait forever
            raise PeerUnavailable(self.number, "none")
        return link

    async def relayed(self) -> socket.socket | None:
        """A connection to the cell at another node. None: it is at this one. Raises OSError."""
        if self._owners is None or not self._owners.is_elsewhere(self.number):
            return None
        return await connect_relayed(self.path.parent, self.number, Kind.HTTP)

    def look(self) -> None:
        """Close the connections to a process of this node that is not the owner any more. The relay closes those to
        other nodes."""
        if self._owners is not None and self._owners.is_elsewhere(self.number):
            for link in [*self.links]:
                if not link.is_relayed:
                    link.transport.abort()

    def release(self, link: Link) -> None:
        if not link.transport.is_closing():
            link.idle_since = asyncio.get_running_loop().time()
            self._idle.append(link)

    def close_idle(self, now: float) -> None:
        """Close the connections that have been idle for too long."""
        while self._idle and self._idle[0].idle_since + self._idle_s < now:
            with suppress(OSError):
                self._idle.popleft().close()

    def close(self) -> None:
        """Close all connections."""
        for link in [*self.links]:
            link.transport.abort()
