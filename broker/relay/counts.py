"""What the relay has done. It writes a file in the folder of the sockets, and gateways read it for their metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "relay.json"


class Counts(msgspec.Struct):
    """Numbers since the start of the relay."""

    #: Connections to other nodes, and from them, that are open.
    outgoing: int = 0
    incoming: int = 0
    #: Connections that were passed on to another node, and to a cell of this one.
    connected: int = 0
    accepted: int = 0
    #: Bytes to and from other nodes, before encryption.
    sent_bytes: int = 0
    received_bytes: int = 0
    #: By reason: connections of other nodes that were not accepted, and connections to them that could not be made.
    refused: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    failed: dict[str, int] = msgspec.field(default_factory=dict[str, int])


def write_counts(folder: Path, counts: Counts) -> None:
    """Replace the file. Raises OSError."""
    temporary = folder / f"{_FILE}.tmp"
    temporary.write_bytes(msgspec.json.encode(counts))
    temporary.replace(folder / _FILE)


def read_counts(folder: Path) -> Counts:
    """Read the file. Zeros if there is none, or if it cannot be read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=Counts)
    except (OSError, msgspec.DecodeError):
        return Counts()
