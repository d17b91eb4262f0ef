"""A commit whose effect cannot be computed, because a segment that it needs is unreadable, raised an exception in a
callback of the loop. The commit and its whole group were never answered. Now the shard stops, as after a failed sync,
and the next start decides.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from storage import Durability, Engine, TopicConfig
from storage.errors import StorageFailed
from storage.format import control
from storage.log.encode import encode_controls
from storage.records.values import PlainRecords
from tests.support.fake_clock import FakeClock
from tests.support.sim_disk import SimDisk
from tests.unit.storage.machine import DATA, options, outcome, record, seqs

FSYNC = TopicConfig(durability=Durability.FSYNC)


async def test_a_commit_that_cannot_be_applied_fails_its_writes_and_the_next_start_recovers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, clock = SimDisk(), FakeClock()
    engine = Engine(DATA, options(checkpoint_records=1), fs=disk, clock=clock, threaded=False)
    await engine.start()
    for number in range(6):
        await engine.append("t", [record(number)], config=FSYNC)
    await engine.segment_worker.flush_all()

    def unreadable(*_: Any) -> Any:
        raise OSError(errno.EIO, "unreadable")

    monkeypatch.setattr(engine.store, "details", unreadable)
    log = engine.catalog.topics["t"].log
    evicts = encode_controls([control.EvictWatermark(floors={"ttl": 4})], log.topic_id, engine.now_ms())
    told: list[Any] = []
    async with asyncio.timeout(5):
        evicting = engine.submit_controls(log, evicts)
        for number, key in ((7, None), (8, "k")):  # in the same group, and synced with it
            assert engine.try_append("t", PlainRecords([record(number).data]), told.append, idempotency_key=key)
        told.append(await outcome(evicting))
    assert [type(each) for each in told] == [StorageFailed] * 3
    assert engine.failed_shards == [(0, errno.EIO)]
    assert isinstance(await outcome(engine.append("t", [record(9)])), StorageFailed)
    await engine.supervisor.stop()
    after = Engine(DATA, options(), fs=disk.process_kill(), clock=clock, threaded=False)
    await after.start()
    # These writes were synced before applying failed. Their callers get an unknown outcome; all others see the records.
    assert await seqs(after, "t", from_seq=3) == [4, 5, 6, 7, 8]
    assert (await after.append("t", [record(8)], idempotency_key="k")).deduped
    assert after.state("t").evict_floor == 4
    await after.close()
