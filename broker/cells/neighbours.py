"""Calls from the engine of one cell to the engines of the others, over their sockets.

See `storage.platform.Neighbours`.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cells.peers import Peers


class PeerNeighbours:
    """The other cells of the set, as an engine calls them. Used only on the event loop of the engine."""

    def __init__(
        self, me: int, count: int, owner: Callable[[str], int], home: Callable[[str], int], peers: Peers
    ) -> None:
        """`owner`: returns the cell that has the topic of that name, or would have it; `home`: the name's home cell."""
        self.me = me
        self.count = count
        self.owner = owner
        self.home = home
        self._peers = peers

    async def call(self, cell: int, method: str, argument: Any, *, timeout_s: float = 30.0) -> Any:
        """See `storage.platform.Neighbours`."""
        return await self._peers.call(cell, method, argument, timeout_s=timeout_s)
