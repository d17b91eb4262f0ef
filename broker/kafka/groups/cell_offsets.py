"""Committed offsets of the groups of a set of cells: each is a cursor in the cell that has its partition.

The group's coordinator, in the group's home cell, asks the other cells. A commit carries the generation of the group:
the partition's cell refuses a commit of an earlier generation than the newest it has seen. Such a commit was in flight
while the group continued. The newest generation is in memory only, because no commit is in flight any more when the
cell has restarted.

Only the coordinator ends a group: it deletes the offsets in all cells, or keeps the group if one cannot be reached.

Source: docs/cells.md#kafka-clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.content import in_slices
from broker.kafka.errors import ErrorCode
from broker.kafka.groups.offsets import Committed, Offsets, code_of_commit
from broker.kafka.refusals import Refused
from broker.kafka.spread import AWAY_AFTER_S, Owners, TopicsElsewhere, ask_others
from storage import NotMine, NotReady, TopicNotFound, Unavailable
from storage.records import address

if TYPE_CHECKING:
    from broker.kafka.described import Described
    from broker.kafka.node import Cells
    from storage import Engine

COMMIT: Final = "kafka_commit"
FIND: Final = "kafka_offsets"
FIND_ALL: Final = "kafka_all_offsets"
DELETE: Final = "kafka_delete_offset"
DELETE_ALL: Final = "kafka_delete_group"
TOPICS: Final = "kafka_group_topics"

#: The most partitions whose newest generation is remembered; the one used longest ago is forgotten.
MAX_FENCES: Final = 100_000


class CellOffsets(Offsets):
    """See the module."""

    def __init__(self, engine: Engine, cells: Cells, described: Described) -> None:
        """`described`: what other cells last said of their topics."""
        super().__init__(engine)
        self._cells = cells
        self._described = described
        self._here = Offsets(engine)
        self._fences: OrderedDict[tuple[str, str, int], int] = OrderedDict()
        self._elsewhere = TopicsElsewhere(cells, TOPICS)
        self._owners = Owners(cells)
        cells.handlers.update(
            {
                COMMIT: self._serve_commit,
                FIND: self._serve_find,
                FIND_ALL: self._serve_find_all,
                DELETE: self._serve_delete,
                DELETE_ALL: self._serve_delete_all,
                TOPICS: self._serve_topics,
            }
        )

    # -- for the coordinator -------------------------------------------------------------------------------------------

    async def commit_in(self, group_id: str, generation: int, committed: Committed) -> None:
        topic, partition = committed.topic, committed.partition
        if self._is_here(topic, partition):
            await super().commit_in(group_id, generation, committed)
            return
        code = await self._call(topic, partition, COMMIT, [group_id, generation, *committed])
        if code != ErrorCode.NONE:
            raise Refused(ErrorCode(code))
        self._elsewhere.add(group_id, committed.topic)

    async def find(self, group_id: str, topic: str, partitions: Sequence[int]) -> list[Committed | None]:
        by_cell: dict[int, list[int]] = {}
        async for partition in in_slices(partitions):
            by_cell.setdefault(self._cells.cell_of(topic, partition), []).append(partition)
        found: dict[int, Committed | None] = {}
        for cell, numbers in by_cell.items():
            if cell == self._cells.me:
                there: Sequence[Any] = await super().find(group_id, topic, numbers)
            else:
                try:
                    there = await self._find_in(group_id, topic, numbers)
                except TopicNotFound:
                    there = [None] * len(numbers)
            for number, each in zip(numbers, there, strict=True):
                found[number] = None if each is None else Committed(*each)
        return [found[partition] for partition in partitions]

    async def _find_in(self, group_id: str, topic: str, partitions: list[int]) -> Sequence[Any]:
        try:
            return await self._through_topic(topic, partitions[0], FIND, [group_id, topic, partitions])
        except Unavailable as error:
            found: list[Any] = []
            for each in partitions:
                found += await self._directly(topic, each, FIND, [group_id, topic, [each]], error)
            return found

    async def find_all(self, group_id: str) -> list[Committed]:
        answers = await ask_others(self._cells, FIND_ALL, group_id, timeout_s=AWAY_AFTER_S)
        return sorted([*self.all(group_id), *(Committed(*each) for found in answers for each in found)])

    async def delete(self, group_id: str, topic: str, partition: int) -> bool:
        if self._is_here(topic, partition):
            return await super().delete(group_id, topic, partition)
        found = await self._call(topic, partition, DELETE, [group_id, topic, partition])
        if isinstance(found, int) and not isinstance(found, bool):
            raise Refused(ErrorCode(found))
        self._elsewhere.forget(group_id)
        return found

    async def delete_all(self, group_id: str) -> None:
        await ask_others(self._cells, DELETE_ALL, group_id)
        await super().delete_all(group_id)
        self._elsewhere.forget(group_id)

    async def look(self, group_id: str | None) -> None:
        await self._elsewhere.look(group_id)

    def has_any(self, group_id: str) -> bool:
        return super().has_any(group_id) or bool(self._elsewhere.of(group_id))

    def topics(self, group_id: str) -> set[str]:
        return super().topics(group_id) | self._elsewhere.of(group_id)

    def topics_of_all(self) -> dict[str, set[str]]:
        found = super().topics_of_all()
        for group_id, topics in self._elsewhere.all():
            found[group_id] = found.get(group_id, set()) | topics
        return found

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _is_here(self, topic: str, partition: int) -> bool:
        return self._cells.cell_of(topic, partition) == self._cells.me

    async def _call(self, topic: str, partition: int, method: str, argument: Any) -> Any:
        """Call a method of the cell that has a partition, or of the topic's cell, which passes it on."""
        try:
            return await self._through_topic(topic, partition, method, argument)
        except Unavailable as error:
            return await self._directly(topic, partition, method, argument, error)

    async def _directly(self, topic: str, partition: int, method: str, argument: Any, error: Unavailable) -> Any:
        """While the topic's cell is away: call the cell that has the partition, as that cell last said. Raises `error`
        if it is not known, or the call may have been carried out."""
        shape = self._described.of(topic) if error.outcome == "none" else None
        if shape is None or not 0 < partition < len(shape.cells) or shape.cells[partition] == self._cells.me:
            raise error
        return await self._cells.peers.call(shape.cells[partition], method, argument, timeout_s=AWAY_AFTER_S)

    async def _through_topic(self, topic: str, partition: int, method: str, argument: Any) -> Any:
        if self._cells.owner(topic) == self._cells.me:
            cell = self._cells.cell_of(topic, partition)
            return await self._cells.peers.call(cell, method, argument, timeout_s=AWAY_AFTER_S)
        return await self._owners.call(topic, method, argument, timeout_s=AWAY_AFTER_S)

    # -- for other cells -----------------------------------------------------------------------------------------------

    async def _serve_commit(self, argument: Any) -> int:
        group_id, generation, *rest = argument
        committed = Committed(*rest)
        topic, partition = committed.topic, committed.partition
        if self._is_forwarded(topic, partition):
            return await self._call(topic, partition, COMMIT, argument)
        key = group_id, committed.topic, committed.partition
        if generation < self._fences.get(key, -1):
            return ErrorCode.ILLEGAL_GENERATION
        self._fences[key] = generation
        self._fences.move_to_end(key)
        while len(self._fences) > MAX_FENCES:
            self._fences.popitem(last=False)
        try:
            await self._here.commit_in(group_id, generation, committed)
        except Exception as error:
            return code_of_commit(error)
        return ErrorCode.NONE

    async def _serve_find(self, argument: Any) -> list[Committed | None]:
        group_id, topic, partitions = argument
        forwarded = [self._is_forwarded(topic, partition) for partition in partitions]  # each is checked
        if any(forwarded):
            return await self.find(group_id, topic, partitions)
        return await self._here.find(group_id, topic, partitions)

    async def _serve_find_all(self, group_id: str) -> list[Committed]:
        return self._here.all(group_id)

    async def _serve_delete(self, argument: Any) -> bool | int:
        group_id, topic, partition = argument
        if self._is_forwarded(topic, partition):
            return await self._call(topic, partition, DELETE, argument)
        try:
            return await self._here.delete(group_id, topic, partition)
        except Exception as error:
            return code_of_commit(error)

    async def _serve_delete_all(self, group_id: str) -> None:
        await self._here.delete_all(group_id)
        for key in [key for key in self._fences if key[0] == group_id]:
            del self._fences[key]  # the next group of that name begins at the first generation

    async def _serve_topics(self, group_id: str | None) -> dict[str, list[str]]:
        if group_id is None:
            return {group: sorted(topics) for group, topics in self._here.topics_of_all().items()}
        return {group_id: sorted(self._here.topics(group_id))}

    def _is_forwarded(self, topic: str, partition: int) -> bool:
        """Whether another cell has this partition of a topic of this cell. Raises NotMine for topics of other cells,
        and NotReady for a partition of which that cell has not said yet whether it counts."""
        if self._is_here(topic, partition):
            return False
        if address(topic, partition) in self._engine.catalog.uncounted:
            raise NotReady
        owner = self._cells.owner(topic)
        if owner != self._cells.me:
            raise NotMine(topic, owner)
        return True
