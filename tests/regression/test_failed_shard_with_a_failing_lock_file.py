"""A shard stopped and .lock could not be written either: nobody was told, and heads stayed beyond what is there."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.support.crash_run import SMALL
from tests.support.crash_session import Session
from tests.support.sim_disk import SimDisk


async def test_the_failure_is_told_and_unpublished_seqs_are_taken_back() -> None:
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
