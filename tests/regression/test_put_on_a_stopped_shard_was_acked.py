"""A change of a config failed with its shard. A PUT back to the old config was acked, but a restart brought the failed
change."""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed
from tests.support.crash_session import Session
from tests.support.sim_disk import SimDisk


async def test_a_put_of_the_old_config_fails_while_the_new_config_may_be_in_the_log() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.put("t", TopicConfig(durability=Durability.DISK))
    session.disk.fail("datasync")
    await session.put("t", TopicConfig(durability=Durability.FSYNC))
    await session.put("t", TopicConfig(durability=Durability.DISK))
    assert [error.code for error in session.refusals] == ["storage_failed", "storage_failed"]
    await succeed(session, Cut(End.KILL), orderly=False)
