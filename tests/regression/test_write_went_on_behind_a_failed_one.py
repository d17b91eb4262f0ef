"""A group did not fit into one file. Its first part failed, but the first write of the next part was written.

The seqs of that write followed seqs that do not exist. The next start reported missing records, or took the gap for a
reservation.
"""

from __future__ import annotations

import errno

import msgspec
import pytest

from storage import Durability, TopicConfig
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed
from tests.support.crash_session import Session
from tests.support.sim_disk import Loss, SimDisk

OPTIONS = msgspec.structs.replace(SMALL, wal_file_bytes=4096, wal_reserve_bytes=4096)


@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.DISK])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_no_write_of_a_group_is_written_after_a_failed_write(code: int, durability: Durability) -> None:
    session = Session(SimDisk(), OPTIONS)
    await session.start()
    await session.append("t", size=900, config=TopicConfig(durability=durability))
    session.disk.fail("pwritev", "*/wal-*.log", errno=code)
    await session.together(*(session.append("t", size=900) for _ in range(7)))
    assert {error.code for error in session.refusals} == {"storage_failed" if code == errno.EIO else "storage_full"}
    assert len(session.refusals) == 7
    await session.pass_time(600)
    await session.append("t", 2)
    for cut in (Cut(End.KILL), Cut(End.POWER, Loss.DROP)):
        ledger = session.ledger.copy()
        await succeed(Session(session.disk, OPTIONS, clock=session.clock, ledger=ledger), cut, orderly=False)
