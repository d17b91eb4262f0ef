"""Creating, listing, changing and deleting topics; their limits hold exactly, also for concurrent calls."""

from __future__ import annotations

import asyncio
import errno

import pytest

from storage import Durability, TopicConfig, TopicType
from storage.errors import (
    LimitReached,
    StorageFailed,
    TopicIncompatible,
    TopicNotEmpty,
    TopicNotFound,
)
from tests.support.sim_disk import Loss
from tests.unit.storage.machine import Machine, errors_among, outcome, record, records, seqs


async def test_a_topic_is_created_once_and_survives_a_power_cut(machine: Machine) -> None:
    engine = await machine.start()
    config = TopicConfig(ttl_ms=5, priority=5000)
    state, created = await engine.put_topic("t", config)
    assert created
    assert (state.head_seq, state.earliest_seq, state.count, state.bytes, state.next_seq) == (0, 1, 0, 0, 1)
    assert (state.last_write_ts, state.last_read_ts) == (None, None)
    assert state.config == config.clamped()
    assert (await engine.put_topic("t", config))[1] is False
    engine = await machine.cut_power(Loss.DROP)
    assert engine.state("t").config == config.clamped()
    assert engine.state("t").epoch == state.epoch


async def test_put_replaces_the_whole_config(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(ttl_ms=5, cap_records=9))
    state, _ = await engine.put_topic("t", TopicConfig(cap_bytes=7))
    assert state.config == TopicConfig(cap_bytes=7)
    assert (await engine.put_topic("t"))[0].config == TopicConfig()


async def test_the_type_cannot_be_changed(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(type=TopicType.QUEUE))
    with pytest.raises(TopicIncompatible):
        await engine.put_topic("t", TopicConfig(type=TopicType.LOG))
    await engine.append("t", [record(0, delay_ms=5)])


async def test_names_are_listed_in_byte_order_by_prefix_and_page(machine: Machine) -> None:
    engine = await machine.start()
    names = ["b", "a", "A", "a.b", "a:b", "a-b", "ab", "_", "0"]
    for name in names:
        await engine.put_topic(name)
    assert [each.topic for each in engine.topics()] == sorted(names)
    assert [each.topic for each in engine.topics(prefix="a")] == ["a", "a-b", "a.b", "a:b", "ab"]
    paged: list[str] = []
    while page := engine.topics(after=paged[-1] if paged else "", limit=2):
        paged += [each.topic for each in page]
    assert paged == sorted(names)
    assert engine.topics(prefix="zz") == []


async def test_a_topic_is_not_listed_before_it_is_durable(machine: Machine) -> None:
    engine = await machine.start()
    making = asyncio.create_task(engine.append("t", [record()]))
    await asyncio.sleep(0)
    assert engine.topics() == []
    with pytest.raises(TopicNotFound):
        engine.state("t")
    await making
    assert [each.topic for each in engine.topics()] == ["t"]


async def test_a_topic_whose_creation_failed_does_not_exist(machine: Machine) -> None:
    engine = await machine.start()
    machine.disk.fail("datasync", errno=errno.EIO)
    outcomes = await asyncio.gather(outcome(engine.put_topic("a")), outcome(engine.append("b", [record()])))
    assert all(isinstance(each, StorageFailed) for each in outcomes)
    assert engine.topics() == []
    assert engine.catalog.topics == {}


# -- deleting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", list(Durability))
async def test_a_deleted_topic_is_gone_for_good(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", records(5), idempotency_key="k", config=TopicConfig(durability=durability))
    assert await engine.delete_topic("t")
    assert not await engine.delete_topic("t")
    for call in (lambda: engine.state("t"), lambda: engine.touch("t")):
        with pytest.raises(TopicNotFound):
            call()
    usage = engine.catalog.usage
    assert (usage.bytes, usage.ephemeral_bytes, usage.keys) == (0, 0, 0)
    engine = await machine.cut_power(Loss.DROP)
    assert engine.topics() == []


async def test_a_recreated_topic_begins_at_seq_1(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record("old")])
    old = engine.state("t")
    await engine.delete_topic("t")
    await engine.append("t", [record("new")])
    new = engine.state("t")
    assert (new.head_seq, new.count) == (1, 1)
    assert new.epoch != old.epoch
    assert new.topic_id != old.topic_id
    engine = await machine.kill()
    assert engine.state("t").epoch == new.epoch
    assert (await engine.read_one("t", 1)).body == b'{"data":"new"}'


