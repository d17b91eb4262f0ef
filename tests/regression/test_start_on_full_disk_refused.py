"""A start on a full disk failed when there was a torn tail to set aside: no room for the copy in quarantine/."""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from tests.support.crash_run import SMALL, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.sim_disk import Loss, SimDisk, When


@pytest.mark.parametrize("room", [0, 100])
async def test_the_tail_is_cut_and_counted_when_there_is_no_room_to_keep_it(room: int) -> None:
    first = Session(SimDisk(), SMALL)
    await first.start()
    await first.append("t", 2, config=TopicConfig(durability=Durability.FSYNC))
    first.disk.crash_on("pwritev", "*.log", when=When.HALF)
    await until_crash(first.disk, first.append("t", 3, size=200))
    disk = first.disk.process_kill()
    disk.capacity_bytes = disk.used_bytes + room
    second = Session(disk, SMALL)
    await second.start()
    assert second.engine.state("t").count == 2
    assert second.engine.report.discarded_bytes > 100
    assert [path for path in disk.tree() if path.startswith(f"{ROOT}/quarantine/shard")] == []


async def test_every_start_on_a_full_disk_has_a_reserve_to_delete_with() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 9, config=TopicConfig(durability=Durability.FSYNC))
    disk = session.disk.process_kill()
    for seq in range(2, 6):
        disk.capacity_bytes = SMALL.wal_reserve_bytes + 4000
        session = Session(disk, SMALL)
        await session.start()
        assert session.engine.shards[0].log.full
        assert (await session.engine.delete_records("t", before_seq=seq)).earliest_seq == seq
        disk = disk.process_kill()


@pytest.mark.parametrize("size", [0, 100])
async def test_a_reserve_left_half_made_is_made_again(size: int) -> None:
    disk = SimDisk()
    disk.write_file(f"{ROOT}/wal/reserve", bytes(size))
    disk.write_file(f"{ROOT}/FORMAT", b"1\nc\n1\n")
    session = Session(disk, SMALL)
    await session.start()
    assert disk.tree()[f"{ROOT}/wal/reserve"] == SMALL.wal_reserve_bytes
    assert f"{ROOT}/wal/reserve" in disk.power_cut(Loss.DROP).tree()
