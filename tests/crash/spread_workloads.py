"""What the sweep of two cells crashes: a topic of cell 0 whose partitions are in both cells, made, grown, changed,
deleted and made again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from storage import Durability, Engine, TopicConfig
from storage.records import Appended, TopicState, address
from storage.state import TO_TELL
from tests.support.cell_pair import CellPair
from tests.support.crash_view import view_of_partition

SYNCED = TopicConfig(durability=Durability.FSYNC)


def of(partitions: int, config: TopicConfig = SYNCED) -> TopicConfig:
    return msgspec.structs.replace(config, partitions=partitions)


@dataclass(slots=True)
class Spread:
    """The records of one life: by number, the partition that answered."""

    pair: CellPair
    sent: int = 0
    appended: dict[int, int] = field(default_factory=dict[int, int])
    #: Records that are gone, or perhaps, because a deletion was asked for behind them.
    perhaps_gone: set[int] = field(default_factory=set[int])
    gone: set[int] = field(default_factory=set[int])
    #: The number of partitions that was answered last, and those that were asked for since.
    partitions: int = 0
    perhaps: set[int] = field(default_factory=set[int])

    async def put(self, config: TopicConfig) -> bool:
        self.perhaps.add(config.partitions)
        if await self.pair.ask(0, lambda engine: _put(engine, config)) is None:
            return False
        self.partitions, self.perhaps = config.partitions, set()
        return True

    async def put_until_answered(self, config: TopicConfig) -> None:
        while not await self.put(config):
            await self.pair.pass_time(100)

    async def append(self, partition: int, count: int = 1) -> None:
        for _ in range(count):
            number, self.sent = self.sent, self.sent + 1
            write = partial(_append, address("t", partition), number)
            if await self.pair.ask(partition % 2, write) is not None:
                self.appended[number] = partition

    async def drop(self, *, if_empty: bool = False) -> None:
        before = {*self.appended}
        if not if_empty:
            self.perhaps_gone |= before
        done = await self.pair.ask(0, lambda engine: engine.delete_topic("t", if_empty=if_empty))
        if done is not None:
            self.gone |= before
            self.perhaps_gone |= before
            self.partitions, self.perhaps = 0, set()
        else:
            self.perhaps.add(0)

    async def snapshot(self, cell: int) -> None:
        await self.pair.ask(cell, lambda engine: engine.snapshotter.take())

    async def check(self) -> list[str]:
        """What is wrong, once everything has come to rest."""
        engines = [(await self.pair.up(cell)).engine for cell in range(2)]
        problems: list[str] = []
        root = engines[0].catalog.topics.get("t")
        count = 0 if root is None else root.config.partitions
        if count != self.partitions and count not in self.perhaps:
            problems.append(f"there are {count} partitions, not {self.partitions} or {self.perhaps}")
        found: dict[int, list[int]] = {}
        for cell, engine in enumerate(engines):
            if told := engine.states.items(TO_TELL):
                problems.append(f"cell {cell} still has to tell {told}")
            if engine.catalog.uncounted:
                problems.append(f"cell {cell} does not know whether these count: {[*engine.catalog.uncounted]}")
            wanted = {address("t", each) for each in range(cell, count, 2)}
            there = {topic.name for topic in engine.catalog.by_id.values()}
            if there != wanted or {*engine.catalog.topics} != wanted or len(engine.catalog.by_id) != len(wanted):
                problems.append(f"cell {cell} has {sorted(there)}, not {sorted(wanted)}")
                continue
            for name in wanted:
                topic = engine.topic(name)
                if root is not None and (topic.config != root.config or topic.root_id != root.topic_id):
                    problems.append(f"{name} is not as partition 0: {topic.config} {topic.root_id}")
                seen = await view_of_partition(engine, name)
                problems += seen.problems
                for record in seen.records:
                    found.setdefault(_number(record.body), []).append(topic.partition)
        for number in range(self.sent):
            places = found.get(number, [])
            if len(places) > 1:
                problems.append(f"record {number} is doubled: {places}")
            if number in self.gone and places:
                problems.append(f"record {number} was deleted, and is in {places}")
            if number in self.appended and number not in self.perhaps_gone and places != [self.appended[number]]:
                problems.append(f"record {number} is in {places}, not in {self.appended[number]}")
        return problems


async def _put(engine: Engine, config: TopicConfig) -> TopicState:
    engine.placements.is_on = True
    return (await engine.put_topic("t", config))[0]


async def _append(at: str, number: int, engine: Engine) -> Appended:
    return await engine.append(at, {"n": number}, create=False)


def _number(body: bytes) -> int:
    return int(body[len(b'{"data":{"n":') :].partition(b"}")[0])


Body = Callable[[Spread], Awaitable[None]]
WORKLOADS: dict[str, Body] = {}


def workload(body: Body) -> Body:
    WORKLOADS[body.__name__] = body
    return body


@workload
async def made_and_grown(s: Spread) -> None:
    await s.put(of(3))
    for partition in (0, 1, 2, 1):
        await s.append(partition)
    await s.put(of(4))
    for partition in (3, 1, 3):
        await s.append(partition)


@workload
async def made_until_it_is_there(s: Spread) -> None:
    await s.put_until_answered(of(2))
    await s.append(1, 2)
    await s.snapshot(1)
    await s.append(1)
    await s.put_until_answered(of(4))
    await s.snapshot(0)
    await s.append(3)
    await s.append(2)


@workload
async def changed(s: Spread) -> None:
    await s.put(of(3))
    await s.append(1)
    await s.put(of(3, msgspec.structs.replace(SYNCED, cap_records=100)))
    await s.append(1)
    await s.snapshot(0)
    await s.put(of(3, msgspec.structs.replace(SYNCED, durability=Durability.DISK)))
    await s.append(2)
    await s.put(of(4, msgspec.structs.replace(SYNCED, cap_records=50)))


@workload
async def deleted_and_made_again(s: Spread) -> None:
    await s.put(of(3))
    await s.append(1, 2)
    await s.append(0)
    await s.drop()
    await s.put(of(2))
    await s.append(1)
    await s.append(0)
    await s.drop()
    await s.snapshot(0)
    await s.snapshot(1)
    await s.put(of(4))
    await s.append(3)


@workload
async def deleted_if_empty(s: Spread) -> None:
    await s.put_until_answered(of(3))
    await s.append(1)
    await s.drop(if_empty=True)
    await s.append(1)
    await s.append(2)


@workload
async def grown_from_one_cell(s: Spread) -> None:
    await s.put(of(1))
    await s.append(0, 2)
    await s.put(of(4))
    await s.append(0)
    await s.append(3)
    await s.append(1)
    await s.snapshot(1)
    await s.drop()
