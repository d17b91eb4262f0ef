"""After a crash right after a snapshot, recovery truncated the log file in which the snapshot begins, and quarantined
its frames.

The snapshot before still needed these frames, in case the newest one cannot be read.
"""

from __future__ import annotations

from storage import Durability, TopicConfig
from tests.support.crash_run import SMALL
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk


async def test_recovery_from_the_older_snapshot_gives_the_same_state() -> None:
    first = Session(SimDisk(), SMALL)
    await first.start()
    await first.put("t", TopicConfig(durability=Durability.FSYNC))
    await first.snapshot()
    await first.append("t", 3)
    await first.remove("t", before_seq=4)
    await first.snapshot()
    second = Session(first.disk.power_cut(Loss.DROP), SMALL)
    await second.start()
    found = await view(second.engine)
    assert f"{ROOT}/quarantine" not in second.disk.tree()
    damaged = second.disk.process_kill()
    damaged.flip_byte(f"{ROOT}/meta/snapshot-0000000000000002.bin", 40)
    third = Session(damaged, SMALL)
    await third.start()
    assert await view(third.engine) == found
