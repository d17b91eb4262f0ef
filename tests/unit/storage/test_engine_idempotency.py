"""Idempotency keys: one write per key and window; concurrent calls with the key share its outcome."""

from __future__ import annotations

import asyncio
import errno

import pytest

from storage import Discard, Durability, TopicConfig
from storage.errors import IdempotencyConflict, LimitReached, StorageFailed, StorageFull
from tests.unit.storage.machine import Machine, data, errors_among, log_of, outcome, record, records, seqs

CLASSES = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.EPHEMERAL])


@CLASSES
async def test_a_repeated_key_gets_the_first_answer_and_writes_no_record(
    machine: Machine, durability: Durability
) -> None:
    engine = await machine.start()
    config = TopicConfig(durability=durability)
    first = await engine.append("t", records(3), idempotency_key="k", config=config)
    await engine.append("t", records(2))
    again = await engine.append("t", records(3), idempotency_key="k")
    assert (first.deduped, again.deduped, again.created) == (False, True, False)
    assert (again.first_seq, again.last_seq, again.count, again.head_seq) == (1, 3, 3, 5)
    assert not again.payload_differs
    assert await seqs(engine, "t") == [1, 2, 3, 4, 5]


async def test_a_repeated_key_with_another_payload_is_reported_or_refused_if_strict(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record("a", tag="x", meta=1)], idempotency_key="k", node="n")
    same = {"idempotency_key": "k", "node": "n"}
    for other in (
        [record("b", tag="x", meta=1)],
        [record("a", tag="y", meta=1)],
        [record("a", tag="x", meta=2)],
        [record("a", tag="x")],
        [record("a", tag="x", meta=1), record()],
        [record("a", tag="x", meta=1, node="m")],
    ):
        assert (await engine.append("t", other, **same)).payload_differs
        with pytest.raises(IdempotencyConflict) as caught:
            await engine.append("t", other, idempotency_strict=True, **same)
        assert caught.value.detail == {"first_seq": 1}
    again = await engine.append("t", [record("a", tag="x", meta=1, node="n")], idempotency_key="k")
    assert (again.deduped, again.payload_differs) == (True, False), "the node may stand in either place"
    assert engine.state("t").head_seq == 1


async def test_a_repeated_key_with_shifted_field_borders_has_another_payload(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(0, tag="ab", node="c")], idempotency_key="k")
    assert (await engine.append("t", [record(0, tag="a", node="bc")], idempotency_key="k")).payload_differs


@CLASSES
async def test_a_key_is_remembered_for_exactly_its_window(machine: Machine, durability: Durability) -> None:
    engine = await machine.start(expiry_interval_ms=10**9)
    config = TopicConfig(durability=durability, idempotency_window_ms=1000)
    await engine.append("t", [record()], idempotency_key="k", config=config)
    await machine.clock.advance(1000)
    assert (await engine.append("t", [record()], idempotency_key="k")).deduped
    await machine.clock.advance(1)
    again = await engine.append("t", [record()], idempotency_key="k")
    assert (again.first_seq, again.deduped) == (2, False)
    assert (await engine.append("t", [record()], idempotency_key="k")).first_seq == 2


async def test_keys_of_idle_topics_are_dropped_by_the_worker(machine: Machine) -> None:
    engine = await machine.start(expiry_interval_ms=100)
    config = TopicConfig(idempotency_window_ms=1000)
    for n in range(5):
        await engine.append("t", [record()], idempotency_key=f"k{n}", config=config)
    assert engine.catalog.usage.keys == 5
    await machine.clock.advance(1300)
    assert engine.catalog.usage.keys == 0


async def test_a_key_applies_only_to_its_topic(machine: Machine) -> None:
    engine = await machine.start()
    answers = [await engine.append(name, [record()], idempotency_key="k") for name in ("a", "b")]
    assert [each.deduped for each in answers] == [False, False]
    await engine.delete_topic("a")
    assert not (await engine.append("a", [record()], idempotency_key="k")).deduped
    assert engine.catalog.usage.keys == 2


