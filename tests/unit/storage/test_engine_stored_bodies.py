"""Appends of stored bodies: like any other append, with the same counts after every restart."""

from __future__ import annotations

import json

import pytest

from storage import Durability, ReadQuery, TagMatch, TopicConfig
from storage.errors import SeqConflict
from storage.records.values import Appended, StoredBodies
from tests.unit.storage.machine import Machine, records, seqs

DISK, FSYNC = TopicConfig(durability=Durability.DISK), TopicConfig(durability=Durability.FSYNC)
BODIES = [
    b'{"data":{"a":1,"meta":2},"ct":1700000000000,"h":[["n","AA=="]]}',
    b"\x82\xd9\x01v\xc4\x02\x00\xff\xa2ct\x05",
    b'{"data":"x","ct":1700000000001}',
]
MIXED = StoredBodies(BODIES, [b"key", b"", "ü".encode()], b"\x00\x01\x00")


async def test_stored_bodies_are_read_byte_for_byte(machine: Machine) -> None:
    engine = await machine.start()
    done = await engine.append("t", MIXED, node="n", config=FSYNC)
    assert (done.first_seq, done.last_seq, done.count) == (1, 3, 3)
    engine = await machine.cut_power()
    found = (await engine.read("t", ReadQuery())).records
    assert [each.body for each in found] == BODIES
    assert [each.tag for each in found] == MIXED.tags
    assert [each.binary for each in found] == [False, True, False]


async def test_stored_bodies_have_the_same_count_and_bytes_after_a_restart(machine: Machine) -> None:
    engine = await machine.start(segment_max_events=2, checkpoint_records=1)
    await engine.append("t", MIXED, config=FSYNC)
    await engine.append("t", StoredBodies([BODIES[2]] * 40))
    before = engine.state("t")
    assert before.bytes == sum(len(each) - 9 for each in BODIES) + 40 * (len(BODIES[2]) - 9)
    for again in (machine.kill, machine.cut_power, machine.restart):
        engine = await again()
        state = engine.state("t")
        assert (state.count, state.bytes, state.head_seq) == (before.count, before.bytes, before.head_seq)
    await engine.segment_worker.flush_all()
    engine = await machine.kill()
    assert (engine.state("t").count, engine.state("t").bytes) == (before.count, before.bytes)


async def test_stored_bodies_are_found_by_tag(machine: Machine) -> None:
    engine = await machine.start()
    await engine.append("t", MIXED)
    for _ in range(2):
        assert await seqs(engine, "t", tag=TagMatch(b"key")) == [1]
        engine = await machine.kill()


async def test_idempotency_and_refusals_apply_to_stored_bodies(machine: Machine) -> None:
    engine = await machine.start()
    first = await engine.append("t", MIXED, idempotency_key="k", config=FSYNC)
    again = await engine.append("t", MIXED, idempotency_key="k")
    later = StoredBodies([BODIES[0].replace(b"1700000000000", b"1800000000000"), *BODIES[1:]], MIXED.tags, MIXED.binary)
    also = await engine.append("t", later, idempotency_key="k")
    other = await engine.append("t", StoredBodies(BODIES, None, MIXED.binary), idempotency_key="k")
    assert [each.first_seq for each in (first, again, also, other)] == [1] * 4
    assert [each.payload_differs for each in (again, also, other)] == [False, False, True]
    with pytest.raises(SeqConflict):
        await engine.append("t", MIXED, expected_seq=1)
    told: list[Appended | Exception] = []
    assert engine.try_append("t", MIXED, told.append)
    await engine.append("t", records(1))
    assert isinstance(told[0], Appended)
    assert told[0].first_seq == 4


async def test_a_write_in_a_hurry_is_synced_at_once_and_acked_before(machine: Machine) -> None:
    engine = await machine.start(disk_sync_ms=10_000)
    await engine.append("t", MIXED, config=DISK)
    before = engine.shards[0].log.syncs
    await engine.append("t", MIXED)
    assert engine.shards[0].log.syncs == before
    assert engine.shards[0].log.dirty_since_ns is not None
    done = await engine.append("t", MIXED, hasten=True)
    assert done.fsync_ms == 0.0
    assert engine.shards[0].log.syncs == before + 1
    engine = await machine.cut_power()
    assert json.loads((await engine.read_one("t", 9)).body)["data"] == "x"
