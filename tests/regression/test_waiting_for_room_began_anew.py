"""A write whose room in the log's queue was taken by others waited for its whole timeout again and again, for
seconds."""

from __future__ import annotations

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import WalSaturated
from storage.records.values import PlainRecords
from tests.unit.storage.machine import Machine, raw, records

FSYNC = TopicConfig(durability=Durability.FSYNC)
TIMEOUT_MS = 60_000


async def fill(engine: Engine) -> None:
    """The queue holds more than leaves room, until the loop continues."""
    while engine.shards[0].has_room(8, 1):
        assert engine.try_append("t", PlainRecords([raw(0)]), lambda _: None)


async def test_earlier_waits_for_room_count_toward_the_timeout() -> None:
    async with Machine() as machine:
        engine = await machine.start(wal_queue_frames=30, wal_enqueue_timeout_ms=TIMEOUT_MS)
        await engine.put_topic("t", FSYNC)
        shard = engine.shards[0]
        await fill(engine)
        with pytest.raises(WalSaturated):
            await shard.wait_room(8, 1, TIMEOUT_MS * 1_000_000)
        await fill(engine)
        await shard.wait_room(8, 1, TIMEOUT_MS * 1_000_000 // 2)
        assert shard.has_room(8, 1)


async def test_a_write_reports_its_total_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Machine() as machine:
        engine = await machine.start(wal_queue_frames=30, wal_enqueue_timeout_ms=TIMEOUT_MS)
        await engine.put_topic("t", FSYNC)
        shard = engine.shards[0]
        waited: list[int] = []

        async def taken_by_others(frames: int, size_bytes: int, waited_ns: int = 0) -> None:
            waited.append(waited_ns)
            machine.clock.tick(30)

        def has_room(frames: int, size_bytes: int, *, internal: bool = False) -> bool:
            return next(rooms, True)

        rooms = iter([False, False, True])
        monkeypatch.setattr(shard, "wait_room", taken_by_others)
        monkeypatch.setattr(shard, "has_room", has_room)
        done = await engine.append("t", records(1))
        assert waited == [0, 30_000_000]
        assert done.throttle_wait_ms == 60
