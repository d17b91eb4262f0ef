"""A process at its limit of open files could not begin the next log file, and the shard stopped for good."""

from __future__ import annotations

import errno

import msgspec
import pytest

from storage import Durability, TopicConfig
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed
from tests.support.crash_session import Session
from tests.support.sim_disk import Loss, SimDisk

OPTIONS = msgspec.structs.replace(SMALL, wal_file_bytes=2048)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
async def test_a_shard_refuses_writes_until_file_descriptors_are_available(code: int) -> None:
    session = Session(SimDisk(), OPTIONS)
    await session.start()
    await session.append("t", config=TopicConfig(durability=Durability.FSYNC))
    session.disk.fail("open", "*/wal/*", errno=code, sticky=True)
    for _ in range(6):
        await session.append("t", size=900)
    assert {error.code for error in session.refusals} == {"storage_full"}
    assert session.engine.failed_shards == []
    session.disk.clear_faults()
    await session.pass_time(600)
    assert await session.append("t") is not None
    await succeed(session, Cut(End.POWER, Loss.DROP))
