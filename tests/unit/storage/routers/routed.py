"""Topics and routers on a simulated machine: shared helpers of the router tests."""

from __future__ import annotations

import asyncio
from typing import Any

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.records.values import StoredRecord, Tombstone
from storage.state.routers.router import Definition
from tests.unit.storage.machine import Machine, record

FSYNC = TopicConfig(durability=Durability.FSYNC)
#: Turns of the loop within which everything is done that can be done at once.
MANY_TURNS = 200


async def route(engine: Engine, name: str = "r", source: str = "a", dest: str = "b", **more: Any) -> None:
    await engine.routers.put(name, Definition(source=source, dest=dest, **more))


async def routed(machine: Machine, config: TopicConfig = FSYNC, **more: Any) -> Engine:
    """An engine with a router from `a` to `b`. Both topics have this config."""
    engine = await machine.start()
    for name in "ab":
        await engine.put_topic(name, config)
    await route(engine, **more)
    return engine


async def add(engine: Engine, *datas: Any, to: str = "a", **more: Any) -> None:
    await engine.append(to, [record(data, **more) for data in datas])


async def turns(count: int = MANY_TURNS) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def stored(engine: Engine, name: str = "b") -> list[StoredRecord]:
    await turns()
    result = await engine.read(name, ReadQuery(limit=1000))
    return result.records


async def bodies(engine: Engine, name: str = "b") -> list[bytes]:
    return [each.body for each in await stored(engine, name)]


async def datas(engine: Engine, name: str = "b") -> list[Any]:
    """Data of all records from the beginning, including those after losses."""
    return [item for item in await everything(engine, name) if not isinstance(item, Tombstone)]


async def everything(engine: Engine, name: str = "b") -> list[Any]:
    """Everything a reader gets from the beginning: data as text, with tombstones between."""
    await turns()
    found: list[Any] = []
    at = 0
    while True:
        result = await engine.read(name, ReadQuery(from_seq=at, limit=1000))
        if result.tombstone is not None:
            found.append(result.tombstone)
        found += [each.body[8:-1].decode() for each in result.records]
        if result.next_from_seq == result.head_seq:
            return found
        at = result.next_from_seq
