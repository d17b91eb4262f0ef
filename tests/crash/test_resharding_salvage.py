"""Salvage and another shard count: in one start, one after the other, and stopped in between."""

from __future__ import annotations

import msgspec
import pytest

from storage import Options
from storage.errors import WalCorrupt
from tests.crash.resharding import decoded, log_folders
from tests.crash.salvage import NORMAL, SALVAGE, Damaged, broken_promises, lost_writes, salvaged, written
from tests.support.crash_run import until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import TopicView, view
from tests.support.sim_disk import Loss, SimDisk, When

COUNTS = [1, 3]


def shards(options: Options, count: int) -> Options:
    return msgspec.structs.replace(options, wal_shards=count)


async def damaged_at(write: int, *, snapshot: bool = False) -> Damaged:
    damaged = await written(snapshot=snapshot)
    path, offset = damaged.find(write)
    damaged.disk.flip_byte(path, offset + 20)
    return damaged


async def reopened(session: Session, damaged: Damaged, count: int) -> tuple[Session, dict[str, TopicView]]:
    """A normal start with this count after a kill, compared with what salvage may have done."""
    again = await damaged.open(shards(NORMAL, count), session.disk.process_kill())
    assert len(again.engine.shards) == count
    seen = await view(again.engine)
    assert broken_promises(seen, damaged.ledger) == []
    decoded(again.disk)
    return again, seen


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("write", [3, 6, 9, 12])
async def test_salvage_with_a_new_shard_count_loses_the_same_writes_as_salvage_alone(
    write: int, snapshot: bool
) -> None:
    damaged = await damaged_at(write, snapshot=snapshot)
    epochs = {life.name: life.epoch for life in damaged.ledger.lives}
    with pytest.raises(WalCorrupt):
        await damaged.open(shards(NORMAL, 3))
    seen = await salvaged(damaged, shards(SALVAGE, 3), shards(NORMAL, 3))
    assert lost_writes(seen, damaged.ledger) == {write}
    assert "salvage" in {each.reason for found in seen.values() for each in found.tombstones}
    assert all(seen[name].state.epoch > epochs[name] for name in epochs)


async def test_salvage_with_a_new_shard_count_keeps_discarded_bytes_in_quarantine() -> None:
    damaged = await damaged_at(9)
    session = await damaged.open(shards(SALVAGE, 3))
    kept = [path for path in session.disk.tree() if path.startswith(f"{ROOT}/quarantine/shard")]
    assert any(b'"w":9' in session.disk.read_file(path) for path in kept)
    assert sorted(log_folders(session.disk)) == [f"wal/shard-{shard:02d}" for shard in range(3)]


@pytest.mark.parametrize("how", ["missing", "zeroed", "cut"])
async def test_missing_zeroed_and_cut_files_are_salvaged_with_a_new_shard_count(how: str) -> None:
    damaged = await written(snapshot=how == "cut")
    path = damaged.logs()[1]
    if how == "missing":
        damaged.disk.remove_file(path)
    elif how == "zeroed":
        damaged.disk.zero(path, 512, 512)
    else:
        where, offset = damaged.find(5)
        damaged.disk.cut_file(where, offset + 10)
    alone = lost_writes(await salvaged(damaged), damaged.ledger)
    assert lost_writes(await salvaged(damaged, shards(SALVAGE, 3), shards(NORMAL, 3)), damaged.ledger) == alone


async def test_a_refused_start_with_another_shard_count_changes_no_file() -> None:
    damaged = await damaged_at(9)
    disk = damaged.disk.process_kill()
    before = disk.content()
    with pytest.raises(WalCorrupt):
        await damaged.open(shards(NORMAL, 3), disk)
    after = disk.content()
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= {f"{ROOT}/.lock"}


async def test_the_count_changes_after_salvage_and_back() -> None:
    damaged = await damaged_at(9)
    session = await damaged.open(SALVAGE)
    seen = await view(session.engine)
    for count in (3, 1, 2):
        session, found = await reopened(session, damaged, count)
        assert {name: each.records for name, each in found.items()} == {n: each.records for n, each in seen.items()}
        assert {name: each.state.epoch for name, each in found.items()} == {n: e.state.epoch for n, e in seen.items()}
        assert lost_writes(found, damaged.ledger) == {9}


@pytest.mark.parametrize("count", COUNTS)
async def test_damage_after_a_change_is_salvaged(count: int) -> None:
    """With the count of the new layout, and with a third one in the same start."""
    damaged = await written()
    session = await damaged.open(shards(NORMAL, 2))
    for number in range(6):
        await session.append("f", 1 + number % 3, size=120)
        await session.append("d", 2, size=150)
    await session.pass_time(1500)
    await session.append("f")
    behind = Damaged(session.disk.process_kill(), damaged.ledger, damaged.clock, 0)
    life = damaged.ledger.live("f")
    assert life is not None
    write = life.writes[-4].number
    path, offset = behind.find(write)
    assert "/shard-" in path
    behind.disk.flip_byte(path, offset + 20)
    with pytest.raises(WalCorrupt):
        await behind.open(shards(NORMAL, 2))
    with pytest.raises(WalCorrupt):
        await behind.open(shards(NORMAL, count))
    for wanted in (2, count):
        seen = await salvaged(behind, shards(SALVAGE, wanted), shards(NORMAL, wanted))
        assert lost_writes(seen, damaged.ledger) == {write}


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("seed", range(24))
async def test_a_crash_during_salvage_with_a_new_shard_count_can_be_salvaged_again(seed: int, snapshot: bool) -> None:
    """Also with the old count. Whatever the crash left, a write is lost once and announced."""
    damaged = await damaged_at(5, snapshot=snapshot)
    points = (await damaged.open(shards(SALVAGE, 3))).disk.crash_points()
    disk = damaged.disk.process_kill()
    disk.crash_at(points[seed * len(points) // 24], list(When)[seed % 3])
    await until_crash(disk, damaged.open(shards(SALVAGE, 3), disk))
    found = Damaged(disk.power_cut(Loss.TORN, seed), damaged.ledger, damaged.clock, 0)
    count = COUNTS[seed % 2]
    seen = await salvaged(found, shards(SALVAGE, count), shards(NORMAL, count))
    assert lost_writes(seen, damaged.ledger) == {5}


async def _stopped(damaged: Damaged, index: int, when: When) -> SimDisk:
    disk = damaged.disk.process_kill()
    disk.crash_at(index, when)
    await until_crash(disk, damaged.open(shards(SALVAGE, 3), disk))
    return disk


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_crash_at_any_call_of_salvage_with_a_new_shard_count_can_be_salvaged_again(snapshot: bool) -> None:
    damaged = await damaged_at(5, snapshot=snapshot)
    for index in (await damaged.open(shards(SALVAGE, 3))).disk.crash_points():
        for when in When:
            disk = await _stopped(damaged, index, when)
            for left in (disk.process_kill(), disk.power_cut(Loss.DROP), disk.power_cut(Loss.TORN, index)):
                for count in COUNTS:
                    found = Damaged(left.process_kill(), damaged.ledger, damaged.clock, 0)
                    try:
                        seen = await salvaged(found, shards(SALVAGE, count), shards(NORMAL, count))
                        assert lost_writes(seen, damaged.ledger) == {5}
                    except BaseException as error:
                        error.add_note(f"call {index}, {when}, then {count}")
                        raise
