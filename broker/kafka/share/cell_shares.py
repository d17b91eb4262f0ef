"""The share groups of a set of cells: the home cell of a group's name has its members, each queue's cell the sessions.

A member joins at the coordinator, in the home cell of its group, and fetches jobs from the nodes that lead its queues.
It has a session with each of them. When it leaves, or is overdue, the coordinator tells the other cells, which end
their sessions. A cell that cannot be reached gives the jobs back when their leases end. The group of a queue is durable
in the queue's cell, and the config of a group in its home cell.

Source: docs/cells.md#kafka-clients.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from broker.kafka.errors import ErrorCode
from broker.kafka.share.configs import NOTHING, Configs, ShareGroupConfig
from broker.kafka.share.shares import Shares
from broker.kafka.spread import FRESH_S, TopicsElsewhere, ask_others
from storage import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.kafka.node import Cells
    from storage import Engine

TOPICS: Final = "kafka_share_topics"
FIND: Final = "kafka_share_find"
CONFIG: Final = "kafka_share_config"
RELEASE: Final = "kafka_share_release"
LEFT: Final = "kafka_share_left"
#: The most groups, and the most topics, whose answers from other cells are remembered.
_MAX_REMEMBERED: Final = 10_000


class CellShares(Shares):
    """See the module."""

    def __init__(self, engine: Engine, cells: Cells, *, max_members: int) -> None:
        super().__init__(engine, max_members=max_members)
        self._cells = cells
        self._here = Shares(engine, max_members=max_members)  # it looks up what is in this cell
        self._elsewhere = TopicsElsewhere(cells, TOPICS)
        self._found: dict[str, bytes] = {}
        self.configs = self._configs = CellConfigs(engine, cells)
        self._telling: set[asyncio.Task[None]] = set()
        cells.handlers.update(
            {
                TOPICS: self._serve_topics,
                FIND: self._serve_find,
                CONFIG: self._configs.serve,
                RELEASE: self._serve_release,
                LEFT: self._serve_left,
            }
        )

    def refusal(self, group_id: str) -> ErrorCode:
        return ErrorCode.NONE if self._cells.home(group_id) == self._cells.me else ErrorCode.NOT_COORDINATOR

    async def look(self, group_id: str | None) -> None:
        await self._elsewhere.look(group_id)

    async def look_up_config(self, group_id: str) -> None:
        await self._configs.look(group_id)

    async def find(self, names: Sequence[str]) -> list[bytes]:
        """While a cell cannot be reached, its last known topics count."""
        by_cell: dict[int, list[str]] = {}
        for name in names:
            by_cell.setdefault(self._cells.owner(name), []).append(name)
        mine = by_cell.pop(self._cells.me, [])
        found = {name: await self._here.find([name]) for name in mine}

        async def at(cell: int, wanted: list[str]) -> None:
            try:
                ids = await self._cells.peers.call(cell, FIND, wanted)
            except StorageError:
                return
            if len(self._found) >= _MAX_REMEMBERED:
                self._found.clear()
            for name, topic_id in zip(wanted, ids, strict=True):
                if topic_id is None:
                    self._found.pop(name, None)
                else:
                    self._found[name] = topic_id

        await asyncio.gather(*(at(cell, wanted) for cell, wanted in by_cell.items()))
        for wanted in by_cell.values():
            found |= {name: [self._found[name]] for name in wanted if name in self._found}
        return [topic_id for name in names for topic_id in found.get(name, ())]

    def name_of(self, topic_id: bytes) -> str | None:
        known = (name for name, found in self._found.items() if found == topic_id)
        return super().name_of(topic_id) or next(known, None)

    async def release(self, group_id: str) -> None:
        await ask_others(self._cells, RELEASE, group_id)
        await super().release(group_id)
        self._elsewhere.forget(group_id)

    def member_left(self, group_id: str, member_id: str, *, forgiven: bool) -> None:
        async def tell() -> None:
            for cell in range(self._cells.count):
                if cell != self._cells.me:
                    with suppress(StorageError):  # its leases end by themselves
                        await self._cells.peers.call(cell, LEFT, [group_id, member_id, forgiven])

        task = asyncio.get_running_loop().create_task(tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def queues(self, group_id: str) -> set[str]:
        return super().queues(group_id) | self._elsewhere.of(group_id)

    def groups(self) -> dict[str, set[str]]:
        """The groups that this node coordinates."""
        found = super().groups()
        for group_id, topics in self._elsewhere.all():
            found[group_id] = found.get(group_id, set()) | topics
        return {group_id: topics for group_id, topics in found.items() if self.refusal(group_id) is ErrorCode.NONE}

    # -- for other cells -----------------------------------------------------------------------------------------------

    async def _serve_topics(self, group_id: str | None) -> dict[str, list[str]]:
        """A group's queues, and the topics that its members want. The members are here if this is the home cell."""
        found: dict[str, set[str]] = {}
        for owner, topic in self.owners.all():
            if group_id in (None, owner):
                found.setdefault(owner, set()).add(topic.name)
        for group in self.members.groups() if group_id is None else [group_id]:
            found.setdefault(group, set()).update(self.members.wanted(group))
        return {group: sorted(topics) for group, topics in found.items()}

    async def _serve_find(self, names: list[str]) -> list[bytes | None]:
        return [next(iter(await self._here.find([name])), None) for name in names]

    async def _serve_release(self, group_id: str) -> None:
        await self._here.owners.release(group_id)

    async def _serve_left(self, argument: Any) -> None:
        group_id, member_id, forgiven = argument
        if forgiven:
            self.end_later((group_id, member_id))
        else:
            self.end((group_id, member_id), forgiven=False)


class CellConfigs(Configs):
    """The configs of the groups of all cells: each is in the home cell of its group."""

    def __init__(self, engine: Engine, cells: Cells) -> None:
        super().__init__(engine)
        self._cells = cells
        self._seen: dict[str, tuple[float, ShareGroupConfig]] = {}

    async def look(self, group_id: str) -> None:
        """Ask the home cell. While it cannot be reached, its last answer applies. Raises Unavailable if there is
        none."""
        home = self._cells.home(group_id)
        asked = self._seen.get(group_id)
        if home == self._cells.me or (asked is not None and monotonic() - asked[0] < FRESH_S):
            return
        try:
            texts, prefixes = await self._cells.peers.call(home, CONFIG, group_id)
        except StorageError:
            if asked is None:
                raise
            return
        if len(self._seen) >= _MAX_REMEMBERED:
            self._seen.clear()
        self._seen[group_id] = monotonic(), ShareGroupConfig(set=texts, prefixes=tuple(prefixes))

    def config_of(self, group_id: str) -> ShareGroupConfig:
        if self._cells.home(group_id) == self._cells.me:
            return super().config_of(group_id)
        return self._seen.get(group_id, (0.0, NOTHING))[1]

    async def serve(self, group_id: str) -> tuple[dict[str, str], tuple[str, ...]]:
        """The config of a group whose home is here."""
        found = super().config_of(group_id)
        return found.set, found.prefixes
