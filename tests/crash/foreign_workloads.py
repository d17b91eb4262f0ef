"""The workloads of the sweep over two cells: routers from topics of cell 0 to topics of cell 1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from storage import Discard, Durability, NewRecord, Options, TopicConfig
from storage.errors import RouterNotFound
from storage.state.routers import Definition, Start
from tests.crash.move_workloads import number_of
from tests.crash.workloads import SMALL
from tests.support.cell_pair import CellPair
from tests.support.crash_view import view

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
OWNERS = {"a": 0, "b": 1, "c": 0, "d": 1}
SEGMENTS: Options = msgspec.structs.replace(SMALL, segment_max_events=4, checkpoint_records=1)


@dataclass(slots=True)
class Routed:
    """The records of one workload, by number, and the routers that were requested."""

    pair: CellPair
    sent: dict[int, tuple[str, str | None]] = field(default_factory=dict[int, tuple[str, str | None]])
    appended: set[int] = field(default_factory=set[int])
    routers: dict[str, Definition] = field(default_factory=dict[str, Definition])
    #: Routers that must be gone at the end.
    ended: set[str] = field(default_factory=set[str])
    #: The first record that a router certainly copies.
    begins: dict[str, int] = field(default_factory=dict[str, int])
    #: Topics that were made.
    made: set[str] = field(default_factory=set[str])
    #: Whether dest may refuse or lose records.
    bounded: bool = False

    async def put(self, name: str, config: TopicConfig = FSYNC) -> None:
        self.made.add(name)
        while await self.pair.ask(OWNERS[name], lambda engine: engine.put_topic(name, config)) is None:
            pass

    async def route(self, name: str, source: str, dest: str, **more: Any) -> None:
        if dest not in self.made:
            await self.put(dest)  # in its cell: a router would make it beside its source
        definition = Definition(source=source, dest=dest, **more)
        self.begins[name] = 0 if definition.start is Start.EARLIEST else len(self.sent)
        while await self.pair.ask(0, lambda engine: engine.routers.put(name, definition)) is None:
            await self.pair.pass_time(10)  # the other cell may have to start first
            self.begins[name] = 0 if definition.start is Start.EARLIEST else len(self.sent)
        self.routers[name] = definition

    async def append(self, topic: str, count: int = 1, tag: str | None = None) -> None:
        numbers = [*range(len(self.sent), len(self.sent) + count)]
        self.sent |= dict.fromkeys(numbers, (topic, tag))
        records = [NewRecord(data=msgspec.Raw(b'{"n":%d}' % number), tag=tag) for number in numbers]
        if await self.pair.ask(OWNERS[topic], lambda engine: engine.append(topic, records)) is not None:
            self.appended |= {*numbers}

    async def drop(self, topic: str) -> None:
        while await self.pair.ask(OWNERS[topic], lambda engine: engine.delete_topic(topic)) is None:
            if topic not in (await self.pair.up(OWNERS[topic])).engine.catalog.topics:
                break
        self.appended -= {number for number, sent in self.sent.items() if sent[0] == topic}
        self.ended |= {name for name, each in self.routers.items() if topic in (each.source, each.dest)}

    async def snapshot(self, cell: int) -> None:
        await self.pair.ask(cell, lambda engine: engine.snapshotter.take())

    async def flush(self, cell: int) -> None:
        await self.pair.ask(cell, lambda engine: engine.segment_worker.flush_all())

    async def read_your_writes(self, source: str, dest: str) -> None:
        """A read of the destination that begins now finds the answered records, unless a router is blocked."""
        await self.append(source)
        number = len(self.sent) - 1
        process = await self.pair.up(OWNERS[dest])
        waited = await self.pair.ask(OWNERS[dest], lambda engine: engine.routers.caught_up(dest))
        if waited is None or waited.blocked or number not in self.appended or process.disk.crashed:
            return
        if self.pair.processes[OWNERS[source]] is None or waited.wait_ms >= 900:
            return
        found = (await view(process.engine))[dest]
        assert number in [number_of(record.body) for record in found.records], f"{number} is not there: {waited}"

    async def check(self) -> list[str]:
        """What is wrong, once all work is done."""
        problems: list[str] = []
        topics: dict[str, list[int]] = {}
        lost: set[str] = set()
        for cell in range(2):
            engine = (await self.pair.up(cell)).engine
            for name, topic in (await view(engine)).items():
                problems += topic.problems
                topics[name] = [number_of(record.body) for record in topic.records]
                if topic.tombstones:
                    lost.add(name)
        for name, numbers in topics.items():
            if len(numbers) != len(set(numbers)):
                problems.append(f"{name} holds something twice: {numbers}")
        for number in self.appended:
            name = self.sent[number][0]
            if name in topics and name not in lost and number not in topics[name]:
                problems.append(f"record {number} of {name} is lost")
        for name, definition in self.routers.items():
            problems += await self._route(name, definition, topics)
        return problems

    async def _route(self, name: str, definition: Definition, topics: dict[str, list[int]]) -> list[str]:
        engine = (await self.pair.up(OWNERS[definition.dest])).engine
        try:
            state = engine.routers.state(name)
        except RouterNotFound:
            return [] if name in self.ended else [f"router {name} is gone"]
        if name in self.ended:
            return [f"router {name} is there, and its source is not"]
        if state.blocked is not None and not self.bounded:
            return [f"router {name} is blocked: {state}"]
        match = definition.match
        wanted = [
            number
            for number in topics[definition.source]
            if number >= self.begins[name] and (match is None or match.matches((self.sent[number][1] or "").encode()))
        ]
        found = [number for number in topics[definition.dest] if number in set(wanted)]
        if found != wanted and not self.bounded:
            return [f"router {name}: {found} came, of {wanted}"]
        return []


Body = Callable[[Routed], Awaitable[None]]
WORKLOADS: dict[str, Body] = {}


def workload(body: Body) -> Body:
    WORKLOADS[body.__name__] = body
    return body


@workload
async def routed(life: Routed) -> None:
    await life.put("a")
    await life.append("a", 2)
    await life.route("r", "a", "b", start=Start.EARLIEST)
    await life.append("a", 3)
    await life.pair.settle()
    await life.append("a", 2, tag="x")
    await life.snapshot(1)
    await life.append("b", 1)
    await life.append("a", 2)
    await life.snapshot(0)


@workload
async def from_disk_to_disk(life: Routed) -> None:
    await life.put("a", DISK)
    await life.put("b", DISK)
    await life.route("r", "a", "b")
    await life.append("a", 3)
    await life.pair.pass_time(200)
    await life.append("a", 3)


@workload
async def filtered_by_several(life: Routed) -> None:
    await life.put("a")
    await life.route("r", "a", "b", filter=["tag", "Eq", "x"])
    await life.route("s", "a", "d", filter=["tag", "Glob", "y*"])
    for tag in ("y", "x", None, "yy", "x"):
        await life.append("a", 2, tag=tag)
    await life.pair.pass_time(2100)
    await life.append("a", 2, tag="y")
    await life.snapshot(1)


@workload
async def there_and_back(life: Routed) -> None:
    await life.put("a", DISK)
    await life.put("b", DISK)
    await life.route("ab", "a", "b")
    await life.route("bc", "b", "c")
    await life.route("cd", "c", "d")
    await life.append("a", 2)
    await life.pair.pass_time(100)
    await life.append("a", 2)


@workload
async def out_of_segments(life: Routed) -> None:
    await life.put("a")
    await life.append("a", 6)
    await life.flush(0)
    await life.append("a", 3)
    await life.route("r", "a", "b", start=Start.EARLIEST)
    await life.pair.settle(200)
    await life.flush(1)
    await life.append("a", 2)


@workload
async def the_source_is_deleted_and_made_again(life: Routed) -> None:
    await life.put("a")
    await life.route("r", "a", "b")
    await life.append("a", 3)
    await life.drop("a")
    await life.put("a")
    await life.append("a", 2)


@workload
async def read_behind_a_router(life: Routed) -> None:
    await life.put("a")
    await life.route("r", "a", "b")
    await life.read_your_writes("a", "b")
    await life.append("a", 2)
    await life.read_your_writes("a", "b")


@workload
async def dest_is_full_for_a_while(life: Routed) -> None:
    await life.put("a")
    await life.put("b", msgspec.structs.replace(FSYNC, cap_records=2, discard=Discard.REJECT))
    await life.route("r", "a", "b")
    await life.append("a", 4)
    await life.pair.pass_time(500)
    await life.put("b")
    await life.append("a", 1)
