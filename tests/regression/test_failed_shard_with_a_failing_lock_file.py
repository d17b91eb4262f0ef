"""A shard stopped, and .lock did not say so or could not be written. Then nobody else was told of the stop."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.support.crash_run import SMALL
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import SimDisk


async def test_a_shard_failure_is_reported_and_unpublished_seqs_are_taken_back() -> None:
    session = Session(SimDisk(), SMALL)
    told: list[tuple[int, int | None]] = []
    await session.start()
    session.engine.on_shard_failed = lambda shard, errno: told.append((shard, errno))
    await session.append("t", config=TopicConfig(durability=Durability.FSYNC))
    session.disk.fail("lock_write", sticky=True)
    session.disk.fail("datasync", sticky=True)
    generation = session.engine.shards[0].generation
    await session.append("t")
    assert [error.code for error in session.refusals] == ["storage_failed"]
    assert told == [(0, 5)]
    assert session.engine.shards[0].generation > generation
    await session.close()


async def test_a_shard_failure_during_close_is_remembered_for_the_next_start() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", config=TopicConfig(durability=Durability.DISK))
    await session.append("t", 2)
    session.disk.fail("sync", "*/wal-*.log")
    await session.close()
    assert session.disk.read_file(f"{ROOT}/.lock").split(b"\n")[1] == b"failed"
