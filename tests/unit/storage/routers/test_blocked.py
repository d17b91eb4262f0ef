"""A destination that refuses records delays its routers, in order. Records that it can never accept are announced as
lost."""

from __future__ import annotations

import pytest

from storage import Discard, Durability, Engine, TopicConfig
from storage.errors import RouterNotFound, StorageFull
from storage.records.values import Tombstone
from tests.unit.storage.machine import Machine, errors_among, outcome, sized
from tests.unit.storage.routers.routed import FSYNC, add, datas, everything, route, routed, stored, turns


async def full(machine: Machine, **caps: int) -> Engine:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await engine.put_topic("b", TopicConfig(durability=Durability.FSYNC, discard=Discard.REJECT, **caps))
    await route(engine)
    return engine


async def test_a_full_destination_gets_the_remaining_records_in_order_when_it_has_room(machine: Machine) -> None:
    engine = await full(machine, cap_records=2)
    await add(engine, 1, 2, 3, 4, 5)
    assert await datas(engine) == ["1", "2"]
    state = engine.routers.state("r")
    assert (state.blocked, state.cursor_seq, state.lag) == ("topic_full", 2, 3)
    await engine.delete_records("b", before_seq=2)
    assert await datas(engine) == ["2", "3"]
    await engine.delete_records("b", before_seq=10)
    assert await datas(engine) == ["4", "5"]
    await machine.clock.advance(2000)
    assert (engine.routers.state("r").blocked, engine.routers.state("r").lag) == (None, 0)


async def test_room_freed_by_expiry_is_found_by_polling(machine: Machine) -> None:
    engine = await full(machine, cap_records=1, ttl_ms=3000)
    await add(engine, 1, 2)
    assert await datas(engine) == ["1"]
    await machine.clock.advance(5000)
    assert engine.routers.state("r").lag == 0


async def test_records_deleted_at_the_source_while_the_router_is_blocked_are_not_copied(machine: Machine) -> None:
    engine = await full(machine, cap_records=1)
    await engine.append("a", [sized(5)])
    await add(engine, 2, tag="x")
    await add(engine, 3)
    await turns()
    await engine.delete_records("a", before_seq=3)
    await engine.delete_records("b", before_seq=9)
    assert await datas(engine) == ["3"]


async def test_records_evicted_at_the_source_while_the_router_is_blocked_are_a_loss(machine: Machine) -> None:
    engine = await full(machine, cap_records=1)
    await add(engine, 1, 2, 3)
    await turns()
    await engine.put_topic("a", TopicConfig(durability=Durability.FSYNC, cap_records=1))
    await engine.put_topic("b", FSYNC)
    await machine.clock.advance(2000)
    one, lost, three = await everything(engine)
    assert (one, three) == ("1", "3")
    assert (lost.reason, lost.gap_from, lost.gap_to) == ("source_trim", 2, 2)


async def test_a_record_too_large_for_the_destination_is_a_loss_of_one_seq(machine: Machine) -> None:
    engine = await full(machine, cap_bytes=50)
    await add(engine, 1)
    await engine.append("a", [sized(60)])
    await add(engine, 3)
    found = await everything(engine)
    assert found[0] == "1"
    assert found[2] == "3"
    assert isinstance(found[1], Tombstone)
    assert (found[1].reason, found[1].gap_from, found[1].gap_to) == ("source_trim", 2, 2)
    assert engine.routers.state("r").lost == 1
    engine = await machine.kill()
    await add(engine, 4)
    assert [each for each in await everything(engine) if isinstance(each, str)] == ["1", "3", "4"]
    assert engine.routers.state("r").forwarded_total == 3


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.EPHEMERAL])
async def test_a_record_too_large_for_an_evicting_destination_is_a_loss(
    machine: Machine, durability: Durability
) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await engine.put_topic("b", TopicConfig(durability=durability, cap_bytes=50))
    await route(engine)
    await engine.append("a", [sized(5), sized(60), sized(6)])
    found = await everything(engine)
    assert [type(each).__name__ for each in found] == ["str", "Tombstone", "str"]
    assert engine.state("b").head_seq == 3


async def test_a_source_trimmed_past_the_cursor_is_a_loss_of_one_seq(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    await add(engine, 1, 2, 3, 4)
    await route(engine, start="earliest")
    router = engine.catalog.routes.by_name["r"]
    await turns()
    await engine.put_topic("b", TopicConfig(durability=Durability.FSYNC, discard=Discard.REJECT, cap_records=4))
    await add(engine, 5, 6, 7)
    await turns()
    assert router.blocked == "topic_full"
    engine = await machine.kill()
    await engine.put_topic("a", TopicConfig(durability=Durability.FSYNC, cap_records=1))
    await engine.put_topic("b", FSYNC)
    await machine.clock.advance(2000)
    found = await everything(engine)
    assert found[:4] == ["1", "2", "3", "4"]
    assert (found[4].reason, found[4].gap_from, found[4].gap_to) == ("source_trim", 5, 5)
    assert found[5:] == ["7"]


async def test_source_records_lost_in_a_crash_are_a_loss_at_the_destination(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", TopicConfig(durability=Durability.EPHEMERAL))
    await engine.put_topic("b", FSYNC)
    await route(engine)
    await add(engine, 1)
    await turns()
    engine = await machine.kill()
    await add(engine, 2)
    first, lost, second = await everything(engine)
    assert (first, second) == ("1", "2")
    assert lost.reason == "source_trim"
    assert (lost.gap_from, lost.gap_to) == (2, 2)


async def test_a_blocked_router_copies_no_record_after_its_deletion(machine: Machine) -> None:
    engine = await full(machine, cap_records=1)
    await add(engine, 1, 2)
    await turns()
    assert await engine.routers.delete("r")
    await engine.put_topic("b", FSYNC)
    await machine.clock.advance(5000)
    assert await datas(engine) == ["1"]
    with pytest.raises(RouterNotFound):
        engine.routers.state("r")


async def test_a_router_blocked_by_a_full_disk_copies_the_rest_when_there_is_room(machine: Machine) -> None:
    engine = await routed(machine, TopicConfig(durability=Durability.FSYNC))
    await add(engine, 1)
    await turns()
    machine.disk.capacity_bytes = machine.disk.used_bytes + 100
    shard = engine.shards[0]
    refused = None
    while refused is None:
        refused = next(iter(errors_among([await outcome(engine.append("a", [sized(4000)]))])), None)
    assert isinstance(refused, StorageFull)
    assert shard.log.full
    await turns()
    machine.disk.capacity_bytes = None
    await machine.clock.advance(5000)
    await add(engine, 9)
    await machine.clock.advance(2000)
    source, dest = await stored(engine, "a"), await stored(engine)
    assert [each.body for each in dest] == [each.body for each in source]
    assert engine.routers.state("r").blocked is None
