"""Reads of a topic with a ttl failed when the log could not take the watermark that says what has expired."""

from __future__ import annotations

import errno

import pytest

from storage import Durability, ReadQuery, TopicConfig
from storage.errors import RecordNotFound, StorageFailed, StorageFull
from tests.unit.storage.machine import DATA, Machine, outcome, record

IDLE = {"expiry_interval_ms": 10**9}


async def a_topic_with_one_expired_record(machine: Machine):
    engine = await machine.start(**IDLE)
    await engine.append("t", [record("old")], config=TopicConfig(ttl_ms=100, durability=Durability.FSYNC))
    await machine.clock.advance(90)
    await engine.append("t", [record("new")])
    await machine.clock.advance(60)
    return engine


async def test_a_single_live_record_is_read_after_a_failed_sync() -> None:
    async with Machine() as machine:
        engine = await a_topic_with_one_expired_record(machine)
        machine.disk.fail("datasync", errno=errno.EIO)
        assert isinstance(await outcome(engine.append("t", [record()])), StorageFailed)
        assert (await engine.read_one("t", 2)).body == b'{"data":"new"}'
        with pytest.raises(RecordNotFound):
            await engine.read_one("t", 1)


async def test_on_a_disk_without_any_space_reads_go_on() -> None:
    async with Machine() as machine:
        engine = await a_topic_with_one_expired_record(machine)
        machine.disk.unlink(f"{DATA}/wal/reserve")
        machine.disk.fail("pwritev", errno=errno.ENOSPC, sticky=True)
        machine.disk.fail("allocate", errno=errno.ENOSPC, sticky=True)
        assert isinstance(await outcome(engine.append("t", [record()])), StorageFull)
        result = await engine.read("t", ReadQuery())
        assert [each.seq for each in result.records] == [2]
        assert (await engine.read_one("t", 2)).seq == 2
