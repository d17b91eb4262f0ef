"""Finds the cell of a topic that is not in its home cell. The home cell names it, and the answer is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from storage import NotMine, StorageError, TopicNotFound

if TYPE_CHECKING:
    from broker.kafka.node import Cells

#: The most topics remembered that are not in their home cell.
_MAX_MOVED: Final = 10_000


class Owners:
    """The cells of topics, as far as this cell knows."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._moved: dict[str, int] = {}

    def cell_of(self, topic: str) -> int:
        """The cell that has the topic, or would have it."""
        owner = self._cells.owner(topic)
        return owner if owner == self._cells.me else self._moved.get(topic, owner)

    async def call(self, topic: str, method: str, argument: Any, *, timeout_s: float = 30.0) -> Any:
        """Call a method of the topic's cell, which is another cell, and return the result. The method raises NotMine
        for a topic that its cell does not have. Raises Unavailable, TopicNotFound, PeerError."""
        cell = self.cell_of(topic)
        try:
            return await self._cells.peers.call(cell, method, argument, timeout_s=timeout_s)
        except StorageError as error:
            if error.code != NotMine.code:
                raise
            cell = int(error.detail["cell"])
        if cell == self._cells.me:  # an entry names a cell that no longer has the topic
            raise TopicNotFound(topic)
        if len(self._moved) >= _MAX_MOVED:
            self._moved.clear()
        self._moved[topic] = cell
        return await self._cells.peers.call(cell, method, argument, timeout_s=timeout_s)
