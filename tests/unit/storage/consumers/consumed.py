"""Topics with consumers on a simulated machine: shared helpers of the consumer tests."""

from __future__ import annotations

import asyncio
from typing import Any

from storage import Durability, Engine, ReadQuery, TopicConfig
from storage.state.consumers.consumer import Consumer
from storage.state.consumers.values import Consistency, ConsumerConfig, ConsumerRead
from tests.unit.storage.machine import Machine, record

DISK = TopicConfig(durability=Durability.DISK)
FSYNC = TopicConfig(durability=Durability.FSYNC)
STRICT = ConsumerConfig(consistency=Consistency.STRICTLY_AT_ONCE)


def every(count: int) -> ConsumerConfig:
    """A consumer config: at least once, with up to this many records repeated."""
    return ConsumerConfig(persist_every=count)


async def consumed(
    machine: Machine, count: int = 10, config: ConsumerConfig | None = None, topic: TopicConfig = DISK, **options: Any
) -> Engine:
    """An engine with a topic `a` with this many records and a consumer `c`."""
    engine = await machine.start(**options)
    await engine.put_topic("a", topic)
    if count:
        await add(engine, count)
    await engine.consumers.put("a", "c", config)
    return engine


async def add(engine: Engine, count: int = 1, **more: Any) -> None:
    await engine.append("a", [record(0, **more) for _ in range(count)])


async def answer(engine: Engine, limit: int = 1000, name: str = "c", **more: Any) -> ConsumerRead:
    query = ReadQuery(limit=limit, exclude_nodes=more.pop("nodes", frozenset()))
    return await engine.consumers.read("a", name, query, **more)


async def take(engine: Engine, limit: int = 1000, name: str = "c", **more: Any) -> list[int]:
    """The seqs that one read returns."""
    return [each.seq for each in (await answer(engine, limit, name, **more)).result.records]


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def known(engine: Engine, name: str = "c") -> Consumer:
    """The state behind a name."""
    return engine.catalog.topics["a"].log.consumers.by_name[name]


def durable(engine: Engine, name: str = "c") -> int:
    return engine.consumers.state("a", name).durable_seq


def cursor(engine: Engine, name: str = "c") -> int:
    return engine.consumers.state("a", name).cursor_seq
