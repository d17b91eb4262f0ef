"""Committed offsets of the groups of a set of cells: each is a cursor in the cell that has its partition.

The group's coordinator, in the group's home cell, asks the other cells. A commit carries the generation of the group:
the partition's cell refuses one of an earlier generation than it has seen, which was on its way while the group went
on. What it has seen is in memory, since no commit is on its way any more when the cell has started again.

Only the coordinator ends a group: it deletes the offsets in all cells, or keeps the group if one cannot be reached.

Source: docs/cells.md#kafka-clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.kafka.errors import ErrorCode
from broker.kafka.groups.offsets import Committed, Offsets, code_of_commit
from broker.kafka.refusals import Refused
from broker.kafka.spread import Owners, TopicsElsewhere, ask_others
from storage import NotMine, TopicNotFound

if TYPE_CHECKING:
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

    def __init__(self, engine: Engine, cells: Cells) -> None:
        super().__init__(engine)
        self._cells = cells
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
        if self._is_here(committed.topic):
            await super().commit_in(group_id, generation, committed)
            return
        code = await self._owners.call(committed.topic, COMMIT, [group_id, generation, *committed])
        if code != ErrorCode.NONE:
            raise Refused(ErrorCode(code))
        self._elsewhere.add(group_id, committed.topic)

    async def find(self, group_id: str, topic: str, partitions: Sequence[int]) -> list[Committed | None]:
        if self._is_here(topic):
            return await super().find(group_id, topic, partitions)
        try:
            found = await self._owners.call(topic, FIND, [group_id, topic, list(partitions)])
        except TopicNotFound:
            return [None] * len(partitions)
        return [None if each is None else Committed(*each) for each in found]

    async def find_all(self, group_id: str) -> list[Committed]:
        answers = await ask_others(self._cells, FIND_ALL, group_id)
        return sorted([*self.all(group_id), *(Committed(*each) for found in answers for each in found)])

    async def delete(self, group_id: str, topic: str, partition: int) -> bool:
        if self._is_here(topic):
            return await super().delete(group_id, topic, partition)
        found = await self._owners.call(topic, DELETE, [group_id, topic, partition])
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

    def _is_here(self, topic: str) -> bool:
        return self._cells.owner(topic) == self._cells.me

    # -- for other cells -----------------------------------------------------------------------------------------------

    async def _serve_commit(self, argument: Any) -> int:
        group_id, generation, *rest = argument
        committed = Committed(*rest)
        self._require(committed.topic)
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
        self._require(topic)
        return await self._here.find(group_id, topic, partitions)

    async def _serve_find_all(self, group_id: str) -> list[Committed]:
        return self._here.all(group_id)

    async def _serve_delete(self, argument: Any) -> bool | int:
        group_id, topic, partition = argument
        self._require(topic)
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

    def _require(self, topic: str) -> None:
        if not self._is_here(topic):
            raise NotMine(topic, self._cells.owner(topic))
