"""What the sweep of three cells crashes: routers that are made, changed and deleted by cell 0, between any cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from storage import Durability, Engine, TopicConfig
from storage.routers.graph import Phase
from storage.state.routers import Definition
from tests.support.cell_pair import CellPair
from tests.support.crash_view import view

FSYNC = TopicConfig(durability=Durability.FSYNC)
#: The home cells of the topics.
HOMES = {"a": 0, "b": 1, "c": 2, "a2": 0, "b2": 1, "c2": 2}
CELLS = 3
TRIES = 4


@dataclass(slots=True)
class Asked:
    """What was asked of cell 0 in one life, and what it answered."""

    pair: CellPair
    #: By router: what may be there in the end; None: nothing.
    may_be: dict[str, list[Definition | None]] = field(default_factory=dict[str, list[Definition | None]])
    #: Topics that exist, by name, as often as they were made.
    topics: set[str] = field(default_factory=set[str])

    async def put(self, name: str) -> None:
        while await self.pair.ask(HOMES[name], lambda engine: engine.put_topic(name, FSYNC)) is None:
            await self.pair.pass_time(10)
        self.topics.add(name)

    async def route(self, name: str, source: str, dest: str, **more: Any) -> None:
        """Until it is answered, or often enough."""
        definition = Definition(source=source, dest=dest, **more)
        done = await self._ask(lambda engine: engine.routers.put(name, definition))
        before = self.may_be.get(name, [None])
        self.may_be[name] = [definition] if done is not None else [*before, definition]

    async def unroute(self, name: str) -> None:
        done = await self._ask(lambda engine: engine.routers.delete(name))
        self.may_be[name] = [None] if done is not None else [*self.may_be.get(name, []), None]

    async def drop(self, topic: str, cell: int) -> None:
        while await self.pair.ask(cell, lambda engine: engine.delete_topic(topic)) is None:
            if topic not in (await self.pair.up(cell)).engine.catalog.topics:
                break
        self.topics.discard(topic)
        for name, found in self.may_be.items():
            if any(each is not None and topic in (each.source, each.dest) for each in found):
                self.may_be[name] = [None]

    async def snapshot(self, cell: int) -> None:
        await self.pair.ask(cell, lambda engine: engine.snapshotter.take())

    async def _ask(self, operation: Callable[[Engine], Awaitable[Any]]) -> Any:
        for _ in range(TRIES):
            done = await self.pair.ask(0, operation)
            if done is not None:
                return done
            await self.pair.pass_time(10)
        return None

    async def check(self) -> list[str]:
        """What is wrong, once everything has come to rest."""
        problems: list[str] = []
        running: dict[str, tuple[int, int, Definition]] = {}
        where: Counter[str] = Counter()
        owners: dict[str, set[int]] = {}
        for cell in range(CELLS):
            engine = (await self.pair.up(cell)).engine
            for name, topic in (await view(engine)).items():
                problems += topic.problems
                where[name] += 1
            for router in engine.catalog.routes.by_id.values():
                if router.name in running:
                    problems.append(f"router {router.name} is there twice")
                running[router.name] = cell, router.router_id, router.definition
                if router.blocked is not None:
                    problems.append(f"router {router.name} is blocked: {router.blocked}")
        for name, count in where.items():
            if count > 1:
                problems.append(f"topic {name} is in {count} cells")
        for name in where:
            # Its home cell and its own cell say the same.
            home = (await self.pair.up(HOMES.get(name, 0))).engine
            owners[name] = {home.placing.owner(name)}
            for cell in range(CELLS):
                engine = (await self.pair.up(cell)).engine
                if name in engine.catalog.topics:
                    owners[name] |= {cell, engine.placing.owner(name)}
            if len(owners[name]) > 1:
                problems.append(f"topic {name} has several owners: {owners[name]}")
        problems += [f"topic {name} is gone" for name in self.topics if name not in where]
        graph = (await self.pair.up(0)).engine.routers.graph
        entries = {name: (entry.cell, entry.router_id, entry.definition) for name, entry in graph.entries.items()}
        if entries != running or any(entry.phase is not Phase.MADE for entry in graph.entries.values()):
            problems.append(f"the graph has {graph.entries}, and there are {running}")
        for name, allowed in self.may_be.items():
            found = running[name][2] if name in running else None
            if found not in allowed:
                problems.append(f"router {name} is {found}, and may be {allowed}")
        problems += [f"router {name} was never made" for name in running if name not in self.may_be]
        return problems


Body = Callable[[Asked], Awaitable[None]]
WORKLOADS: dict[str, Body] = {}


def workload(body: Body) -> Body:
    WORKLOADS[body.__name__] = body
    return body


@workload
async def made_and_deleted(life: Asked) -> None:
    await life.put("b")
    await life.put("c")
    await life.route("r", "b", "c")
    await life.snapshot(0)
    await life.unroute("r")
    await life.route("r", "c", "b")


@workload
async def made_beside_the_source(life: Asked) -> None:
    await life.put("b")
    await life.route("r", "b", "c")
    await life.snapshot(2)
    await life.route("s", "b", "a")
    await life.unroute("r")


@workload
async def changed(life: Asked) -> None:
    await life.put("c")
    await life.put("c2")
    await life.route("r", "b", "c")
    await life.route("r", "b", "c", preserve_tag=False)
    await life.snapshot(1)
    await life.route("s", "c", "c2")
    await life.route("s", "c", "c2", filter=["tag", "Eq", "x"])


@workload
async def ended_with_their_topics(life: Asked) -> None:
    await life.put("b")
    await life.put("c")
    await life.put("b2")
    await life.route("r", "b", "c")
    await life.route("s", "c", "b2")
    await life.drop("c", 2)
    await life.put("c")
    await life.route("r", "b", "c")
    await life.drop("b", 1)


@workload
async def made_again_over_a_new_source(life: Asked) -> None:
    await life.put("b")
    await life.put("c")
    await life.route("r", "b", "c")
    await life.drop("b", 1)
    await life.put("b")
    await life.route("r", "b", "c")
    await life.route("back", "c", "a2")
