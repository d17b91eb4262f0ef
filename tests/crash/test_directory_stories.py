"""How a start handles the directory as a whole: FORMAT, lock, shard count and snapshots."""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, TopicConfig
from storage.errors import AlreadyLocked, MetadataLost, OpenError, UnsupportedFormat
from storage.format import snapshot_header
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk, When

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
TINY = msgspec.structs.replace(SMALL, wal_file_bytes=2048, wal_reserve_bytes=2048)
POWER = Cut(End.POWER, Loss.DROP)


def snapshots(disk: SimDisk) -> list[str]:
    return [path for path in disk.tree() if path.startswith(f"{ROOT}/meta/snapshot")]


def logs(disk: SimDisk) -> list[str]:
    return [path for path in disk.tree() if "/wal-" in path]


async def with_two_snapshots(*, trimmed: bool) -> Session:
    """Two snapshots, records after the newest, and a log that begins at file 1 or later."""
    session = Session(SimDisk(), TINY)
    await session.start()
    await session.put("t", msgspec.structs.replace(FSYNC, cap_records=2 if trimmed else 0))
    await session.append("t", 2, key="k")
    for _ in range(6):
        await session.append("t", size=900)
    await session.snapshot()
    await session.append("t", size=900)
    await session.snapshot()
    await session.append("t", meta=True)
    return session


@pytest.mark.parametrize("damaged", [0, 1])
async def test_recovery_with_one_damaged_snapshot_of_two_gives_the_same_state(damaged: int) -> None:
    session = await with_two_snapshots(trimmed=True)
    intact = await succeed(session, POWER)
    session.disk.flip_byte(snapshots(session.disk)[damaged], 60)
    mended = await succeed(session, POWER)
    assert await view(mended.engine) == await view(intact.engine)


@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
async def test_a_complete_log_is_replayed_when_both_snapshots_are_damaged(how: str) -> None:
    session = await with_two_snapshots(trimmed=False)
    intact = await succeed(session, POWER)
    _spoil(session.disk, how)
    replayed = await succeed(session, POWER)
    assert await view(replayed.engine) == await view(intact.engine)
    await replayed.append("t")
    await replayed.snapshot()
    await succeed(replayed, POWER)


@pytest.mark.parametrize("how", ["flipped", "cut", "removed"])
async def test_a_trimmed_log_with_two_damaged_snapshots_is_refused_without_changes(how: str) -> None:
    session = await with_two_snapshots(trimmed=True)
    assert "wal-0000000000000001" not in logs(session.disk)[0]
    _spoil(session.disk, how)
    disk = session.disk.process_kill()
    before = disk.content()
    with pytest.raises(MetadataLost, match="backup"):
        await Session(disk, TINY).start()
    before.pop(f"{ROOT}/.lock")
    assert {path: data for path, data in disk.content().items() if path != f"{ROOT}/.lock"} == before


def _spoil(disk: SimDisk, how: str) -> None:
    for path in snapshots(disk):
        if how == "flipped":
            disk.flip_byte(path, 60)
        elif how == "cut":
            disk.cut_file(path, 20)
        else:
            disk.remove_file(path)


async def test_a_snapshot_of_a_newer_version_is_refused() -> None:
    session = await with_two_snapshots(trimmed=False)
    disk = session.disk.process_kill()
    body = snapshot_header.unseal(disk.read_file(snapshots(disk)[-1]))
    head = bytearray(snapshot_header.seal(body))
    head[4] = 2
    head[16:24] = snapshot_header.checksum(bytes(head[:16]) + body).to_bytes(8, "little")
    disk.write_file(snapshots(disk)[-1], bytes(head))
    with pytest.raises(UnsupportedFormat, match="version 2"):
        await Session(disk, TINY).start()


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("op", ["pwritev", "sync", "rename", "sync_dir", "unlink"])
async def test_a_crash_during_a_snapshot_leaves_the_previous_snapshot(op: str, when: When) -> None:
    session = await with_two_snapshots(trimmed=True)
    session.disk.crash_on(op, f"{ROOT}/meta*", when=when)
    await until_crash(session.disk, session.snapshot())
    assert session.disk.crashed
    for loss in Loss:
        again = Session(session.disk, TINY, clock=session.clock, ledger=session.ledger.copy())
        second = await succeed(again, Cut(End.POWER, loss, seed=1))
        await second.snapshot()
        await second.append("t", 2)
        await succeed(second, POWER)


@pytest.mark.parametrize("durability", [Durability.DISK, Durability.MEMORY, Durability.EPHEMERAL])
@pytest.mark.parametrize("snapshot_last", [False, True])
async def test_reserved_seqs_are_never_reused_through_a_snapshot_and_a_power_loss(
    durability: Durability, snapshot_last: bool
) -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    await session.append("t", 10, config=TopicConfig(durability=durability))
    await session.snapshot()
    await session.append("t", 120)
    await session.append("t", 200)
    if snapshot_last:
        await session.snapshot()
    await session.append("t", 30)
    handed_out = session.engine.state("t").head_seq
    second = await succeed(session, POWER)
    answer = await second.append("t")
    assert answer is not None
    assert answer.first_seq > handed_out == 360
    await second.snapshot()
    await succeed(second, POWER)


async def test_a_format_of_a_newer_version_is_refused() -> None:
    session = Session(SimDisk(), SMALL)
    await session.start()
    disk = session.disk.process_kill()
    disk.write_file(f"{ROOT}/FORMAT", disk.read_file(f"{ROOT}/FORMAT").replace(b"1\n", b"3\n", 1))
    with pytest.raises(UnsupportedFormat, match="format 3"):
        await Session(disk, SMALL).start()


@pytest.mark.parametrize("content", [b"", b"\n\n\n", b"topics\n", b"1\n", b"1\nabc\n", b"1\nabc\nmany\n"])
async def test_a_damaged_format_is_refused_with_its_path(content: bytes) -> None:
    disk = SimDisk()
    disk.write_file(f"{ROOT}/FORMAT", content)
    with pytest.raises(OpenError, match="FORMAT"):
        await Session(disk, SMALL).start()


async def test_a_folder_with_data_but_without_format_is_not_started_as_new() -> None:
    session = await with_two_snapshots(trimmed=False)
    disk = session.disk.process_kill()
    disk.remove_file(f"{ROOT}/FORMAT")
    with pytest.raises(MetadataLost, match="no FORMAT file"):
        await Session(disk, TINY).start()


async def test_a_second_engine_is_refused_while_the_first_lives() -> None:
    first = Session(SimDisk(), SMALL)
    await first.start()
    await first.append("t", config=FSYNC)
    second = Session(first.disk, SMALL)
    with pytest.raises(AlreadyLocked, match="open in this process already"):
        await second.start()
    await first.append("t")
    await first.close()
    third = Session(first.disk, SMALL)
    await third.start()
    assert third.engine.state("t").count == 2
    await third.close()


async def test_a_refused_start_lets_go_of_the_lock() -> None:
    session = await with_two_snapshots(trimmed=True)
    disk = session.disk.process_kill()
    spoiled = {path: disk.read_file(path) for path in snapshots(disk)}
    _spoil(disk, "flipped")
    with pytest.raises(MetadataLost):
        await Session(disk, TINY).start()
    for path, content in spoiled.items():
        disk.write_file(path, content)
    restored = Session(disk, TINY)
    await restored.start()
    assert restored.engine.state("t").count == 2
