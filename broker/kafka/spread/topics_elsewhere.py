"""The topics in other cells that groups have offsets for, by the last answers of those cells. For code that cannot
wait.

The other cells are asked again when a decision needs an answer and the last one is older than a few seconds.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from broker.kafka.spread.asking import AWAY_AFTER_S
from storage import StorageError

if TYPE_CHECKING:
    from broker.kafka.node import Cells

#: How long an answer of the other cells is used.
FRESH_S: Final = 5.0
#: The most groups remembered.
_MAX_GROUPS: Final = 10_000
_NEVER: Final = -FRESH_S
_NONE: Final[frozenset[str]] = frozenset()


class TopicsElsewhere:
    """`method`: takes a group id, or None for all groups. It answers with the names of topics by group id."""

    def __init__(self, cells: Cells, method: str) -> None:
        self._cells = cells
        self._method = method
        #: When the other cells were last asked about a group, and its topics.
        self._groups: OrderedDict[str, tuple[float, frozenset[str]]] = OrderedDict()
        self._asked_all = _NEVER

    async def look(self, group_id: str | None) -> None:
        """Ask the other cells about one group, or about all. Raises Unavailable if a cell cannot be asked.

        While a cell is away, what it last said of one group still counts: a group gets no topics there without `add`.
        """
        now = monotonic()
        asked = self._asked_all if group_id is None else self._groups.get(group_id, (_NEVER, _NONE))[0]
        if now - asked < FRESH_S:
            return
        known: frozenset[str] = _NONE
        try:
            answers = await ask_others(self._cells, self._method, group_id, timeout_s=AWAY_AFTER_S)
        except StorageError:
            if group_id is None or asked == _NEVER:
                raise
            answers, known = [], self.of(group_id)
        if group_id is None:
            self._groups.clear()
            self._asked_all = now
        else:
            self._put(group_id, now, known)
        for found in answers:
            for group, topics in found.items():
                self._put(group, now, self.of(group) | {*topics})

    def of(self, group_id: str) -> frozenset[str]:
        return self._groups.get(group_id, (_NEVER, _NONE))[1]

    def all(self) -> Iterator[tuple[str, frozenset[str]]]:
        """The groups that have topics in other cells, with these topics."""
        return ((group_id, topics) for group_id, (_, topics) in self._groups.items() if topics)

    def add(self, group_id: str, topic: str) -> None:
        """Add a topic to those of a group."""
        asked, topics = self._groups.get(group_id, (_NEVER, _NONE))
        self._put(group_id, asked, topics | {topic})

    def forget(self, group_id: str) -> None:
        """Ask again before the next decision."""
        self._groups.pop(group_id, None)
        self._asked_all = _NEVER

    def _put(self, group_id: str, asked: float, topics: frozenset[str]) -> None:
        self._groups[group_id] = asked, topics
        self._groups.move_to_end(group_id)
        while len(self._groups) > _MAX_GROUPS:
            self._groups.popitem(last=False)


async def ask_others(cells: Cells, method: str, argument: Any, *, timeout_s: float = 30.0) -> list[Any]:
    """Call a method in all other cells and return the results. Raises Unavailable."""
    others = [cell for cell in range(cells.count) if cell != cells.me]
    return await asyncio.gather(*(cells.peers.call(cell, method, argument, timeout_s=timeout_s) for cell in others))
