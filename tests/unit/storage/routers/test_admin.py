"""Making, changing and deleting routers, and the topics that they need."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from storage import Engine
from storage.errors import (
    InvalidRequest,
    LimitReached,
    RouterCycle,
    StorageFailed,
    StorageFull,
    TopicIncompatible,
    TopicNotFound,
)
from storage.format.control import RouterCreate
from storage.log.encode import EncodedUnit
from storage.log.submission import ControlStep
from storage.state.log import Log
from storage.state.routers.router import Definition, Guarantee, Start
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, errors_among, outcome, record
from tests.unit.storage.routers.routed import FSYNC, add, datas, route, routed, turns


def names(engine: Engine) -> list[str]:
    return [each.topic for each in engine.topics()]


async def test_a_router_exists_after_a_power_cut(machine: Machine) -> None:
    engine = await machine.start()
    definition = Definition(
        source="a",
        dest="b",
        filter=["tag", "Eq", "x"],
        preserve_node=False,
        guarantee=Guarantee.EXACTLY_ONCE,
        start=Start.EARLIEST,
    )
    _, created = await engine.routers.put("r", definition)
    assert created
    assert names(engine) == ["a", "b"]
    engine = await machine.cut_power(Loss.DROP)
    assert engine.routers.state("r").definition == definition
    assert (await engine.routers.put("r", definition))[1] is False


async def test_a_new_definition_replaces_the_previous_definition(machine: Machine) -> None:
    engine = await routed(machine)
    await add(engine, 1)
    await turns()
    await route(engine, filter=["tag", "Eq", "x"])
    await add(engine, 2)
    await add(engine, 3, tag="x")
    assert await datas(engine) == ["1", "3"]
    engine = await machine.kill()
    await add(engine, 4)
    await add(engine, 5, tag="x")
    assert await datas(engine) == ["1", "3", "5"]


@pytest.mark.parametrize("name", ["", ">", "a b", "x" * 256, "-a"])
async def test_invalid_router_names_are_refused(machine: Machine, name: str) -> None:
    engine = await machine.start()
    with pytest.raises(InvalidRequest):
        await route(engine, name)
    with pytest.raises(InvalidRequest):
        engine.routers.state(name)
    with pytest.raises(InvalidRequest):
        await engine.routers.delete(name)
    await route(engine, "a>b")
    assert names(engine) == ["a", "b"]


@pytest.mark.parametrize(("source", "dest", "field"), [("a", "a", "dest"), ("?", "b", "source"), ("a", "", "dest")])
async def test_an_invalid_source_or_destination_is_refused(
    machine: Machine, source: str, dest: str, field: str
) -> None:
    engine = await machine.start()
    with pytest.raises(InvalidRequest) as caught:
        await route(engine, source=source, dest=dest)
    assert caught.value.detail["field"] == field
    assert names(engine) == []


async def test_a_missing_destination_is_created_only_on_request(machine: Machine) -> None:
    engine = await machine.start()
    with pytest.raises(TopicNotFound):
        await route(engine, create_dest=False)
    assert names(engine) == []
    await engine.put_topic("b")
    await route(engine, create_dest=False)
    assert names(engine) == ["a", "b"]


async def test_a_cycle_is_refused_and_named(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, "bc", "b", "c")
    with pytest.raises(RouterCycle) as caught:
        await route(engine, "ca", "c", "a")
    assert caught.value.detail["cycle"] == ["c", "a", "b", "c"]
    with pytest.raises(RouterCycle):
        await route(engine, "ba", "b", "a")
    await route(engine, "ca", "c", "a", allow_cycle=True)
    await route(engine, "ca", "c", "a", allow_cycle=True, preserve_tag=False)
    await route(engine, "ab2", "a", "d")
    with pytest.raises(RouterCycle):
        await route(engine, "ca", "c", "a")
    assert len(engine.routers.page()) == 4


async def test_replacing_a_router_is_not_refused_as_a_cycle(machine: Machine) -> None:
    engine = await routed(machine)
    await route(engine, preserve_node=False)


async def test_source_and_destination_of_a_router_cannot_change(machine: Machine) -> None:
    engine = await routed(machine)
    for more in ({"source": "c"}, {"dest": "c"}):
        with pytest.raises(TopicIncompatible) as caught:
            await route(engine, **more)
        assert caught.value.detail["field"] in more
    assert names(engine) == ["a", "b"]


async def test_the_router_limit_holds_for_concurrent_puts(machine: Machine) -> None:
    engine = await machine.start(max_routers=2)
    outcomes = await asyncio.gather(*(outcome(route(engine, f"r{n}", "a", f"b{n}")) for n in range(4)))
    refused = errors_among(outcomes)
    assert len(refused) == 2
    assert all(isinstance(each, LimitReached) and each.detail == {"limit": "max_routers", "max": 2} for each in refused)
    assert names(engine) == ["a", "b0", "b1"]
    await route(engine, "r1", "a", "b1", preserve_tag=False)


async def test_topics_for_which_there_is_no_room_are_not_begun(machine: Machine) -> None:
    engine = await machine.start(max_topics=1)
    with pytest.raises(LimitReached):
        await route(engine)
    assert names(engine) == []


async def test_a_router_that_could_not_be_written_leaves_no_topics(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await machine.start()
    submit = engine.submit_controls

    def refuse_routers(log: Log, encoded: EncodedUnit, **more: Any) -> asyncio.Future[int | None]:
        step = encoded.unit.steps[0]
        if isinstance(step, ControlStep) and isinstance(step.value, RouterCreate):
            raise StorageFull
        return submit(log, encoded, **more)

    monkeypatch.setattr(engine.logs, "submit_controls", refuse_routers)
    with pytest.raises(StorageFull):
        await route(engine)
    assert names(engine) == []


async def test_a_deleted_router_copies_nothing_after_a_restart(machine: Machine) -> None:
    engine = await routed(machine)
    await add(engine, 1)
    await turns()
    assert await engine.routers.delete("r")
    assert not await engine.routers.delete("r")
    await add(engine, 2)
    assert await datas(engine) == ["1"]
    engine = await machine.cut_power(Loss.DROP)
    assert engine.routers.page() == []
    await route(engine)
    await add(engine, 3)
    assert await datas(engine) == ["1", "3"]


@pytest.mark.parametrize("name", ["a", "b", "c"])
@pytest.mark.parametrize("snapshot", [True, False])
async def test_routers_are_deleted_with_their_topics(machine: Machine, name: str, snapshot: bool) -> None:
    engine = await machine.start(wal_shards=3)
    await route(engine, "ab", "a", "b")
    await route(engine, "bc", "b", "c")
    await route(engine, "ad", "a", "d")
    gone = {"a": ["ab", "ad"], "b": ["ab", "bc"], "c": ["bc"]}[name]
    if snapshot:
        await engine.snapshotter.take()
    assert await engine.remove_topic(name) == gone
    left = sorted({"ab", "bc", "ad"} - set(gone))
    assert [each.name for each in engine.routers.page()] == left
    engine = await machine.cut_power(Loss.DROP, wal_shards=3)
    assert [each.name for each in engine.routers.page()] == left
    engine = await machine.restart(wal_shards=3)
    assert [each.name for each in engine.routers.page()] == left


async def test_a_name_can_be_used_again_for_other_topics(machine: Machine) -> None:
    engine = await machine.start(wal_shards=3)
    for n in range(6):
        await route(engine, "r", f"a{n}", f"b{n}")
        await engine.delete_topic(f"{'ab'[n % 2]}{n}")
    await route(engine, "r", "x", "y")
    for start in (machine.kill, machine.restart):
        engine = await start(wal_shards=3)
        assert [(each.name, each.definition.source) for each in engine.routers.page()] == [("r", "x")]
        await engine.append("x", [record()])
        await turns()
    assert engine.state("y").head_seq == 2


async def test_pages_are_by_name_and_by_topic(machine: Machine) -> None:
    engine = await machine.start()
    for name, source, dest in (("b", "x", "y"), ("a", "x", "z"), ("B", "w", "y"), ("a>b", "w", "z")):
        await route(engine, name, source, dest)
    page = engine.routers.page
    assert [each.name for each in page()] == ["B", "a", "a>b", "b"]
    assert [each.name for each in page(after="a", limit=1)] == ["a>b"]
    assert [each.name for each in page("a")] == ["a", "a>b"]
    assert [each.name for each in page(source="x")] == ["a", "b"]
    assert [each.name for each in page(dest="y", source="w")] == ["B"]


async def test_a_router_of_a_stopped_shard_is_not_reported_as_missing(machine: Machine) -> None:
    """Its creation failed, but its frame may be in the log; after a restart the router would then exist."""
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await engine.put_topic("b", FSYNC)
    assert not await engine.routers.delete("r")
    machine.disk.fail("datasync", errno=errno.EIO)
    assert isinstance(await outcome(engine.routers.put("r", Definition(source="a", dest="b"))), StorageFailed)
    assert isinstance(await outcome(engine.routers.delete("r")), StorageFailed)
    engine = await machine.kill()
    assert await engine.routers.delete("r")


async def test_a_router_of_a_stopped_shard_is_not_reported_as_changed(machine: Machine) -> None:
    engine = await routed(machine)
    machine.disk.fail("datasync", errno=errno.EIO)
    with pytest.raises(StorageFailed):
        await route(engine, preserve_tag=False)
    with pytest.raises(StorageFailed):
        await route(engine)
    with pytest.raises(StorageFailed):
        await engine.routers.delete("r")


async def test_routers_survive_a_change_of_the_shard_count(machine: Machine) -> None:
    engine = await routed(machine)
    await add(engine, 1)
    await turns()
    engine = await machine.restart(wal_shards=3)
    await add(engine, 2)
    assert await datas(engine) == ["1", "2"]


async def test_router_ids_and_topic_ids_are_distinct(machine: Machine) -> None:
    engine = await routed(machine)
    taken = {engine.state("a").topic_id, engine.state("b").topic_id, engine.catalog.routes.by_name["r"].router_id}
    await engine.routers.delete("r")
    engine = await machine.kill()
    await engine.put_topic("c", FSYNC)
    assert engine.state("c").topic_id not in taken
