"""A write without a task: either it is submitted at once and its outcome reported once, or it is not begun at all."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from storage import Discard, Durability, Engine, TopicConfig
from storage.errors import (
    BatchTooLarge,
    InvalidRequest,
    LimitReached,
    ShuttingDown,
    StorageFailed,
    StorageFull,
    TopicFull,
)
from storage.records.values import Appended, PlainRecords
from tests.unit.storage.machine import Machine, data, log_of, outcome, raw, record, records, seqs, sized

FSYNC = TopicConfig(durability=Durability.FSYNC)
DURABLE = pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK, Durability.MEMORY])


class Outcomes:
    """Outcomes of writes, in the order in which the engine reported them."""

    def __init__(self) -> None:
        self.outcomes: list[Appended | Exception] = []

    def __call__(self, outcome: Appended | Exception) -> None:
        self.outcomes.append(outcome)

    async def all(self, count: int) -> list[Any]:
        """Wait for `count` outcomes, and check that there are no more."""
        for _ in range(1000):
            if len(self.outcomes) >= count:
                break
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(self.outcomes) == count
        return self.outcomes


def plain(*values: Any) -> PlainRecords:
    return PlainRecords([raw(value) for value in values])


@DURABLE
async def test_try_append_reports_when_the_records_are_readable(machine: Machine, durability: Durability) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=durability))
    await engine.append("t", records(1))
    seen: list[list[int]] = []
    reported = Outcomes()

    def look(outcome: Appended | Exception) -> None:
        reported(outcome)
        seen.append([engine.state("t").head_seq, log_of(engine, "t").assigned_head])

    assert engine.try_append("t", plain("a", "b"), look, node="n")
    assert reported.outcomes == []
    [done] = await reported.all(1)
    assert (done.topic, done.first_seq, done.last_seq, done.head_seq, done.count) == ("t", 2, 3, 3, 2)
    assert (done.created, done.deduped) == (False, False)
    assert seen == [[3, 3]]
    assert await data(engine, "t") == [0, "a", "b"]


async def test_writes_keep_their_order_and_survive_a_power_cut(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    reported = Outcomes()
    for number in range(40):
        assert engine.try_append("t", plain(*range(number, number + 3)), reported)
    outcomes = await reported.all(40)
    assert [each.first_seq for each in outcomes] == list(range(1, 121, 3))
    engine = await machine.cut_power()
    assert await data(engine, "t") == [value for number in range(40) for value in range(number, number + 3)]


async def test_try_append_declines_absent_and_ephemeral_topics(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("ephemeral", TopicConfig(durability=Durability.EPHEMERAL))
    reported = Outcomes()
    assert not engine.try_append("none", plain(1), reported)
    assert not engine.try_append("ephemeral", plain(1), reported)
    await reported.all(0)
    assert [each.topic for each in engine.topics()] == ["ephemeral"]
    assert engine.state("ephemeral").head_seq == 0


async def test_try_append_declines_a_write_that_must_wait(machine: Machine) -> None:
    engine = await machine.start(expiry_interval_ms=10**9)
    await engine.put_topic("reserving", TopicConfig(durability=Durability.DISK))
    expired = TopicConfig(durability=Durability.FSYNC, ttl_ms=10, cap_records=1, discard=Discard.REJECT)
    await engine.append("expired", records(1), config=expired)
    await machine.clock.advance(100)
    reported = Outcomes()
    assert not engine.try_append("reserving", plain(*range(1000)), reported)
    assert not engine.try_append("expired", plain(1), reported)
    changing = asyncio.create_task(engine.put_topic("reserving", FSYNC))
    await asyncio.sleep(0)
    assert not engine.try_append("reserving", plain(1), reported)
    await changing
    assert engine.try_append("reserving", plain(1), reported)
    await reported.all(1)


async def test_try_append_declines_with_a_full_queue(machine: Machine) -> None:
    engine = await machine.start(wal_queue_frames=20)
    await engine.put_topic("t", FSYNC)
    reported = Outcomes()
    assert [engine.try_append("t", plain(1, 2, 3), reported) for _ in range(6)] == [True] * 4 + [False] * 2
    assert [each.first_seq for each in await reported.all(4)] == [1, 4, 7, 10]
    assert engine.try_append("t", plain(1), reported)
    await reported.all(5)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "not a name"}, InvalidRequest),
        ({"records": PlainRecords()}, InvalidRequest),
        ({"records": plain(*range(11))}, BatchTooLarge),
        ({"node": ""}, InvalidRequest),
        ({"idempotency_key": ""}, InvalidRequest),
        ({"idempotency_key": "k" * 257}, InvalidRequest),
        ({"idempotency_key": "\ud800"}, InvalidRequest),
        ({"name": "full"}, TopicFull),
        ({"idempotency_key": "second"}, LimitReached),
    ],
)
async def test_try_append_raises_a_refusal_and_writes_no_record(
    machine: Machine, arguments: dict[str, Any], error: type[Exception]
) -> None:
    engine = await machine.start(max_batch_records=10, max_idempotency_keys=1)
    await engine.append("t", records(1), config=FSYNC, idempotency_key="first")
    await engine.append("full", records(1), config=TopicConfig(cap_records=1, discard=Discard.REJECT))
    reported = Outcomes()
    given: dict[str, Any] = {"name": "t", "records": plain(1)} | arguments
    with pytest.raises(error):
        engine.try_append(given.pop("name"), given.pop("records"), reported, **given)
    await reported.all(0)
    for name in ("t", "full"):
        assert (engine.state(name).head_seq, log_of(engine, name).assigned_head) == (1, 1)
    assert engine.pending_keys == {}


async def test_try_append_on_a_closed_engine_raises_shutting_down(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    await machine.close()
    with pytest.raises(ShuttingDown):
        engine.try_append("t", plain(1), Outcomes())


async def test_try_append_in_flight_at_close_is_reported(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t")
    reported = Outcomes()
    assert engine.try_append("t", plain(1), reported)
    await machine.close()
    [done] = await reported.all(1)
    assert done.first_seq == 1
    engine = await machine.start()
    assert await seqs(engine, "t") == [1]


@DURABLE
async def test_a_failing_disk_fails_every_write_and_takes_the_heads_back(
    machine: Machine, durability: Durability
) -> None:
    engine = await machine.start()
    await engine.append("t", records(1), config=TopicConfig(durability=durability))
    machine.disk.fail("pwritev", "*/wal-*")
    reported = Outcomes()
    for _ in range(3):
        assert engine.try_append("t", plain(1), reported, idempotency_key=f"k{len(engine.pending_keys)}")
    outcomes = await reported.all(3)
    assert [type(each) for each in outcomes] == [StorageFailed] * 3
    assert (engine.state("t").head_seq, log_of(engine, "t").assigned_head) == (1, 1)
    assert engine.pending_keys == {}
    with pytest.raises(StorageFailed):
        engine.try_append("t", plain(1), reported)


async def test_a_full_disk_fails_the_write_and_frees_its_key(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    reported = Outcomes()
    assert engine.try_append("t", plain(1), reported, idempotency_key="k")
    assert isinstance((await reported.all(1))[0], StorageFull)
    machine.disk.clear_faults()
    await machine.clock.advance(1000)
    shard = engine.shards[0]
    shard.harden()
    assert engine.try_append("t", plain(2), reported, idempotency_key="k")
    assert (await reported.all(2))[1].first_seq == 1
    assert await data(engine, "t") == [2]


async def test_try_append_declines_a_known_or_pending_key(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    reported = Outcomes()
    again = asyncio.create_task(engine.append("t", [record(1)], idempotency_key="k"))
    assert engine.try_append("t", plain(1), reported, idempotency_key="k")
    assert not engine.try_append("t", plain(1), reported, idempotency_key="k")
    [first] = await reported.all(1)
    answer = await again
    assert (answer.deduped, answer.first_seq, answer.payload_differs) == (True, first.first_seq, False)
    assert not engine.try_append("t", plain(1), reported, idempotency_key="k")
    assert await seqs(engine, "t") == [1]


async def test_a_write_that_shares_a_pending_key_shares_its_failure(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    machine.disk.fail("pwritev", "*/wal-*")
    reported = Outcomes()
    sharing = [asyncio.create_task(outcome(engine.append("t", [record(1)], idempotency_key="k"))) for _ in range(3)]
    sharing[0].get_loop().call_soon(sharing[1].cancel)
    # The tasks take their first step after this, and before the outcome of the write.
    assert engine.try_append("t", plain(1), reported, idempotency_key="k")
    outcomes = await asyncio.gather(*sharing, return_exceptions=True)
    assert [type(each) for each in outcomes] == [StorageFailed, asyncio.CancelledError, StorageFailed]
    assert [type(each) for each in await reported.all(1)] == [StorageFailed]


async def test_a_result_callback_may_write_again(machine: Machine) -> None:
    """Like a connection that has the next request already."""
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    reported = Outcomes()

    def again(outcome: Appended | Exception) -> None:
        reported(outcome)
        if len(reported.outcomes) < 10:
            assert engine.try_append(
                "t", plain(len(reported.outcomes)), again, idempotency_key=str(len(reported.outcomes))
            )

    assert engine.try_append("t", plain(0), again)
    assert engine.try_append("t", plain("beside"), reported)
    outcomes = await reported.all(10)
    assert sorted(each.first_seq for each in outcomes) == list(range(1, 11))
    shard = engine.shards[0]
    assert (shard.queued_frames, shard.queued_bytes, len(shard.unresolved)) == (0, 0, 0)


async def test_a_result_callback_may_write_again_after_a_failure(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    machine.disk.fail("pwritev", "*/wal-*", errno=errno.ENOSPC)
    reported = Outcomes()
    refused: list[Exception] = []

    def again(outcome: Appended | Exception) -> None:
        reported(outcome)
        try:
            engine.try_append("t", plain("again"), reported)
        except StorageFull as error:
            refused.append(error)

    for _ in range(2):
        assert engine.try_append("t", PlainRecords([sized(100).data]), again)
    assert [type(each) for each in await reported.all(2)] == [StorageFull] * 2
    assert len(refused) == 2
    assert (engine.state("t").head_seq, log_of(engine, "t").assigned_head) == (0, 0)


async def test_a_cap_evicts_as_with_any_write(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", TopicConfig(durability=Durability.FSYNC, cap_records=3))
    reported = Outcomes()
    for number in range(3):
        assert engine.try_append("t", plain(number, number), reported)
    await reported.all(3)
    assert await seqs(engine, "t") == [4, 5, 6]
    engine = await machine.cut_power()
    assert await seqs(engine, "t") == [4, 5, 6]


async def test_a_failing_result_does_not_affect_other_results(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await machine.start()
    for name in ("t", "other"):
        await engine.put_topic(name, TopicConfig(durability=Durability.DISK))  # an fsync topic reserves nothing
    look_ahead = engine.reservations.look_ahead

    def broken(topic: Any) -> None:
        if topic.name == "t":
            raise RuntimeError("a defect")
        look_ahead(topic)

    monkeypatch.setattr(engine.reservations, "look_ahead", broken)
    reported = Outcomes()
    assert engine.try_append("t", plain(1), reported)
    assert engine.try_append("other", plain(1), reported)
    outcomes = await reported.all(2)
    assert [type(each) for each in outcomes] == [RuntimeError, Appended]
    assert engine.shards[0].queued_frames == 0


async def test_after_a_restart_a_key_written_this_way_is_known(machine: Machine) -> None:
    engine = await machine.start()
    await engine.put_topic("t", FSYNC)
    reported = Outcomes()
    assert engine.try_append("t", plain(1, 2), reported, node="n", idempotency_key="k")
    await reported.all(1)
    engine = await machine.cut_power()
    again = await engine.append("t", [record(1), record(2)], node="n", idempotency_key="k")
    assert (again.deduped, again.first_seq, again.count, again.payload_differs) == (True, 1, 2, False)
    assert (await engine.append("t", [record(1)], idempotency_key="k")).payload_differs


async def test_the_machine_does_not_care_which_way_a_record_came(machine: Machine) -> None:
    engine: Engine = await machine.start()
    for name in ("a", "b"):
        await engine.put_topic(name, FSYNC)
    reported = Outcomes()
    assert engine.try_append("a", plain({"x": 1}, "é", None), reported, node="n")
    await reported.all(1)
    await engine.append("b", [record({"x": 1}), record("é"), record(None)], node="n")
    one, other = engine.state("a"), engine.state("b")
    assert (one.count, one.bytes, one.head_seq) == (other.count, other.bytes, other.head_seq)
    for seq in (1, 2, 3):
        assert (await engine.read_one("a", seq))[2:] == (await engine.read_one("b", seq))[2:]
