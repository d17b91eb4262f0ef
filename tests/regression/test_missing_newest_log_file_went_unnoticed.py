"""Acked records were lost without notice when the newest log file was missing, or shorter than a snapshot says.

Only gaps between files were noticed. Now CURRENT says which file was begun last.
"""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from storage.errors import DataError, WalCorrupt
from tests.support.crash_run import SMALL
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import SimDisk

FSYNC = TopicConfig(durability=Durability.FSYNC)


async def _written(*, stops: int) -> SimDisk:
    """A directory with acked records in its newest log file, after some clean stops."""
    session = Session(SimDisk(), SMALL)
    await session.start()
    for _ in range(stops):
        await session.append("t", config=FSYNC)
        await session.close()
        await session.start()
    await session.append("t", 2, config=FSYNC)
    return session.disk.process_kill()


def _newest(disk: SimDisk) -> str:
    return max(path for path in disk.tree() if "/wal-" in path and disk.read_file(path).strip(b"\0"))


@pytest.mark.parametrize("stops", [0, 1, 3])
async def test_a_missing_newest_file_is_refused(stops: int) -> None:
    disk = await _written(stops=stops)
    for path in [path for path in disk.tree() if path >= _newest(disk) and "/wal-" in path]:
        disk.remove_file(path)
    before = disk.content()
    with pytest.raises(WalCorrupt) as caught:
        await Session(disk, SMALL).start()
    assert caught.value.file not in disk.tree()
    assert {path: data for path, data in disk.content().items() if "/wal" in path or "/meta" in path} == {
        path: data for path, data in before.items() if "/wal" in path or "/meta" in path
    }


async def test_a_file_that_ends_before_the_replay_start_of_the_snapshot_is_refused() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 3, config=FSYNC)
    await session.remove("t", before_seq=4)
    await session.snapshot()
    disk = session.disk.process_kill()
    path = f"{ROOT}/wal/wal-0000000000000001.log"
    disk.cut_file(path, 100)
    with pytest.raises(DataError) as caught:
        await Session(disk, SMALL).start()
    assert (caught.value.detail["file"], caught.value.detail["offset"]) == (path, 100)
