"""Writes to a source wait for a router that is far behind: so its lag has a limit, and no write waits for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from storage import Appended, Discard, Durability, Engine, TopicConfig
from storage.log import append as append_module
from storage.routers import collect_routers
from storage.state.routers import Router
from storage.state.routers import router as router_module
from tests.unit.storage.machine import Machine, outcome, record
from tests.unit.storage.routers.routed import add, datas, route, routed, turns

LIMIT = 10
PATIENCE_S = 20


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "MAX_LAG", LIMIT)
    monkeypatch.setattr(append_module, "MAX_BEHIND_NS", 1000 * PATIENCE_S * 1_000_000)


class Brake:
    """Holds every read of a router until it is released."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    def release(self) -> None:
        self.released.set()


@asynccontextmanager
async def braked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Brake]:
    """Routers cannot read."""
    brake, windows = Brake(), engine.routers.forwarding.windows
    read = windows.read

    async def held(*arguments: Any, **more: Any) -> Any:
        await brake.released.wait()
        return await read(*arguments, **more)

    monkeypatch.setattr(windows, "read", held)
    try:
        yield brake
    finally:
        brake.release()
        await turns()


def router_of(engine: Engine, name: str = "r") -> Router:
    return engine.catalog.routes.by_name[name]


def writing(engine: Engine, count: int = 1, to: str = "a") -> asyncio.Task[Any]:
    return asyncio.create_task(outcome(engine.append(to, [record(n) for n in range(count)])))


async def far_behind(engine: Engine) -> None:
    """Append more records than the router may be behind."""
    await add(engine, 0)
    await turns()
    await add(engine, *range(LIMIT + 1))
    await turns()


async def test_a_write_waits_until_the_router_is_no_longer_far_behind(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch) as brake:
        await far_behind(engine)
        write = writing(engine)
        await turns()
        assert not write.done()
        assert engine.routers.state("r").lag == LIMIT + 2
        assert engine.catalog.routes.held_back == 1
        brake.release()
        assert (await write).first_seq == LIMIT + 3
    assert engine.routers.state("r").lag == 0
    assert len(await datas(engine)) == LIMIT + 3
    assert not router_of(engine).waiters


