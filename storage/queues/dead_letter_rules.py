"""What a dead letter topic of another cell cannot be: a topic with several partitions. Both sides are checked when they
are changed, as within one engine (`storage.state.partition_rules`). A cell that is away is not waited for: dead letters
that come to such a topic all the same go to its partition 0.

The methods only look.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from storage.errors import Unavailable
from storage.state import queue_with_dead_letter, refuse_dead_letter, refuse_dead_letters

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.platform import Method, Neighbours
    from storage.topics import Placing

#: A cell that does not answer within this time counts as away.
ASK_S: Final = 5.0


class DeadLetterRules:
    """Asks other cells, and answers them. Used only on the event loop."""

    def __init__(self, logs: Logs, placing: Placing) -> None:
        self._logs = logs
        self._placing = placing

    @property
    def methods(self) -> dict[str, Method]:
        """The methods that other cells call, by name."""
        return {"dead_letter_partitions": self._partitions, "dead_letter_queue": self._queue}

    async def check_takes(self, name: str, field: str) -> None:
        """Raises TopicIncompatible if the topic is in another cell and has several partitions. `field`: the field of
        the request that names it."""
        neighbours = self._logs.neighbours
        if neighbours is None or name in self._logs.catalog.topics:
            return
        try:
            async with asyncio.timeout(ASK_S):
                cell, there = await self._placing.find(name)
                there = there and cell != neighbours.me
                count = await neighbours.call(cell, "dead_letter_partitions", name) if there else 1
        except (Unavailable, TimeoutError):
            return
        if count > 1:
            refuse_dead_letter(name, field)

    async def check_unused(self, name: str) -> None:
        """Raises TopicIncompatible if a queue of another cell has this dead letter topic."""
        neighbours = self._logs.neighbours
        if neighbours is None:
            return
        others = [cell for cell in range(neighbours.count) if cell != neighbours.me]
        asked = (self._queue_in(neighbours, cell, name) for cell in others)
        queue = next(filter(None, await asyncio.gather(*asked)), None)
        if queue is not None:
            refuse_dead_letters(name, queue)

    async def _queue_in(self, neighbours: Neighbours, cell: int, name: str) -> str | None:
        with suppress(Unavailable):
            return await neighbours.call(cell, "dead_letter_queue", name, timeout_s=ASK_S)
        return None

    async def _partitions(self, argument: Any) -> int:
        """How many partitions the topic of that name has. 1 if there is none."""
        self._logs.check_open()
        topic = self._logs.catalog.topics.get(argument)
        return 1 if topic is None else topic.config.partitions

    async def _queue(self, argument: Any) -> str | None:
        """A queue of this cell with this dead letter topic."""
        self._logs.check_open()
        queue = queue_with_dead_letter(self._logs.catalog, argument)
        return None if queue is None else queue.name
