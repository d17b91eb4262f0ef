"""The topic that a move goes to: in this engine, or in another cell of the set.

The steps of a move are the same for both (see `storage.state.queues.moves`). A target performs the second step, and
is informed of the third.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final, Protocol

from storage.errors import StorageError, StorageFailed, TopicNotFound
from storage.log import Appender, Logs, Write
from storage.platform import Era, Neighbours
from storage.records import StoredBodies, TopicConfig, cell_of
from storage.state import Topic
from storage.topics import Placing, TopicAdmin

#: The most topics of other cells that are known by name and by id.
MAX_KNOWN: Final = 4096
#: How often a call follows an answer that another cell has the name.
MAX_FOLLOWED: Final = 2


class Target(Protocol):
    """A topic that records are moved to."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> int: ...

    @property
    def exists(self) -> bool:
        """False once the topic is known to be gone."""
        ...

    async def came(self, source: Topic, seqs: Collection[int]) -> set[int] | None:
        """Those of these records whose copies are there. Copies of the others come only if `write` is called again.
        None if the topic is gone, and the copies with it. Raises StorageError if it cannot be known now.
        """
        ...

    async def write(self, source: Topic, seqs: Sequence[int], copies: StoredBodies, node: bytes) -> bool:
        """Write the copies of these records. Durable on return. False if the topic is gone. After a StorageError,
        `came` tells whether the copies are there."""
        ...

    async def finished(self, source: Topic, seqs: Sequence[int]) -> None:
        """These records are gone from their source for good, so their copies need not be remembered. Does not raise."""
        ...


class OwnTarget:
    """A topic of this engine."""

    __slots__ = ("_appender", "_topic")

    def __init__(self, appender: Appender, topic: Topic) -> None:
        self._appender = appender
        self._topic = topic

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def topic_id(self) -> int:
        return self._topic.topic_id

    @property
    def exists(self) -> bool:
        return self._appender.logs.catalog.by_id.get(self._topic.topic_id) is self._topic

    async def came(self, source: Topic, seqs: Collection[int]) -> set[int] | None:
        if not self.exists:
            return None
        log = self._topic.log
        known = log.moves.came
        if known and not known.isdisjoint(zip(repeat(source.topic_id), seqs)):
            found = {seq for seq in seqs if (source.topic_id, seq) in known}
            if len(found) == len(seqs):
                return found
        else:
            found = set[int]()
        if self._appender.logs.shards[log.shard].log.failed is not None:
            raise StorageFailed()  # the frame that was in flight may be in the log: only the next start can know
        return found

    async def write(self, source: Topic, seqs: Sequence[int], copies: StoredBodies, node: bytes) -> bool:
        try:
            await write_copies(self._appender, self._topic, source.topic_id, seqs, copies, node)
        except TopicNotFound:
            return False
        return True

    async def finished(self, source: Topic, seqs: Sequence[int]) -> None:
        forget_copies(self._topic, source.topic_id, seqs)


class ForeignTarget:
    """A topic of another cell. `storage.queues.arrivals` carries out the calls there."""

    __slots__ = ("_agreed", "_agreeing", "_era", "_neighbours", "exists", "name", "topic_id")

    def __init__(self, neighbours: Neighbours, era: Era, name: str, topic_id: int) -> None:
        self._neighbours = neighbours
        self._era = era
        self.name = name
        self.topic_id = topic_id
        self.exists = True
        #: topic_ids of sources whose open moves were sent to the other cell since this process started.
        self._agreed: set[int] = set()
        self._agreeing = asyncio.Lock()

    async def came(self, source: Topic, seqs: Collection[int]) -> set[int] | None:
        await self._agree(source)
        found = await self._call("moves_came", source, [*seqs])
        if found is None:
            self.exists = False
            return None
        return {*found}

    async def _agree(self, source: Topic) -> None:
        """Called once in each process: tell the other cell which moves are open, so that it forgets the copies of all
        others."""
        async with self._agreeing:
            if source.topic_id not in self._agreed:
                still = [seq for seq, move in source.log.moves.out.items() if move.dest_id == self.topic_id]
                await self._call("moves_still_open", source, still)
                self._agreed.add(source.topic_id)

    async def write(self, source: Topic, seqs: Sequence[int], copies: StoredBodies, node: bytes) -> bool:
        records = [copies.bodies, copies.tags, [*copies.payloads], node]
        there = bool(await self._call("moves_write", source, [*seqs], *records))
        self.exists &= there
        return there

    async def finished(self, source: Topic, seqs: Sequence[int]) -> None:
        with suppress(StorageError):  # the other cell asks after a while
            await self._call("moves_finished", source, [*seqs])

    async def _call(self, method: str, source: Topic, seqs: list[int], *more: Any) -> Any:
        argument = [self._era.now, source.topic_id, self.topic_id, seqs, *more]
        try:
            return await self._neighbours.call(cell_of(self.topic_id), method, argument)
        except BaseException as error:
            if not isinstance(error, StorageError) or error.outcome != "none":
                self._era.end()
            raise


