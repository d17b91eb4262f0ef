"""What the process of a cell does before it owns the cell and serves. It writes that to a file in the folder of the
sockets, and its node reads it and tells the others.

It is for information only, and for how many processes a node starts at a time.

Source: docs/cluster.md#nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

#: The cell has a living owner, as far as the process knows.
WAITING: Final = "waiting"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """`waiting`, `taking` (it has the cell, and makes its directory of what is in the bucket), or `recovering`."""

    #: Of the process.
    nonce: str
    state: str
    #: When this state began, by the clock of the process: milliseconds since 1970.
    since_ms: int
    #: The share of the log that is replayed, while it recovers.
    progress: float = 0.0


def _path(folder: Path, cell: int) -> Path:
    return folder / f"cell-{cell:02d}.standing"


def write_standing(folder: Path, cell: int, standing: Standing) -> None:
    """Replace the file of the cell: a reader sees the old content or the new one. Raises OSError."""
    temporary = folder / f"cell-{cell:02d}.{standing.nonce}.tmp"
    temporary.write_bytes(msgspec.json.encode(standing))
    temporary.replace(_path(folder, cell))


def read_standing(folder: Path, cell: int, nonce: str) -> Standing | None:
    """What the process of that nonce wrote last. None: nothing that can be read."""
    try:
        found = msgspec.json.decode(_path(folder, cell).read_bytes(), type=Standing)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.nonce == nonce else None
