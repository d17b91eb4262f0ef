"""Which cell has a topic: its home cell, or the cell that a `not_mine` named. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from broker.cells import home_cell
from storage.records import split

#: The most topics and partitions remembered that are not in their home cell. Beyond that, the one learned first is
#: forgotten.
MAX_MOVED: Final = 10_000


class Owners:
    """The cells of topics, as far as they are known. A wrong entry costs one more call and nothing else."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
        self._moved: OrderedDict[str, int] = OrderedDict()

    def cell(self, topic: str) -> int:
        """The cell of a topic, or of a partition, by its address."""
        found = self._moved.get(topic) if self._moved else None
        return self._home(topic) if found is None else found

    def _home(self, topic: str) -> int:
        return home_cell(split(topic)[0], self.cells)

    def forget(self, topic: str) -> None:
        """Assume that the topic, or partition, is in the home cell."""
        self._moved.pop(topic, None)

    def learn(self, topic: str, cell: int | None, asked: int) -> bool:
        """Note that the cell `asked` answered `not_mine` and named `cell`. Returns whether there is another cell to
        ask."""
        self._moved.pop(topic, None)
        if cell is not None and 0 <= cell < self.cells and cell != self._home(topic):
            self._moved[topic] = cell
            if len(self._moved) > MAX_MOVED:
                self._moved.popitem(last=False)
        return self.cell(topic) != asked