class Targets:
    """Finds the targets of moves."""

    def __init__(self, appender: Appender, topics: TopicAdmin, placing: Placing) -> None:
        self.appender = appender
        self._placing = placing
        self._logs: Logs = appender.logs
        self._topics = topics
        self.era = Era(self._logs.clock.monotonic_ns)
        self._known: OrderedDict[int, ForeignTarget] = OrderedDict()
        self._named: OrderedDict[str, ForeignTarget] = OrderedDict()

    async def find(self, topic_id: int) -> Target | None:
        """The target with this id. None if it is gone. Raises StorageError if its cell cannot be asked."""
        topic = self._logs.catalog.by_id.get(topic_id)
        if topic is not None:
            return OwnTarget(self.appender, topic)
        neighbours = self._logs.neighbours
        if neighbours is None or not self._logs.catalog.is_foreign(topic_id):
            return None
        known = self._known.get(topic_id)
        if known is None:
            name = await neighbours.call(cell_of(topic_id), "moves_dest", topic_id)
            if name is None:
                return None
            known = self._remember(ForeignTarget(neighbours, self.era, name, topic_id))
        return known if known.exists else None

    async def named(self, name: str, durability: TopicConfig) -> Target:
        """The topic of that name. If it is missing, it is created with this config: in this cell, unless the home cell
        of the name has decided otherwise. Raises StorageError."""
        neighbours = self._logs.neighbours
        there = self._logs.catalog.topics.get(name)
        if there is not None or neighbours is None:
            return OwnTarget(self.appender, await ensure(self._logs, self._topics, name, durability))
        known = self._named.get(name)
        if known is None or not known.exists:
            cell = await self._placing.here(name)
            if cell == neighbours.me:
                return OwnTarget(self.appender, await ensure(self._logs, self._topics, name, durability))
            topic_id = await self._ensure_there(neighbours, cell, name, durability)
            known = self._known.get(topic_id)
            if known is None or not known.exists:
                known = self._remember(ForeignTarget(neighbours, self.era, name, topic_id))
            self._named[name] = known
            while len(self._named) > MAX_KNOWN:
                self._named.popitem(last=False)
        return known

    @staticmethod
    async def _ensure_there(neighbours: Neighbours, cell: int, name: str, config: TopicConfig) -> int:
        for _ in range(MAX_FOLLOWED):
            topic_id, cell = await neighbours.call(cell, "moves_ensure_dest", [name, config.to_map()])
            if topic_id:
                return topic_id
        raise TopicNotFound(name)

    def _remember(self, target: ForeignTarget) -> ForeignTarget:
        self._known[target.topic_id] = target
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return target


async def ensure(logs: Logs, topics: TopicAdmin, name: str, config: TopicConfig) -> Topic:
    """The topic of this engine with that name, created if it is missing. Raises StorageError."""
    there = logs.catalog.topics.get(name)
    if there is None or there.provisional:
        # Another move may be creating it. After that, it exists.
        await topics.put(name, config if there is None else there.config)
    return logs.topic(name)


async def write_copies(
    appender: Appender, dest: Topic, source_id: int, seqs: Sequence[int], copies: StoredBodies, node: bytes
) -> None:
    """Write copies of these records of the topic `source_id` to a topic of this engine, synced."""
    await Write(
        appender,
        dest.name,
        copies,
        node=node.decode() or None,
        key=None,
        strict=False,
        create=False,
        config=None,
        expected_seq=None,
        move=(source_id, seqs),
        dest_id=dest.topic_id,
    ).run()


def forget_copies(dest: Topic, source_id: int, seqs: Sequence[int]) -> None:
    """Forget copies whose moves are finished."""
    dest.log.moves.came.difference_update(zip(repeat(source_id), seqs))
    dest.log.section = None
