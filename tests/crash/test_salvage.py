"""TOPICS_RECOVERY=salvage gives up as little as possible of a damaged log, announces every loss, and the next start is
a normal one."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from storage.errors import WalCorrupt
from tests.crash.salvage import NORMAL, SALVAGE, Damaged, broken_promises, lost_writes, salvaged, written
from tests.support.crash_run import until_crash
from tests.support.crash_session import ROOT
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, When


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("write", [3, 6, 9, 12])
async def test_salvage_of_a_flipped_byte_loses_only_the_damaged_batch(write: int, snapshot: bool) -> None:
    damaged = await written(snapshot=snapshot)
    epochs = {life.name: life.epoch for life in damaged.ledger.lives}
    path, offset = damaged.find(write)
    damaged.disk.flip_byte(path, offset + 20)
    with pytest.raises(WalCorrupt):
        await damaged.open(NORMAL)
    seen = await salvaged(damaged)
    assert lost_writes(seen, damaged.ledger) == {write}
    reasons = {each.reason for found in seen.values() for each in found.tombstones}
    assert "salvage" in reasons
    assert all(seen[name].state.epoch > epochs[name] for name in epochs)
    assert len({found.state.epoch for found in seen.values()}) == 2


@pytest.mark.parametrize("index", [1, 4, 7])
async def test_salvage_of_a_damaged_batch_frame_loses_only_the_damaged_batch(index: int) -> None:
    damaged = await written()
    write = [write for life in damaged.ledger.lives for write in life.writes if len(write.records) > 1][index]
    path, offset = damaged.find(write.number)
    batch = damaged.disk.read_file(path).rfind(b"\xa6frames", 0, offset)
    damaged.disk.flip_byte(path, batch + 3)
    assert lost_writes(await salvaged(damaged), damaged.ledger) == {write.number}


async def test_several_damages_in_several_files() -> None:
    damaged = await written()
    for write in (2, 9, 10, 15):
        path, offset = damaged.find(write)
        damaged.disk.flip_byte(path, offset)
    assert lost_writes(await salvaged(damaged), damaged.ledger) == {2, 9, 10, 15}


async def test_salvage_of_a_zeroed_page_loses_only_the_batches_on_that_page() -> None:
    damaged = await written()
    path = damaged.logs()[1]
    damaged.disk.zero(path, 512, 512)
    lost = lost_writes(await salvaged(damaged), damaged.ledger)
    assert 1 <= len(lost) <= 5


async def test_salvage_of_a_missing_file_loses_only_the_writes_in_the_file() -> None:
    damaged = await written()
    path = damaged.logs()[1]
    content = damaged.disk.read_file(path)
    writes = [write for life in damaged.ledger.lives for write in life.writes]
    damaged.disk.remove_file(path)
    inside = {write.number for write in writes if write.records[0].data in content}
    assert lost_writes(await salvaged(damaged), damaged.ledger) == inside


async def test_salvage_of_a_log_that_ends_before_its_snapshot_loses_the_missing_writes() -> None:
    damaged = await written(snapshot=True, options=msgspec.structs.replace(NORMAL, wal_file_bytes=65536))
    (path,) = damaged.logs()
    _, offset = damaged.find(5)
    damaged.disk.cut_file(path, offset + 10)
    with pytest.raises(WalCorrupt):
        await damaged.open(NORMAL)
    lost = lost_writes(await salvaged(damaged), damaged.ledger)
    assert lost >= {5, 6, 7, 8, 9, 10, 11, 12}


async def test_salvage_of_an_undamaged_directory_has_no_effect() -> None:
    damaged = await written(snapshot=True)
    intact = await damaged.open(NORMAL)
    session = await damaged.open(SALVAGE)
    assert await view(session.engine) == await view(intact.engine)


async def test_a_topic_whose_creation_is_lost_is_reported_with_its_seqs() -> None:
    structlog.reset_defaults()
    damaged = await written()
    damaged.disk.flip_byte(damaged.logs()[0], 60)
    with structlog.testing.capture_logs() as logs:
        session = await damaged.open(SALVAGE)
    assert [state.topic for state in session.engine.topics()] == ["d"]
    life = damaged.ledger.live("f")
    assert life is not None
    assert [entry for entry in logs if entry["event"] == "log_lost"] == [
        {"event": "log_lost", "log_level": "error", "topic_id": life.topic_id, "first_seq": 1, "last_seq": 23}
    ]


async def test_an_io_error_is_no_damage_to_salvage() -> None:
    damaged = await written()
    disk = damaged.disk.process_kill()
    disk.fail("pread", damaged.logs()[1], sticky=True)
    with pytest.raises(OSError, match="Input/output error"):
        await damaged.open(SALVAGE, disk)


async def test_idempotency_keys_of_surviving_writes_are_still_known() -> None:
    damaged = await written()
    path, offset = damaged.find(4)
    damaged.disk.flip_byte(path, offset)
    session = await damaged.open(SALVAGE)
    life = damaged.ledger.live("f")
    assert life is not None
    for write in [write for write in life.writes if write.key is not None]:
        answer = await session.engine.append("f", [r.new() for r in write.records], idempotency_key=write.key)
        assert (answer.deduped, answer.first_seq) == (True, write.first_seq)


async def test_salvage_keeps_discarded_bytes_in_quarantine() -> None:
    damaged = await written()
    path, offset = damaged.find(9)
    damaged.disk.flip_byte(path, offset)
    session = await damaged.open(SALVAGE)
    kept = [path for path in session.disk.tree() if path.startswith(f"{ROOT}/quarantine/shard")]
    assert any(b'"w":9' in session.disk.read_file(path) for path in kept)
    assert session.engine.report.salvaged_bytes > 0


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("seed", range(12))
async def test_a_crash_in_salvage_can_be_salvaged_again(seed: int, snapshot: bool) -> None:
    damaged = await written(snapshot=snapshot)
    path, offset = damaged.find(5)
    damaged.disk.flip_byte(path, offset)
    points = (await damaged.open(SALVAGE)).disk.crash_points()
    disk = damaged.disk.process_kill()
    disk.crash_at(points[seed * len(points) // 12], list(When)[seed % 3])
    await until_crash(disk, damaged.open(SALVAGE, disk))
    found = Damaged(disk.power_cut(Loss.TORN, seed), damaged.ledger, damaged.clock, 0)
    seen = await salvaged(found)
    assert lost_writes(seen, damaged.ledger) == {5}


async def damage_sweep(step: int, first: int, *, snapshot: bool) -> list[str]:
    """Flip one byte, at regular distances over the whole log."""
    damaged = await written(snapshot=snapshot)
    problems: list[str] = []
    for path in damaged.logs():
        end = len(damaged.disk.read_file(path).rstrip(b"\0"))
        begin = damaged.made_bytes if path == damaged.logs()[0] and not snapshot else 0
        for offset in range(begin + first, end, step):
            hurt = damaged.copy()
            hurt.disk.flip_byte(path, offset)
            try:
                session = await hurt.open(SALVAGE)
                found = broken_promises(await view(session.engine), damaged.ledger)
            except Exception as error:
                error.add_note(f"{path}, byte {offset}")
                raise
            problems += [f"{path}, byte {offset}: {problem}" for problem in found]
    return problems


@pytest.mark.parametrize("snapshot", [False, True])
async def test_salvage_of_a_flipped_byte_anywhere_succeeds(snapshot: bool) -> None:
    assert await damage_sweep(97, 13, snapshot=snapshot) == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("snapshot", [False, True])
async def test_salvage_of_a_flipped_byte_at_every_position_succeeds(snapshot: bool) -> None:
    assert await damage_sweep(1, 0, snapshot=snapshot) == []
