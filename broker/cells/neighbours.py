"""What an engine asks of the other cells, over their sockets. See `storage.neighbours`.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cells.peers import Peers


class PeerNeighbours:
    """The set of a cell, for its engine. Belongs to the engine's event loop."""

    def __init__(self, me: int, owner: Callable[[str], int], peers: Peers) -> None:
        """`owner`: the cell that has, or would have, the topic of that name."""
        self.me = me
        self.owner = owner
        self._peers = peers

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = 30.0) -> Any:
        """See `storage.neighbours.Neighbours`."""
        return await self._peers.call(cell, method, argument, timeout_s=timeout_s)
