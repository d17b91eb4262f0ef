"""A start on a full disk failed if there was a torn end of the log to set aside, because quarantine/ had no room for
the copy."""

from __future__ import annotations

import pytest

from storage import Durability, TopicConfig
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk, When


@pytest.mark.parametrize("room", [0, 100])
async def test_a_torn_tail_is_cut_and_counted_when_quarantine_has_no_room(room: int) -> None:
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


async def test_losses_are_announced_when_a_full_disk_has_no_room_for_their_frame() -> None:
    """Power is lost when the reserve is used up. The start does without the frame, and writes it before anything
    else."""
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("d", 3, config=TopicConfig(durability=Durability.DISK))
    await session.append("d", 2)
    session.disk.remove_file(f"{ROOT}/wal/reserve")  # used up
    session.disk.capacity_bytes = 3000
    second = await succeed(session, Cut(End.POWER, Loss.DROP))
    assert second.engine.shards[0].log.full
    await second.append("d")
    await second.put("d", TopicConfig(durability=Durability.FSYNC))
    assert [error.code for error in second.refusals] == ["storage_full"] * 2
    third = await succeed(second, Cut(End.KILL))
    third.disk.capacity_bytes = None
    await third.pass_time(600)
    await third.put("d", TopicConfig(durability=Durability.FSYNC))
    await third.append("d")
    await succeed(third, Cut(End.POWER, Loss.DROP))


async def test_early_writes_wait_until_the_losses_are_announced() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("d", 3, config=TopicConfig(durability=Durability.DISK))
    session.disk.remove_file(f"{ROOT}/wal/reserve")  # used up
    session.disk.capacity_bytes = 3000
    second = await succeed(session, Cut(End.POWER, Loss.DROP))
    second.disk.capacity_bytes = None
    await second.pass_time(600)
    await second.together(second.append("d", 2), second.append("d"))
    third = await succeed(second, Cut(End.KILL), orderly=False)
    first_loss = (await view(third.engine))["d"].tombstones[0]
    assert (first_loss.gap_from, first_loss.gap_to, first_loss.reason) == (4, 256, "crash")
