"""Consumers are made, changed, listed and deleted, and their cursors are moved."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage import Durability, Engine, TopicConfig, TopicType
from storage.errors import (
    ConsumerNotFound,
    InvalidRequest,
    LimitReached,
    NotReady,
    StorageFailed,
    StorageFull,
    TopicIncompatible,
    TopicNotFound,
)
from storage.state.consumers.values import ConsumerConfig, Start
from tests.unit.storage.consumers.consumed import (
    DISK,
    FSYNC,
    STRICT,
    add,
    answer,
    consumed,
    cursor,
    durable,
    every,
    known,
    take,
    turns,
)
from tests.unit.storage.machine import Machine, errors_among, outcome

EPHEMERAL = TopicConfig(durability=Durability.EPHEMERAL)


async def test_a_consumer_is_made_once_and_changed_afterwards(machine: Machine) -> None:
    engine = await consumed(machine, 4, every(7))
    await take(engine, 3)
    state, created = await engine.consumers.put("a", "c", STRICT, start="head")
    assert (created, state.config, state.cursor_seq) == (False, STRICT, 3)
    state, created = await engine.consumers.put("a", "d", start="head")
    assert (created, state.config, state.cursor_seq, state.lag, state.unread) == (True, ConsumerConfig(), 4, 0, 0)


@pytest.mark.parametrize(("start", "first"), [("earliest", [3, 4, 5, 6]), ("head", []), (0, [3, 4, 5, 6]), (4, [5, 6])])
async def test_a_new_consumer_reads_after_its_start(machine: Machine, start: Start, first: list[int]) -> None:
    engine = await consumed(machine, 6)
    await engine.delete_records("a", 3)
    await engine.consumers.put("a", "d", start=start)
    assert await take(engine, name="d") == first


async def test_a_new_consumer_gets_no_tombstone_for_records_lost_before_its_start(machine: Machine) -> None:
    engine = await consumed(machine, 6, topic=TopicConfig(durability=Durability.DISK, cap_records=2))
    await engine.consumers.put("a", "d")
    assert (await answer(engine, name="d")).result.tombstone is None
    await engine.consumers.put("a", "e", start=0)
    assert (await answer(engine, name="e")).result.tombstone is not None


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"consumer": "with space"}, "consumer"),
        ({"consumer": "x" * 513}, "consumer"),
        ({"start": 7}, "start"),
        ({"start": -1}, "start"),
        ({"config": every(0)}, "persist_every"),
    ],
)
async def test_an_invalid_consumer_config_is_refused(machine: Machine, asked: dict[str, Any], field: str) -> None:
    engine = await consumed(machine, 6)
    with pytest.raises(InvalidRequest) as error:
        await engine.consumers.put("a", **{"consumer": "d", **asked})
    assert error.value.detail["field"] == field
    assert [each.consumer for each in engine.consumers.list("a")] == ["c"]


@pytest.mark.parametrize("name", ["group:a%20b", "_", "x" * 512])
async def test_valid_consumer_names_are_accepted(machine: Machine, name: str) -> None:
    engine = await consumed(machine)
    await engine.consumers.put("a", name)
    assert (await machine.kill()).consumers.state("a", name).consumer == name


OPERATIONS: list[Any] = [
    lambda engine, topic: engine.consumers.put(topic, "d"),
    lambda engine, topic: engine.consumers.read(topic, "d"),
    lambda engine, topic: engine.consumers.commit(topic, "d", 0),
    lambda engine, topic: engine.consumers.seek(topic, "d", seq=0),
    lambda engine, topic: engine.consumers.delete(topic, "d"),
    lambda engine, topic: asyncio.to_thread(engine.consumers.state, topic, "d"),
    lambda engine, topic: asyncio.to_thread(engine.consumers.list, topic),
]


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_consumers_of_ephemeral_topics_queues_and_absent_topics_are_refused(
    machine: Machine, operation: Any
) -> None:
    engine = await consumed(machine)
    await engine.put_topic("memory", EPHEMERAL)
    await engine.put_topic("queue", TopicConfig(type=TopicType.QUEUE))
    for topic, error in (("memory", InvalidRequest), ("queue", TopicIncompatible), ("none", TopicNotFound)):
        with pytest.raises(error):
            await operation(engine, topic)


@pytest.mark.parametrize("operation", OPERATIONS[1:4] + OPERATIONS[5:6])
async def test_an_absent_consumer_is_not_found(machine: Machine, operation: Any) -> None:
    engine = await consumed(machine)
    with pytest.raises(ConsumerNotFound):
        await operation(engine, "a")


async def test_a_delete_states_whether_the_consumer_existed(machine: Machine) -> None:
    engine = await consumed(machine)
    assert [await engine.consumers.delete("a", "c") for _ in range(2)] == [True, False]
    engine = await machine.kill()
    assert engine.consumers.list("a") == []


async def test_a_recreated_consumer_starts_at_the_beginning(machine: Machine) -> None:
    engine = await consumed(machine, 4)
    first = engine.consumers.state("a", "c").consumer_id
    await take(engine, 3)
    await engine.consumers.delete("a", "c")
    state, created = await engine.consumers.put("a", "c")
    assert (created, state.cursor_seq) == (True, 0)
    assert state.consumer_id > first
    assert await take(engine) == [1, 2, 3, 4]


async def test_consumer_ids_are_never_reused(machine: Machine) -> None:
    engine = await consumed(machine)
    used = engine.consumers.state("a", "c").consumer_id
    await engine.consumers.delete("a", "c")
    engine = await machine.kill()
    state, _ = await engine.consumers.put("a", "d")
    assert state.consumer_id > used


async def test_a_recreated_topic_has_no_consumers(machine: Machine) -> None:
    engine = await consumed(machine)
    await engine.delete_topic("a")
    assert engine.catalog.usage.consumers == 0
    await engine.put_topic("a", DISK)
    assert engine.consumers.list("a") == []
    engine = await machine.kill()
    assert engine.consumers.list("a") == []


async def test_concurrent_puts_of_a_name_create_a_single_consumer(machine: Machine) -> None:
    engine = await consumed(machine)
    made = await asyncio.gather(*(engine.consumers.put("a", "d", every(n)) for n in range(1, 5)))
    assert [created for _, created in made] == [True, False, False, False]
    assert len({state.consumer_id for state, _ in made}) == 1
    assert engine.consumers.state("a", "d").config == every(4)


async def test_the_limit_is_never_passed(machine: Machine) -> None:
    engine = await consumed(machine, max_consumers=3)
    made = await asyncio.gather(
        *(engine.consumers.put("a", name) for name in ("d", "e", "f", "g")), return_exceptions=True
    )
    [first, _] = errors_among([each for each in made if isinstance(each, Exception)])
    assert isinstance(first, LimitReached)
    assert first.detail == {"limit": "max_consumers", "max": 3}
    await engine.consumers.put("a", "c", every(3))
    await engine.consumers.delete("a", "c")
    await engine.consumers.put("a", "h")
    assert engine.catalog.usage.consumers == 3
    engine = await machine.restart(max_consumers=3)
    assert engine.catalog.usage.consumers == 3


async def test_a_call_with_a_cancelled_caller_takes_effect(machine: Machine) -> None:
    engine = await consumed(machine, 5)
    calls: list[Any] = [
        engine.consumers.put("a", "d"),
        engine.consumers.commit("a", "c", 3),
        engine.consumers.delete("a", "d"),
    ]
    for call in calls:
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        task.cancel()
        await turns()
    engine = await machine.kill()
    assert [each.consumer for each in engine.consumers.list("a")] == ["c"]
    assert cursor(engine) == 3


async def test_consumers_are_listed_by_name(machine: Machine) -> None:
    engine = await consumed(machine)
    for name in ("e", "d", "group:x"):
        await engine.consumers.put("a", name)
    assert [each.consumer for each in engine.consumers.list("a")] == ["c", "d", "e", "group:x"]
    assert [each.consumer for each in engine.consumers.list("a", after="c", limit=2)] == ["d", "e"]
    assert [each.consumer for each in engine.consumers.list("a", prefix="group:")] == ["group:x"]


async def test_the_state_of_a_topic_has_the_number_of_consumers_and_their_lag(machine: Machine) -> None:
    engine = await consumed(machine, 9)
    await engine.consumers.put("a", "d", start=4)
    found = engine.state("a").consumers
    assert found is not None
    assert (found.count, found.lag) == (2, 9)
    await engine.put_topic("b", DISK)
    assert engine.state("b").consumers is None


# -- commit and seek -------------------------------------------------------------------------------------------------


async def test_a_commit_is_durable_and_never_goes_back(machine: Machine) -> None:
    engine = await consumed(machine, 9)
    state = await engine.consumers.commit("a", "c", 5)
    assert (state.cursor_seq, state.durable_seq, state.unread) == (5, 5, 4)
    state = await engine.consumers.commit("a", "c", 3)
    assert (state.cursor_seq, state.durable_seq) == (5, 5)
    engine = await machine.cut_power()
    assert await take(engine) == [6, 7, 8, 9]


async def test_a_crash_resets_the_cursor_to_the_last_commit(machine: Machine) -> None:
    engine = await consumed(machine, 9)
    await take(engine, 7)
    await engine.consumers.commit("a", "c", 4)
    assert (cursor(engine), durable(engine)) == (7, 4)
    assert await take(engine, 1) == [8]
    engine = await machine.kill()
    assert await take(engine, 1) == [5]


async def test_a_commit_recounts_the_unpersisted_records_behind_it(machine: Machine) -> None:
    engine = await consumed(machine, 20, every(10))
    await take(engine, 4)
    await take(engine, 3)
    await engine.consumers.commit("a", "c", 2)
    assert known(engine).unpersisted == 5
    assert await take(engine, 5) == [8, 9, 10, 11, 12]
    assert durable(engine) == 2
    await take(engine, 1)
    assert durable(engine) == 7


async def test_peek_and_commit_is_at_least_once_for_a_single_reader(machine: Machine) -> None:
    engine = await consumed(machine, 4, STRICT)
    got: list[int] = []
    for _ in range(2):
        found = await answer(engine, 2, checkpoint=False)
        got += [each.seq for each in found.result.records]
        await engine.consumers.commit("a", "c", got[-1])
    assert got == [1, 2, 3, 4]


@pytest.mark.parametrize("seq", [-1, 10])
async def test_a_commit_or_seek_beyond_the_head_is_refused(machine: Machine, seq: int) -> None:
    engine = await consumed(machine, 9)
    for work in (engine.consumers.commit("a", "c", seq), engine.consumers.seek("a", "c", seq=seq)):
        with pytest.raises(InvalidRequest) as error:
            await work
        assert error.value.detail["field"] == "seq"


@pytest.mark.parametrize("config", [every(3), STRICT])
@pytest.mark.parametrize(
    ("where", "then"),
    [({"seq": 2}, [3, 4]), ({"seq": 0}, [1, 2]), ({"to": "earliest"}, [1, 2]), ({"to": "head"}, []), ({"seq": 8}, [9])],
)
async def test_a_seek_puts_the_cursor_there_for_good(
    machine: Machine, config: ConsumerConfig, where: dict[str, Any], then: list[int]
) -> None:
    engine = await consumed(machine, 9, config)
    for _ in range(3):
        await take(engine, 2)
    await engine.consumers.seek("a", "c", **where)
    engine = await machine.kill()
    assert await take(engine, 2) == then


async def test_a_seek_by_time_goes_to_the_first_record_at_or_after_the_time(machine: Machine) -> None:
    engine = await consumed(machine, 3)
    machine.clock.tick(1000)
    at = engine.now_ms()
    await add(engine, 2)
    assert (await engine.consumers.seek("a", "c", ts=at)).cursor_seq == 3
    assert (await engine.consumers.seek("a", "c", ts=at + 1)).cursor_seq == 5
    assert (await engine.consumers.seek("a", "c", ts=0)).cursor_seq == 0


@pytest.mark.parametrize("where", [{}, {"seq": 1, "ts": 2}, {"ts": 1, "to": "head"}])
async def test_a_seek_with_no_or_several_positions_is_refused(machine: Machine, where: dict[str, Any]) -> None:
    engine = await consumed(machine, 3)
    with pytest.raises(InvalidRequest):
        await engine.consumers.seek("a", "c", **where)


async def test_a_seek_waits_for_an_earlier_read_and_is_not_undone_by_its_cursor_write(
    machine: Machine,
) -> None:
    engine = await consumed(machine, 20, every(4))
    await take(engine, 4)
    outcomes = await asyncio.gather(take(engine, 4), engine.consumers.seek("a", "c", seq=1), take(engine, 2))
    assert (outcomes[0], outcomes[2]) == ([5, 6, 7, 8], [9, 10])
    assert cursor(engine) == 1
    assert await take(engine, 2) == [2, 3]
    engine = await machine.kill()
    assert await take(engine, 1) == [2]


# -- what the topic is set to ----------------------------------------------------------------------------------------


async def test_a_topic_with_consumers_does_not_become_ephemeral(machine: Machine) -> None:
    engine = await consumed(machine)
    with pytest.raises(TopicIncompatible) as error:
        await engine.put_topic("a", EPHEMERAL)
    assert error.value.detail["field"] == "durability"
    assert engine.state("a").config == DISK
    await engine.consumers.delete("a", "c")
    await engine.put_topic("a", EPHEMERAL)


@pytest.mark.parametrize("when", range(8))
async def test_a_concurrent_consumer_put_and_change_to_ephemeral_have_a_single_winner(
    machine: Machine, when: int
) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    making = asyncio.ensure_future(outcome(engine.consumers.put("a", "c")))
    await turns(when)
    changed = await outcome(engine.put_topic("a", EPHEMERAL))
    made = await making
    ephemeral = engine.state("a").config == EPHEMERAL
    assert isinstance(changed, TopicIncompatible) is not ephemeral
    assert isinstance(made, InvalidRequest) is ephemeral
    assert (engine.state("a").consumers is None) is ephemeral


async def test_a_consumer_put_during_a_change_to_ephemeral_is_refused(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("a", FSYNC)
    changing = asyncio.ensure_future(engine.put_topic("a", EPHEMERAL))
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest):
        await engine.consumers.put("a", "c")
    await changing


async def test_a_full_disk_refuses_new_consumers_and_serves_existing_cursors(machine: Machine) -> None:
    engine = await consumed(machine, 20, STRICT, wal_file_bytes=1 << 14)
    machine.disk.capacity_bytes = machine.disk.used_bytes
    outcomes = [await outcome(add(engine, 20)) for _ in range(200)]
    assert isinstance(outcomes[-1], StorageFull)
    with pytest.raises(StorageFull):
        await engine.consumers.put("a", "d")
    assert await take(engine, 2) == [1, 2]
    await engine.consumers.commit("a", "c", 5)
    assert await engine.consumers.delete("a", "c")


async def test_before_the_start_there_are_none(machine: Machine) -> None:
    engine = Engine("/data", fs=machine.disk, clock=machine.clock, threaded=False)
    with pytest.raises(NotReady):
        await engine.consumers.read("a", "c")


async def test_a_delete_of_a_consumer_with_unknown_outcome_fails_with_storage_failed(machine: Machine) -> None:
    """The outcome of its creation is open: the frame may be in the log, and the next start would find it."""
    engine = await consumed(machine, 2)
    machine.disk.fail("datasync")
    for _ in range(2):
        with pytest.raises(StorageFailed):
            await engine.consumers.put("a", "d")
        with pytest.raises(StorageFailed):
            await engine.consumers.delete("a", "d")
