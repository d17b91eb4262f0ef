"""Connections to cells of other nodes, through the relay of this node.

The relay listens on one socket in the folder of the sockets. Whoever connects sends a line that names the cell and what
it wants of it, and waits for one byte: it comes from the node that owns the cell, once it is connected there. Then the
connection is as if it went to the socket of that cell. If it ends before that byte, the cell got nothing.

Source: docs/cells.md.
"""

from __future__ import annotations

import asyncio
import enum
import socket
from pathlib import Path
from typing import Final

import msgspec

#: The longest first line, with its end.
MAX_LINE_BYTES: Final = 512
#: The byte that says that the connection goes to the cell.
CONNECTED: Final = b"+"


class Kind(enum.StrEnum):
    """Which socket of a cell."""

    HTTP = "http"
    PEER = "peer"


class Wanted(msgspec.Struct, frozen=True):
    """The first line of a connection. `set_id`: the cluster; between processes of one node it is empty."""

    cell: int
    kind: Kind
    set_id: str = ""


def relay_socket(folder: Path) -> Path:
    """The socket of the relay."""
    return folder / "relay"


def line_of(wanted: Wanted) -> bytes:
    """The first line. Pure."""
    return msgspec.json.encode(wanted) + b"\n"


def wanted_in(line: bytes) -> Wanted:
    """What a first line asks for, without its end. Raises ValueError. Pure."""
    try:
        return msgspec.json.decode(line, type=Wanted)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError("the first line is not valid") from None


async def connect_relayed(folder: Path, cell: int, kind: Kind) -> socket.socket:
    """A connection to a cell of another node. Nothing has been sent to the cell, and the caller sets a time limit.
    Raises OSError."""
    loop = asyncio.get_running_loop()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await loop.sock_connect(connection, str(relay_socket(folder)))
        await loop.sock_sendall(connection, line_of(Wanted(cell, kind)))
        # One byte and no more: what follows belongs to the connection.
        if await loop.sock_recv(connection, 1) != CONNECTED:
            raise ConnectionRefusedError(f"no connection to cell {cell}")
    except BaseException:
        connection.close()
        raise
    return connection