async def test_ids_are_not_reused_after_a_restart(machine: Machine) -> None:
    engine = await machine.start()
    ids = set()
    for _ in range(3):
        await engine.put_topic("t")
        ids.add(engine.state("t").topic_id)
        await engine.delete_topic("t")
        engine = await machine.restart()
    assert len(ids) == 3


async def test_delete_if_empty_refuses_a_topic_with_records(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2))
    with pytest.raises(TopicNotEmpty):
        await engine.delete_topic("t", if_empty=True)
    await engine.delete_records("t", before_seq=3)
    assert await engine.delete_topic("t", if_empty=True)
    assert not await engine.delete_topic("t", if_empty=True)


async def test_delete_if_empty_refuses_a_topic_with_a_pending_write(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    answers = await asyncio.gather(
        outcome(engine.append("t", [record()])), outcome(engine.delete_topic("t", if_empty=True))
    )
    assert isinstance(answers[1], TopicNotEmpty)
    assert await seqs(engine, "t") == [1]


async def test_a_write_during_a_deletion_recreates_the_topic(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3))
    deleted, written = await asyncio.gather(engine.delete_topic("t"), engine.append("t", [record("new")]))
    assert deleted
    assert (written.first_seq, written.created) == (1, True)
    assert engine.state("t").count == 1


async def test_concurrent_deletions_of_a_topic_have_a_single_winner(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    assert sorted(await asyncio.gather(*(engine.delete_topic("t") for _ in range(3)))) == [False, False, True]


async def test_concurrent_config_changes_are_applied_in_sequence(machine: Machine) -> None:
    engine = await machine.start()
    results = await asyncio.gather(*(engine.put_topic("t", TopicConfig(cap_records=n)) for n in range(1, 9)))
    assert [created for _, created in results].count(True) == 1
    assert engine.state("t").config.cap_records in range(1, 9)
    kept = engine.state("t").config
    engine = await machine.kill()
    assert engine.state("t").config == kept


# -- limits ------------------------------------------------------------------------------------------------------


async def test_a_topic_over_max_topics_is_refused(machine: Machine) -> None:
    engine = await machine.start(max_topics=2)
    await engine.put_topic("a")
    await engine.append("b", [record()])
    for work in (engine.put_topic("c"), engine.append("d", [record()])):
        with pytest.raises(LimitReached) as caught:
            await work
        assert caught.value.detail == {"limit": "max_topics", "max": 2}
    await engine.put_topic("a", TopicConfig(ttl_ms=1))
    await engine.delete_topic("b")
    await engine.append("c", [record()])


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])
async def test_concurrent_creations_never_exceed_max_topics(machine: Machine, durability: Durability) -> None:
    engine = await machine.start(max_topics=3)
    config = TopicConfig(durability=durability)
    outcomes = await asyncio.gather(
        *(outcome(engine.put_topic(f"p{n}", config)) for n in range(5)),
        *(outcome(engine.append(f"a{n}", [record()], config=config)) for n in range(5)),
    )
    refused = errors_among(outcomes)
    assert len(refused) == 7
    assert all(isinstance(each, LimitReached) for each in refused)
    assert len(engine.topics()) == 3


async def test_a_failed_creation_does_not_count_against_max_topics(machine: Machine) -> None:
    engine = await machine.start(max_topics=1)
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    machine.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    assert errors_among([await outcome(engine.append("a", [record()]))])
    machine.disk.clear_faults()
    await machine.clock.advance(1000)
    await engine.append("b", [record()])


async def test_touching_a_topic_notes_the_time(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record()])
    assert engine.state("t").last_write_ts == machine.clock.wall_ms()
    await machine.clock.advance(77)
    engine.touch("t")
    state = engine.state("t")
    assert state.last_read_ts == machine.clock.wall_ms()
    assert state.last_write_ts == machine.clock.wall_ms() - 77
