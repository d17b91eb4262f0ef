"""A process was killed between mkdir and the fsync of the parent folder. No later process made the new folder durable.

A power loss then took the data directory, or its wal/ or meta/, with everything acked in it.
"""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from tests.support.crash_run import SMALL, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk, When


@pytest.mark.parametrize("folder", ["/data", ROOT, f"{ROOT}/meta", f"{ROOT}/wal"])
async def test_a_folder_left_by_a_killed_process_is_synced_at_the_start(folder: str) -> None:
    disk = SimDisk()
    disk.crash_on("mkdir", folder, when=When.AFTER)
    await until_crash(disk, Session(disk, SMALL).start())
    second = Session(disk.process_kill(), SMALL)
    await second.start()
    await second.append("t", config=TopicConfig(durability=Durability.FSYNC))
    third = Session(second.disk.power_cut(Loss.DROP), SMALL)
    await third.start()
    assert third.engine.state("t").count == 1
