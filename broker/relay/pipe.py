"""Two connections that are passed on to each other: that of a process of this node, and a link to another node.

    process ── bytes ── Local │ Link ── frames over TLS ── Link │ Local ── bytes ── process

A link carries frames: a length of 4 bytes (big endian) and so many bytes. The length 0 says that this side is closed,
while the other one goes on: TLS cannot say that. A link that ends without it was broken off, and so is then the
connection at the other end.

Nothing is collected: what arrives is written at once, and while one side does not read, the other one is not read. What
arrives before the other connection is there waits for it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

#: Bytes that may wait to be sent on a connection. Above that, its other side is not read.
MAX_UNSENT_BYTES: Final = 64 * 1024
_LENGTH_BYTES: Final = 4
#: What a side sends that is closed.
END: Final = bytes(_LENGTH_BYTES)
#: Larger pieces are not copied to be sent with their length.
_MAX_COPIED: Final = 16 * 1024
#: A node that answers nothing is noticed after about these seconds, also by a connection that only waits.
_SILENT_S: Final = 15
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 5, 3, 3


class Side(asyncio.Protocol):
    """One of the two connections. `other` is None until both are there."""

    __slots__ = ("_early", "_is_held", "is_full", "other", "received_end", "sent_end", "transport")

    def __init__(self) -> None:
        self.transport: Any = None
        self.other: Side | None = None
        #: Its peer has closed its side; this end has closed its own.
        self.received_end = self.sent_end = False
        #: More bytes wait to be sent than may; and nothing is read, because the other side is full or not there.
        self.is_full = self._is_held = False
        #: What arrived before the other connection was there.
        self._early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self.hold()

    def connection_lost(self, exc: Exception | None) -> None:
        other, self.other = self.other, None
        if other is not None:
            other.other = None
            if self.received_end:
                other.transport.close()  # behind all bytes that were received
            else:
                other.transport.abort()
        self.lost()

    def lost(self) -> None:
        """The connection has ended."""

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.receive(data)
        elif not self.transport.is_closing():
            # uvloop begins to read behind `connection_made`, also if that has said not to.
            self._early += data
            self.transport.pause_reading()

    def receive_early(self) -> None:
        """Pass on what arrived before the other connection was there."""
        data, self._early = self._early, b""
        if data:
            self.receive(data)

    def receive(self, data: bytes) -> None:
        """Pass on bytes that arrived."""
        raise AssertionError

    def pause_writing(self) -> None:
        self.is_full = True
        if self.other is not None:
            self.other.hold()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.other is not None:
            self.other.go_on()

    def hold(self) -> None:
        """Read nothing more."""
        if not self._is_held and not self.transport.is_closing():
            self._is_held = True
            self.transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        if self._is_held and not self.transport.is_closing():
            self._is_held = False
            self.transport.resume_reading()

    def ended(self) -> None:
        """The peer has closed its side: close that of the other connection. When both are closed, all was passed on."""
        self.received_end = True
        other = self.other
        if other is None:
            return
        other.send_end()
        if other.received_end:
            other.transport.close()
            self.transport.close()

    def send(self, data: bytes | memoryview) -> None:
        """Send bytes of the other connection."""
        raise AssertionError

    def send_end(self) -> None:
        """Close this side."""
        raise AssertionError


class Local(Side):
    """The connection of a process of this node."""

    __slots__ = ()

    def receive(self, data: bytes) -> None:
        if self.other is not None:
            self.other.send(data)

    def eof_received(self) -> bool:
        """Return True: the other side goes on."""
        self.ended()
        return True

    def send(self, data: bytes | memoryview) -> None:
        self.transport.write(data)

    def send_end(self) -> None:
        if not self.sent_end:
            self.sent_end = True
            self.transport.write_eof()


class Link(Side):
    """The connection to another node."""

    __slots__ = ("_count", "_left", "_start")

    def __init__(self, count: Callable[[int, int], None]) -> None:
        """`count` is called with the numbers of bytes that were received and sent."""
        super().__init__()
        self._count = count
        #: Bytes of the frame that are to come; and the start of a length.
        self._left = 0
        self._start = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_S * 1000),
        ):
            connection.setsockopt(level, option, value)

    def receive(self, data: bytes) -> None:
        self._count(len(data), 0)
        at, view = 0, memoryview(data)
        if self._start:
            data = self._start + data
            view, self._start = memoryview(data), b""
        while at < len(data) and self.other is not None and not self.received_end:
            if self._left:
                piece = view[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                self.other.send(piece)
            elif len(data) - at < _LENGTH_BYTES:
                self._start = data[at:]
                return
            else:
                self._left = int.from_bytes(view[at : at + _LENGTH_BYTES], "big")
                at += _LENGTH_BYTES
                if not self._left:
                    self.ended()

    def send(self, data: bytes | memoryview) -> None:
        self._count(0, len(data) + _LENGTH_BYTES)
        length = len(data).to_bytes(_LENGTH_BYTES, "big")
        if len(data) <= _MAX_COPIED:
            self.transport.write(b"".join((length, data)))  # one TLS record
        else:
            self.transport.writelines((length, data))

    def send_end(self) -> None:
        if not self.sent_end:
            self.sent_end = True
            self._count(0, _LENGTH_BYTES)
            self.transport.write(END)


def pair(one: Side, two: Side) -> None:
    """Pass on what either receives to the other, from now on."""
    one.other, two.other = two, one
    for side in (one, two):
        side.receive_early()
    for side in (one, two):
        if side.received_end:
            side.ended()
    for side, other in ((one, two), (two, one)):
        if not other.is_full:
            side.go_on()
