"""Topics whose partitions are in several cells, in the cell of partition 0, which decides about the topic.

Creating and growing, changing, deleting:

    TO_TELL, synced | partitions created in other cells | partition 0 and the placement, synced | others informed
    TO_TELL, synced | writes held in other cells        | partition 0 changed, synced           | others informed
    TO_TELL, synced | writes held in other cells        | partition 0 deleted, synced           | others informed

The frame of partition 0 decides. Whatever happens before or after it, the other cells learn in the end which
partitions count, and delete the rest: `TO_TELL` stays until all of them have answered. A topic_id that another cell has
seen is never used for another topic, because the value with it is in the log first.

Source: docs/cells.md#partitions-in-several-cells.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import structlog

from storage.errors import NotReady, ShuttingDown, StorageError, StorageFailed, Unavailable
from storage.platform import Era
from storage.records import TopicConfig, TopicState
from storage.state import TO_TELL, Placement, Topic, ToTell, encode_placement, shard_of, to_tell_of
from storage.topics.foreign_parts import HOLD, MAKE, STATES, TELL, decode_states

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.topics.states import States

_log = structlog.get_logger("storage")

#: How long a `spread_` call may take.
CALL_S: Final = 5.0
#: The codes of the errors of a cell that is starting or stopping.
_AWAY: Final = frozenset({NotReady.code, ShuttingDown.code})
#: How often calls to cells that did not answer are repeated.
TELL_EVERY_S: Final = 1.0


class Placements:
    """The partitions that other cells have of topics of this cell. Belongs to the event loop."""

    def __init__(self, logs: Logs, states: States) -> None:
        self._logs = logs
        self._states = states
        self._era = Era(logs.clock.monotonic_ns)
        #: By topic_id: held while the topic is changed, or the others are told about it. Its users keep it alive.
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        #: Topics about which the other cells are notified once after the start, because a restored cell may lack
        #: partitions.
        self._after_start: set[int] = set()
        #: Whether the partitions of new topics, and new partitions, go to several cells.
        self.is_on = False

    def start(self) -> None:
        """Finish the changes that an earlier process began."""
        if self._logs.neighbours is not None:
            roots = self._logs.catalog.topics.values()
            self._after_start = {root.topic_id for root in roots if root.placement is not None}
            self._logs.runtime.supervisor.start("placements", TELL_EVERY_S, self.tick)

    def placement_for(self, topic: Topic, config: TopicConfig) -> Placement | None:
        """The placement of the partitions that `config` requires; None: all stay in this cell. `topic` may be new."""
        neighbours, before = self._logs.neighbours, topic.placement
        there = 0 if topic.provisional else topic.config.partitions
        if neighbours is None or (before is None and not (self.is_on and config.partitions > max(there, 1))):
            return None
        cells = before.cells if before is not None else (neighbours.me,) * there
        if config.partitions <= len(cells):
            return before
        more = tuple((neighbours.me + each) % neighbours.count for each in range(len(cells), config.partitions))
        if not there:
            return Placement(more)
        return Placement((*cells, *more), len(cells), self._logs.now_ms())

    @asynccontextmanager
    async def changing(self, topic: Topic, placement: Placement | None) -> AsyncGenerator[None]:
        """The context of a change of a topic with this placement. At its end the other cells are notified, as far as
        they answer.

        Raises Unavailable if the log cannot store that the other cells must be notified, for the case that this process
        ends.
        """
        others = self._others(placement)
        if not others:
            yield
            return
        key = str(topic.topic_id)
        async with self._locks.setdefault(topic.topic_id, asyncio.Lock()):
            cells = {*others, *self._known(key)}
            await self._states.put(TO_TELL, key, encode_placement(ToTell(topic.title, tuple(sorted(cells)))))
            try:
                yield
            except StorageError:
                await self._try_notify(topic)
                raise
            await self._try_notify(topic)

    async def _try_notify(self, topic: Topic) -> None:
        try:
            await self._notify_all(topic.topic_id)
        except StorageError as error:
            _log.info("cells_to_tell", topic=topic.title, topic_id=topic.topic_id, reason=str(error))

    async def make(self, root: Topic, config: TopicConfig, placement: Placement) -> None:
        """Make the partitions of other cells that are not there yet. Raises StorageError: then they do not count."""
        made = root.placement.cells if root.placement is not None else ()
        wanted: dict[int, Any] = {}
        for cell in self._others(placement):
            numbers = [each for each in placement.of(cell) if each >= len(made)]
            if numbers:
                wanted[cell] = [root.topic_id, root.title, numbers, config.to_map()]
        await self._ask(MAKE, wanted)

    async def hold(self, root: Topic, config: TopicConfig | None) -> int:
        """Let writes to the partitions of other cells wait until those cells are notified, or for some seconds. Returns
        how many records they have. Raises StorageError if a cell is away, or its partitions cannot have this config."""
        wanted = None if config is None else config.to_map()
        held = await self._ask(HOLD, {cell: [root.topic_id, wanted] for cell in self._others(root.placement)})
        return sum(held.values())

    async def states(self, roots: Iterable[Topic]) -> dict[int, dict[int, TopicState]]:
        """By topic_id, the states of partitions in other cells, by number. Those of a cell that is away are missing."""
        wanted: dict[int, list[int]] = {}
        for root in roots:
            for cell in self._others(root.placement):
                wanted.setdefault(cell, []).append(root.topic_id)
        found: dict[int, dict[int, TopicState]] = {}
        answers = await self._answers(STATES, {cell: [ids] for cell, ids in wanted.items()})
        for answer in answers.values():
            if _is_away(answer):
                continue
            if isinstance(answer, BaseException):
                raise answer
            for root_id, number, state in decode_states(answer):
                found.setdefault(root_id, {})[number] = state
        return found

    # -- notifying ---------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Tell cells that did not answer."""
        pending = {int(key) for key, _ in self._states.items(TO_TELL)}
        for root_id in sorted(pending | self._after_start):
            if root_id in self._locks:
                continue  # a change is in progress, and notifies them
            try:
                async with self._locks.setdefault(root_id, asyncio.Lock()):
                    await self._notify_all(root_id)
            except StorageError:
                continue  # the next round tries again

    async def _notify_all(self, root_id: int) -> None:
        """Tell each cell that may have partitions of this topic which of them count. Raises StorageError."""
        logs, key = self._logs, str(root_id)
        if logs.shards[shard_of(root_id, len(logs.shards))].log.failed is not None:
            raise StorageFailed()  # only the next start knows which partitions count
        root = logs.catalog.by_id.get(root_id)
        known = self._states.get(TO_TELL, key)
        cells = set(self._known(key))
        if root is None or root.provisional or root.placement is None:
            title = root.title if root is not None else "" if known is None else to_tell_of(known).title
            wanted: dict[int, list[Any]] = {cell: [root_id, title, [], None] for cell in cells}
        else:
            config = root.config.to_map()
            cells |= self._others(root.placement)
            wanted = {cell: [root_id, root.title, root.placement.of(cell), config] for cell in cells}
        await self._ask(TELL, wanted)
        if known is not None:
            await self._states.delete(TO_TELL, key)
        self._after_start.discard(root_id)

    def _known(self, key: str) -> tuple[int, ...]:
        known = self._states.get(TO_TELL, key)
        return () if known is None else to_tell_of(known).cells

    def _others(self, placement: Placement | None) -> set[int]:
        return set() if placement is None else {*placement.cells} - {self._logs.catalog.cell or 0}

    async def _ask(self, method: str, wanted: Mapping[int, list[Any]]) -> dict[int, Any]:
        """Call a method of several cells; the results by cell. Raises the error of one that failed, when all have
        ended."""
        answers = await self._answers(method, wanted)
        for cell, error in answers.items():
            if _is_away(error):
                # Nothing counts yet, so the outcome is none.
                raise NotReady(f"Cell {cell} cannot be reached now.", cell=cell, outcome=NotReady.outcome) from error
            if isinstance(error, BaseException):
                raise error
        return answers

    async def _answers(self, method: str, wanted: Mapping[int, list[Any]]) -> dict[int, Any]:
        """Call a method of several cells; the result or the error of each, by cell."""
        answers = await asyncio.gather(
            *(self._call(cell, method, argument) for cell, argument in wanted.items()), return_exceptions=True
        )
        return dict(zip(wanted, answers, strict=True))

    async def _call(self, cell: int, method: str, argument: list[Any]) -> Any:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        try:
            return await neighbours.call(cell, method, [self._era.now, *argument], timeout_s=CALL_S)
        except BaseException as error:
            if not isinstance(error, StorageError) or error.outcome != "none":
                self._era.end()
            raise


def _is_away(answer: Any) -> bool:
    """Whether the call failed because its cell is unreachable, starting or stopping."""
    return isinstance(answer, StorageError) and (isinstance(answer, Unavailable) or answer.code in _AWAY)
