"""What a node has counted since its start. It writes a file in the folder of the sockets, and gateways read it.

Source: docs/cluster.md#nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "node.json"


class NodeCounts(msgspec.Struct, kw_only=True):
    """Cells that processes of the node took over, cells that it gave to other nodes, and, by reason, processes that
    ended because they did not own their cells any more."""

    taken: int = 0
    given: int = 0
    lost: dict[str, int] = {}


def write_node_counts(folder: Path, counts: NodeCounts) -> None:
    """Replace the file. Raises OSError."""
    temporary = folder / f"{_FILE}.tmp"
    temporary.write_bytes(msgspec.json.encode(counts))
    temporary.replace(folder / _FILE)


def read_node_counts(folder: Path) -> NodeCounts:
    """Read the file. Zeros if there is none, or if it cannot be read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=NodeCounts)
    except (OSError, msgspec.DecodeError):
        return NodeCounts()
