"""Appending: seqs without gaps or duplicates, exact expected_seq, and refused writes that leave no trace."""

from __future__ import annotations

import asyncio

import pytest

from storage import Discard, Durability, Engine, TopicConfig
from storage.errors import (
    BatchTooLarge,
    InvalidRequest,
    LimitReached,
    RecordTooLarge,
    SeqConflict,
    StorageError,
    TopicNotFound,
)
from tests.unit.storage.machine import (
    Machine,
    data,
    errors_among,
    log_of,
    outcome,
    record,
    records,
    seqs,
    sized,
)

CLASSES = pytest.mark.parametrize("durability", list(Durability))


@CLASSES
async def test_seqs_begin_at_1_and_follow_the_order_of_the_records(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    config = TopicConfig(durability=durability)
    first = await engine.append("t", [record("a"), record("b")], config=config)
    second = await engine.append("t", [record("c")], config=TopicConfig(cap_records=1))
    assert (first.first_seq, first.last_seq, first.head_seq, first.count, first.created) == (1, 2, 2, 2, True)
    assert (second.first_seq, second.last_seq, second.head_seq, second.created) == (3, 3, 3, False)
    assert await data(engine, "t") == ["a", "b", "c"]
    assert engine.state("t").config == config, "config counts only for the write that creates"


@CLASSES
async def test_concurrent_writes_get_seqs_without_gaps_or_duplicates(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    config = TopicConfig(durability=durability)
    answers = await asyncio.gather(*(engine.append("t", records(n % 3 + 1), config=config) for n in range(40)))
    taken = [seq for each in answers for seq in range(each.first_seq, each.last_seq + 1)]
    assert sorted(taken) == list(range(1, len(taken) + 1))
    assert [each.created for each in answers].count(True) == 1
    assert await seqs(engine, "t") == sorted(taken)


async def test_a_hundred_concurrent_writes_share_a_group_commit(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    before = engine.shards[0].log.stats.fsyncs
    await asyncio.gather(*(engine.append("t", [record()]) for _ in range(100)))
    assert engine.shards[0].log.stats.fsyncs == before + 1


async def test_only_the_fsync_class_waits_for_a_sync(machine: Machine) -> None:
    engine = await machine.start()
    syncs = []
    for durability in (Durability.FSYNC, Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL):
        await engine.put_topic(durability, TopicConfig(durability=durability))
        before = engine.shards[0].log.stats.fsyncs
        await engine.append(durability, [record()])
        syncs.append(engine.shards[0].log.stats.fsyncs - before)
    assert syncs == [1, 0, 0, 0]


async def test_disk_class_records_are_synced_by_the_timer_within_the_interval(machine: Machine) -> None:
    engine = await machine.start(disk_sync_ms=50)
    await engine.put_topic("t", TopicConfig(durability=Durability.DISK))
    await engine.append("t", [record()])
    assert engine.shards[0].log.dirty_since_ns is not None
    await machine.clock.advance(101)
    assert engine.shards[0].log.dirty_since_ns is None
    engine = await machine.cut_power()
    assert await seqs(engine, "t") == [1]


async def test_ephemeral_records_never_reach_the_disk(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.EPHEMERAL))
    before = engine.shards[0].log.stats.bytes
    for n in range(20):
        await engine.append("t", [record(n)])
    assert engine.shards[0].log.stats.bytes == before
    assert await data(engine, "t") == list(range(20))


async def test_records_without_a_node_get_the_node_of_the_write(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(1), record(2, node="own")], node="edge")
    assert [(await engine.read_one("t", seq)).node for seq in (1, 2)] == [b"edge", b"own"]


async def test_time_never_goes_backwards_within_a_log(machine: Machine) -> None:
    engine = await machine.start()
    stamps = []
    for step in (0, -5_000_000, 10, 0, -1):
        machine.clock.set_wall(machine.clock.wall_ms() + step)
        machine.clock.tick(1)
        answer = await engine.append("t", [record()])
        stamps.append((await engine.read_one("t", answer.first_seq)).ts)
    assert stamps == sorted(stamps)
    machine.clock.set_wall(0)
    engine = await machine.restart()
    answer = await engine.append("t", [record()])
    assert (await engine.read_one("t", answer.first_seq)).ts >= stamps[-1]


# -- expected_seq ------------------------------------------------------------------------------------------------


@CLASSES
async def test_expected_seq_is_the_last_assigned_seq(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.append("t", records(3), config=TopicConfig(durability=durability), expected_seq=0)
    assert (await engine.append("t", [record()], expected_seq=3)).first_seq == 4
    for wrong in (0, 3, 5):
        with pytest.raises(SeqConflict) as caught:
            await engine.append("t", [record()], expected_seq=wrong)
        assert caught.value.detail == {"expected_seq": wrong, "head_seq": 4}


@CLASSES
async def test_concurrent_writes_with_the_same_expected_seq_have_a_single_winner(
    machine: Machine, durability: Durability
) -> None:
    engine = await machine.start()
    await engine.append("t", [record()], config=TopicConfig(durability=durability))
    for round_ in range(1, 6):
        outcomes = await asyncio.gather(
            *(outcome(engine.append("t", [record(n)], expected_seq=round_)) for n in range(10))
        )
        assert len(errors_among(outcomes)) == 9
        assert engine.state("t").head_seq == round_ + 1


@CLASSES
async def test_of_concurrent_writes_that_expect_no_topic_exactly_one_succeeds(
    machine: Machine, durability: Durability
) -> None:
    engine = await machine.start()
    config = TopicConfig(durability=durability)
    outcomes = await asyncio.gather(
        *(outcome(engine.append("t", [record(n)], config=config, expected_seq=0)) for n in range(10))
    )
    conflicts = errors_among(outcomes)
    assert len(conflicts) == 9
    assert all(isinstance(each, SeqConflict) for each in conflicts)
    assert engine.state("t").head_seq == 1


async def test_pending_writes_count_for_expected_seq(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    chain = [engine.append("t", records(2), expected_seq=2 * n) for n in range(20)]
    answers = await asyncio.gather(*chain)
    assert [each.first_seq for each in answers] == list(range(1, 41, 2))


async def test_after_a_deletion_zero_is_expected_again(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(3))
    epoch = engine.state("t").epoch
    await engine.delete_topic("t")
    assert (await engine.append("t", [record()], expected_seq=0)).first_seq == 1
    assert engine.state("t").epoch != epoch


# -- refusals ----------------------------------------------------------------------------------------------------

REFUSALS = [
    ({"records": []}, InvalidRequest),
    ({"records": records(6)}, BatchTooLarge),
    ({"records": [sized(101)]}, RecordTooLarge),
    ({"records": [record(0, tag="x" * 300)]}, InvalidRequest),
    ({"records": [record(0, delay_ms=5)]}, InvalidRequest),
    ({"records": [record()], "node": ""}, InvalidRequest),
    ({"records": [record()], "idempotency_key": "k" * 257}, InvalidRequest),
    ({"records": [record()], "expected_seq": 1}, SeqConflict),
    ({"records": [record()], "expected_seq": -1}, InvalidRequest),
    ({"records": [record()], "expected_seq": 1 << 64}, InvalidRequest),
    ({"records": [record()], "create": False}, TopicNotFound),
    ({"records": [sized(60)], "config": TopicConfig(cap_bytes=50)}, RecordTooLarge),
    ({"records": records(3), "config": TopicConfig(cap_records=2, discard=Discard.REJECT)}, RecordTooLarge),
    ({"records": [sized(90), sized(90)]}, LimitReached),
    ({"records": [record()], "idempotency_key": "k", "config": TopicConfig()}, LimitReached),
]


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])
@pytest.mark.parametrize(("request_", "kind"), REFUSALS)
async def test_a_refused_write_leaves_no_topic_behind(
    machine: Machine, request_: dict, kind: type[StorageError], durability: Durability
) -> None:
    limits = {"max_idempotency_keys": 0} if kind is LimitReached and "idempotency_key" in request_ else {}
    engine = await machine.start(max_batch_records=5, max_record_bytes=100, max_total_bytes=150, **limits)
    arguments = dict(request_)
    batch = arguments.pop("records")
    before = arguments.get("config") or TopicConfig()
    arguments["config"] = TopicConfig(
        durability=durability,
        cap_bytes=before.cap_bytes,
        cap_records=before.cap_records,
        discard=before.discard,
    )
    with pytest.raises(kind):
        await engine.append("t", batch, **arguments)
    with pytest.raises(TopicNotFound):
        engine.state("t")
    assert engine.topics() == []
    assert (engine.catalog.usage.bytes, engine.catalog.usage.keys) == (0, 0)
    engine = await machine.kill()
    assert engine.topics() == []


async def test_a_refused_write_assigns_no_seq(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", records(2))
    with pytest.raises(SeqConflict):
        await engine.append("t", records(5), expected_seq=1)
    assert log_of(engine, "t").assigned_head == 2
    assert (await engine.append("t", [record()])).first_seq == 3


@pytest.mark.parametrize("name", ["", "a b", "a" * 256])
async def test_a_bad_name_is_refused_everywhere(machine: Machine, name: str) -> None:
    engine = await machine.start()
    for work in (
        engine.append(name, [record()]),
        engine.put_topic(name),
        engine.delete_topic(name),
        engine.delete_records(name, before_seq=1),
        engine.read_one(name, 1),
        engine.wait_beyond(name, 0, 1),
    ):
        with pytest.raises(InvalidRequest):
            await work


async def test_a_cancelled_append_in_flight_is_stored(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    writing = asyncio.create_task(engine.append("t", [record("kept")], idempotency_key="k"))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    again = await engine.append("t", [record("kept")], idempotency_key="k")
    assert (again.first_seq, again.deduped) == (1, True)
    assert await data(engine, "t") == ["kept"]


async def test_an_append_cancelled_during_a_change_of_durability_is_not_stored(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record()])
    changing = asyncio.create_task(engine.put_topic("t", TopicConfig(ttl_ms=10**9)))
    await asyncio.sleep(0)
    writing = asyncio.create_task(engine.append("t", [record()]))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await changing
    assert engine.state("t").head_seq == 1


async def test_a_stopped_engine_takes_no_writes(machine: Machine) -> None:
    engine: Engine = await machine.start()
    await engine.append("t", [record()])
    await machine.close()
    for work in (
        engine.append("t", [record()]),
        engine.put_topic("u"),
        engine.delete_topic("t"),
        engine.delete_records("t", before_seq=1),
    ):
        with pytest.raises(StorageError) as caught:
            await work
        assert caught.value.code == "shutting_down"
