"""A stop ends a router in any state; a caller that leaves does not."""

from __future__ import annotations

import asyncio

from storage import Discard, Durability, TopicConfig
from storage.state.routers.router import Definition, Start
from tests.unit.storage.machine import Machine
from tests.unit.storage.routers.routed import FSYNC, add, datas, route, routed, turns


async def test_a_blocked_router_write_does_not_delay_a_stop(machine: Machine) -> None:
    engine = await routed(machine)
    dest = engine.state("b").topic_id
    engine.changing[dest] = engine.loop.create_future()
    await add(engine, 1)
    await turns()
    closing = asyncio.create_task(machine.close())
    await turns()
    engine.changing.pop(dest).set_result(None)
    await turns()
    assert closing.done()
    await closing


async def test_a_blocked_router_does_not_hold_up_a_stop(machine: Machine) -> None:
    engine = await routed(machine)
    await engine.put_topic("b", TopicConfig(durability=Durability.FSYNC, discard=Discard.REJECT, cap_records=1))
    await add(engine, 1, 2)
    await turns()
    engine = await machine.restart()
    await engine.put_topic("b", FSYNC)
    await machine.clock.advance(2000)
    assert await datas(engine) == ["1", "2"]


async def test_a_put_with_a_cancelled_caller_still_creates_and_starts_the_router(machine: Machine) -> None:
    engine = await machine.start()
    await add(engine, 1)
    definition = Definition(source="a", dest="b", start=Start.EARLIEST)
    putting = asyncio.create_task(engine.routers.put("r", definition))
    await asyncio.sleep(0)
    putting.cancel()
    await turns()
    assert await datas(engine) == ["1"]


async def test_a_router_position_without_a_copy_is_written_after_a_while_and_at_a_stop(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await route(engine, filter=["tag", "Eq", "x"])
    router = engine.catalog.routes.by_name["r"]
    await add(engine, 1, 2)
    await turns()
    assert (router.position, router.cursor) == (2, 0)
    await machine.clock.advance(1000)
    assert (router.position, router.cursor) == (2, 2)
    await add(engine, 3)
    await turns()
    engine = await machine.restart()
    assert engine.catalog.routes.by_name["r"].cursor == 3