@CLASSES
async def test_concurrent_writes_with_a_key_write_once(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    config = TopicConfig(durability=durability)
    answers = await asyncio.gather(
        *(engine.append("t", records(2), idempotency_key="k", config=config) for _ in range(10))
    )
    assert [each.deduped for each in answers].count(False) == 1
    assert {each.first_seq for each in answers} == {1}
    assert engine.state("t").head_seq == 2


async def test_a_cancelled_write_leaves_its_outcome_to_writes_with_the_same_key(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC))
    first, second = (asyncio.create_task(engine.append("t", [record()], idempotency_key="k")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    shared = await second
    assert (shared.first_seq, shared.deduped) == (1, True)
    assert first.cancelled()
    assert engine.state("t").head_seq == 1


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageFailed), (errno.ENOSPC, StorageFull)])
async def test_a_failed_write_fails_all_writes_with_the_same_key(
    machine: Machine, number: int, kind: type[Exception]
) -> None:
    engine = await machine.start()
    await engine.append("t", [record()], config=TopicConfig(durability=Durability.FSYNC))
    machine.disk.fail("pwritev", "*/wal-*", errno=number)
    machine.disk.fail("allocate", errno=number, sticky=True)
    outcomes = await asyncio.gather(*(outcome(engine.append("t", [record()], idempotency_key="k")) for _ in range(5)))
    assert [type(each) for each in outcomes] == [kind] * 5
    assert engine.catalog.usage.keys == 0
    assert log_of(engine, "t").assigned_head == 1


async def test_a_failed_write_is_not_remembered(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record()])
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    machine.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
    machine.disk.unlink("/data/wal/reserve")
    assert isinstance(await outcome(engine.append("t", [record()], idempotency_key="k")), StorageFull)
    machine.disk.clear_faults()
    await machine.clock.advance(1000)
    again = await engine.append("t", [record("second try")], idempotency_key="k")
    assert (again.deduped, again.first_seq) == (False, 2)


async def test_a_failed_creation_fails_all_writes_with_the_same_key_and_leaves_no_topic(machine: Machine) -> None:
    engine = await machine.start()
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.EIO)
    outcomes = await asyncio.gather(*(outcome(engine.append("new", [record()], idempotency_key="k")) for _ in range(4)))
    assert len(errors_among(outcomes)) == 4
    assert engine.topics() == []
    assert engine.catalog.usage.bytes == 0


async def test_a_known_key_is_answered_on_a_full_topic(machine: Machine) -> None:
    engine = await machine.start()
    config = TopicConfig(cap_records=1, discard=Discard.REJECT)
    await engine.append("t", [record()], idempotency_key="k", config=config)
    assert (await engine.append("t", records(2), idempotency_key="k")).deduped


async def test_a_known_key_is_answered_before_expected_seq_is_looked_at(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record()], idempotency_key="k", expected_seq=0)
    assert (await engine.append("t", [record()], idempotency_key="k", expected_seq=0)).deduped


async def test_at_the_key_limit_a_known_key_is_answered_and_a_new_key_refused(machine: Machine) -> None:
    engine = await machine.start(max_idempotency_keys=2)
    for key in ("a", "b"):
        await engine.append("t", [record()], idempotency_key=key)
    with pytest.raises(LimitReached) as caught:
        await engine.append("t", [record()], idempotency_key="c")
    assert caught.value.detail == {"limit": "max_idempotency_keys", "max": 2}
    assert (await engine.append("t", [record()], idempotency_key="a")).deduped
    assert not (await engine.append("t", [record()])).deduped


async def test_the_key_limit_covers_all_topics_and_a_topic_deletion_frees_keys(machine: Machine) -> None:
    engine = await machine.start(max_idempotency_keys=2)
    for name in ("a", "b"):
        await engine.append(name, [record()], idempotency_key="k")
    with pytest.raises(LimitReached):
        await engine.append("c", [record()], idempotency_key="k")
    await engine.delete_topic("a")
    await engine.append("c", [record()], idempotency_key="k")


@pytest.mark.parametrize("how", ["clean", "kill", "power", "snapshot and power"])
async def test_keys_survive_a_restart_with_a_whole_window(machine: Machine, how: str) -> None:
    engine = await machine.start(expiry_interval_ms=10**9)
    config = TopicConfig(durability=Durability.FSYNC, idempotency_window_ms=1000)
    await engine.append("t", records(3), idempotency_key="k", config=config)
    await machine.clock.advance(600)
    await engine.append("t", [record()])
    if how == "snapshot and power":
        await engine.snapshotter.take()
    if how == "clean":
        await machine.close()
    machine.clock.tick(50_000)  # downtime, and longer than the window
    restart = {"clean": machine.start, "kill": machine.kill}.get(how, machine.cut_power)
    engine = await restart()
    await machine.clock.advance(1000)
    again = await engine.append("t", records(3), idempotency_key="k")
    assert (again.deduped, again.payload_differs, again.first_seq, again.last_seq) == (True, False, 1, 3)
    await machine.clock.advance(1)
    assert not (await engine.append("t", records(3), idempotency_key="k")).deduped


async def test_a_batch_with_a_key_is_atomic_over_a_crash(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", [record(n) for n in range(5)], idempotency_key="k")
    engine = await machine.kill()
    assert await data(engine, "t") == [0, 1, 2, 3, 4]
    assert (await engine.append("t", records(1), idempotency_key="k")).count == 5
