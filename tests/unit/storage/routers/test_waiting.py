"""A reader of the destination gets every record that the sources had before the read began."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from storage import Discard, Durability, ReadQuery, TopicConfig
from storage.routers.sources import ForeignSources
from storage.routers.waiting import Waiting
from storage.state.routers.router import MAX_HOPS, Definition, Router
from storage.state.routers.routes import Routes
from tests.unit.storage.machine import Machine
from tests.unit.storage.routers.routed import add, route, routed, turns


async def test_a_read_of_a_topic_without_routers_does_not_wait(machine: Machine) -> None:
    engine = await routed(machine)
    assert await engine.routers.caught_up("a") is None
    assert await engine.routers.caught_up("nowhere") is None


async def test_a_read_after_caught_up_has_all_earlier_records_of_the_sources(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, "bc", "b", "c")
    await route(engine, "dc", "d", "c")
    await add(engine, 1, to="d")
    await add(engine, 2)
    waited = await engine.routers.caught_up("c")
    assert waited is not None
    assert waited.blocked == []
    found = await engine.read("c", ReadQuery())
    assert sorted(each.body for each in found.records) == [b'{"data":1}', b'{"data":2}']


async def test_a_blocked_router_is_named_and_not_waited_for(machine: Machine) -> None:
    engine = await routed(machine)
    await engine.put_topic("b", TopicConfig(durability=Durability.FSYNC, discard=Discard.REJECT, cap_records=1))
    await route(engine, "bc", "b", "c")
    await add(engine, 1, 2)
    waiting = asyncio.create_task(engine.routers.caught_up("c"))
    await turns()
    assert waiting.done()
    waited = waiting.result()
    assert waited is not None
    assert waited.blocked == ["r"]
    assert (await engine.routers.caught_up("c")) is not None


async def test_deleting_a_router_ends_waits_for_its_copies(machine: Machine) -> None:
    engine = await routed(machine)
    await turns()
    router = engine.catalog.routes.by_name["r"]
    engine.routers._forwarders[router.router_id]._stopped = True  # it hangs
    await add(engine, 1)
    waiting = asyncio.create_task(engine.routers.caught_up("b"))
    await turns()
    assert not waiting.done()
    await engine.routers.delete("r")
    await turns()
    assert waiting.done()
    assert not router.waiters


async def test_a_wait_for_routers_ends_after_a_second(machine: Machine) -> None:
    engine = await routed(machine)
    router = engine.catalog.routes.by_name["r"]
    await turns()
    engine.routers._forwarders[router.router_id]._stopped = True
    await add(engine, 1)
    waited = await engine.routers.caught_up("b")
    assert waited is not None
    assert 900 < waited.wait_ms < 10_000
    assert waited.blocked == []
    assert not router.waiters


async def test_a_cycle_is_waited_for_once(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, "back", "b", "a", allow_cycle=True)
    await add(engine, 1)
    waited = await engine.routers.caught_up("a")
    assert waited is not None
    assert engine.state("b").head_seq >= 1


def waiting_of(catalog: Any) -> Waiting:
    logs: Any = SimpleNamespace(catalog=catalog)
    return Waiting(logs, ForeignSources(logs, lambda topic_id, error: None))


async def test_a_chain_is_waited_for_up_to_max_hops() -> None:
    routes = Routes()
    for number in range(1, 3001):
        definition = Definition(source=f"t{number}", dest=f"t{number + 1}")
        routes.add(Router(number, f"r{number}", definition, number, number + 1, 0))
    topics = {number: SimpleNamespace(log=SimpleNamespace(head=1)) for number in range(1, 3002)}
    catalog: Any = SimpleNamespace(routes=routes, by_id=topics, is_foreign=lambda topic_id: False)
    waiting = asyncio.create_task(waiting_of(catalog).caught_up(3001))
    for number in range(3001 - MAX_HOPS, 3001):
        await asyncio.sleep(0)
        assert not waiting.done(), number
        routes.by_id[number].move(1)
    assert (await waiting).blocked == []