async def test_many_writes_at_once_do_not_go_beyond_the_limit(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in flight count: the limit is compared with the assigned seqs."""
    engine = await routed(machine)
    async with braked(engine, monkeypatch) as brake:
        await add(engine, 0)
        await turns()
        writes = [writing(engine) for _ in range(5 * LIMIT)]
        await turns()
        assert engine.catalog.topics["a"].log.assigned_head == LIMIT + 2
        brake.release()
        assert sorted([(await each).first_seq for each in writes]) == [*range(2, 5 * LIMIT + 2)]
    assert len(await datas(engine)) == 5 * LIMIT + 1


async def test_a_write_that_has_waited_long_enough_continues(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_module, "MAX_BEHIND_NS", 20_000_000)
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        appended = await writing(engine)
        assert isinstance(appended, Appended)
        assert appended.throttle_wait_ms == 20
        assert engine.routers.state("r").lag == LIMIT + 3
        assert not router_of(engine).waiters


async def test_a_write_without_a_task_is_not_enqueued_meanwhile(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch) as brake:
        await far_behind(engine)
        results: list[Any] = []
        assert not engine.try_append("a", [record(1)], results.append)
        brake.release()
        await turns()
        assert engine.try_append("a", [record(1)], results.append)
        await turns()
    assert [each.first_seq for each in results] == [LIMIT + 3]


async def test_topics_without_routers_do_not_wait(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        for name in ("b", "c"):
            write = writing(engine, to=name)
            await turns()
            assert write.done()
    assert engine.catalog.routes.held_back == 0


async def test_a_blocked_router_holds_no_write_back(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", TopicConfig(durability=Durability.FSYNC))
    full = TopicConfig(durability=Durability.FSYNC, cap_records=1, discard=Discard.REJECT)
    await engine.put_topic("b", full)
    await route(engine)
    await add(engine, 1)
    for number in range(3 * LIMIT):
        write = writing(engine)
        await turns()
        assert write.done(), number
    assert engine.routers.state("r").blocked == "topic_full"
    assert engine.routers.state("r").lag > LIMIT


async def test_a_router_that_becomes_blocked_ends_the_waits(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        write = writing(engine)
        await turns()
        engine.routers._forwarders[router_of(engine).router_id].block("unavailable")
        assert isinstance(await write, Appended)


async def test_deleting_the_router_ends_the_waits(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        write = writing(engine)
        await turns()
        assert not write.done()
        await engine.routers.delete("r")
        assert isinstance(await write, Appended)


async def test_deleting_the_source_refuses_the_writes_that_wait(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        write = asyncio.create_task(outcome(engine.append("a", [record(1)], create=False)))
        await turns()
        await engine.delete_topic("a")
        assert (await write).code == "topic_not_found"


async def test_a_stop_does_not_wait_for_routers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        write = writing(engine)
        await turns()
        await engine.routers.stop()
        assert isinstance(await write, Appended)


async def test_a_router_that_begins_far_behind_does_not_stop_the_writes(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may get as much further behind as any router."""
    engine = await machine.start()
    await add(engine, *range(5 * LIMIT))
    async with braked(engine, monkeypatch) as brake:
        await route(engine, start="earliest")
        await turns()
        await add(engine, *range(LIMIT))
        await add(engine, 1)
        write = writing(engine)
        await turns()
        assert not write.done()
        assert engine.routers.state("r").lag == 6 * LIMIT + 1
        brake.release()
        await write
    assert len(await datas(engine)) == 6 * LIMIT + 2


def test_writes_get_half_of_what_a_router_far_behind_copies() -> None:
    definition = router_module.Definition(source="a", dest="b")
    router = Router(1, "r", definition, source_id=2, dest_id=3, cursor=0)
    assert not router.holds_back(1_000_000), "it does not copy yet"
    router.begin(head=1000)
    assert not router.holds_back(1000 + LIMIT)
    assert router.holds_back(1000 + LIMIT + 1)
    router.move(100)
    assert not router.holds_back(1050 + LIMIT)
    assert router.holds_back(1050 + LIMIT + 1)
    router.move(100_000)
    assert not router.holds_back(100_000 + LIMIT)
    assert router.holds_back(100_000 + LIMIT + 1), "the limit never falls below the constant"


async def test_a_chain_is_as_fast_as_its_slowest_router(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies wait like other writes: else the last router of a chain could get behind without a limit."""
    engine = await machine.start()
    for name in "abc":
        await engine.put_topic(name, TopicConfig(durability=Durability.FSYNC))
    await route(engine)
    await route(engine, "last", "b", "c")
    windows, brake = engine.routers.forwarding.windows, asyncio.Event()
    read = windows.read

    async def held(source: Any, *arguments: Any, **more: Any) -> Any:
        if source.name == "b":
            await brake.wait()
        return await read(source, *arguments, **more)

    monkeypatch.setattr(windows, "read", held)
    for number in range(LIMIT + 1):
        await add(engine, number)
        await turns()
    await add(engine, "x")
    await turns()
    before = engine.routers.state("r").lag
    await add(engine, "y")
    await turns()
    assert (before, engine.routers.state("r").lag) == (0, 1)
    brake.set()
    assert len(await datas(engine, "c")) == LIMIT + 3


async def test_routers_of_a_cycle_do_not_wait_for_each_other(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await machine.start()
    for name in "ab":
        await engine.put_topic(name, TopicConfig(durability=Durability.FSYNC))
    await route(engine)
    await route(engine, "back", "b", "a", allow_cycle=True)
    async with braked(engine, monkeypatch) as brake:
        for _ in range(LIMIT + 1):
            await add(engine, 1)
            await add(engine, 2, to="b")
        writes = [writing(engine, LIMIT, to) for to in "abab"]
        await turns()
        brake.release()
        for each in writes:
            assert isinstance(await each, Appended)
    for _ in range(50):
        await turns()
    assert (engine.routers.state("r").lag, engine.routers.state("back").lag) == (0, 0)


async def test_the_metric_counts_waits(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await routed(machine)
    async with braked(engine, monkeypatch):
        await far_behind(engine)
        write = writing(engine)
        await turns()
        families = {family.name: family for family in collect_routers(engine.logs, engine.routers)}
        assert [each.value for each in families["topics_router_write_waits"].samples] == [1]
        write.cancel()
