"""The possible ends of a log, damaged or not, and how the next start handles each."""

from __future__ import annotations

import msgspec
import pytest

from storage import Durability, NewRecord, TopicConfig
from storage.errors import UnsupportedFormat, WalCorrupt
from storage.format.wal_frame import encode
from tests.support.crash_check import End
from tests.support.crash_run import SMALL, Cut, succeed, until_crash
from tests.support.crash_session import ROOT, Session
from tests.support.crash_view import view
from tests.support.sim_disk import Loss, SimDisk, When

FSYNC = TopicConfig(durability=Durability.FSYNC)
DISK = TopicConfig(durability=Durability.DISK)
KILLED = Cut(End.KILL)
CUTS = [KILLED, *(Cut(End.POWER, loss, seed) for loss in Loss for seed in range(6))]
ROTATING = msgspec.structs.replace(SMALL, wal_file_bytes=2048, wal_reserve_bytes=2048)


def wal(number: int) -> str:
    return f"{ROOT}/wal/wal-{number:016d}.log"


def used_files(disk: SimDisk) -> list[str]:
    """Log files that are not empty, oldest first."""
    return [path for path in disk.tree() if "/wal-" in path and disk.read_file(path).strip(b"\0")]


def log_length(disk: SimDisk, path: str) -> int:
    """The length of a log file without the zeros it was prepared with."""
    return len(disk.read_file(path).rstrip(b"\0"))


async def begun(options: msgspec.Struct = SMALL, config: TopicConfig = FSYNC) -> Session:
    """A process with a topic of two records."""
    session = Session(SimDisk(), options)
    await session.start()
    await session.append("t", 2, config=config)
    return session


async def refused(disk: SimDisk, options: msgspec.Struct = SMALL) -> WalCorrupt:
    """The start is refused as corrupt, and log and snapshots stay untouched."""
    kept = {path: data for path, data in disk.content().items() if "/wal" in path or "/meta" in path}
    with pytest.raises(WalCorrupt) as caught:
        await Session(disk, options).start()
    assert {path: data for path, data in disk.content().items() if "/wal" in path or "/meta" in path} == kept
    assert caught.value.detail == {"file": caught.value.file, "offset": caught.value.offset}
    return caught.value


@pytest.mark.parametrize("second_cut", CUTS, ids=str)
@pytest.mark.parametrize("when", [When.BEFORE, When.HALF])
async def test_torn_batch_then_new_writes_then_a_second_crash(when: When, second_cut: Cut) -> None:
    first = await begun()
    first.disk.crash_on("pwritev", "*.log", when=when)
    await until_crash(first.disk, first.append("t", 5, size=300))
    second = await succeed(first, KILLED)
    await second.append("t", 3)
    second.disk.crash_on("datasync", "*.log")
    await until_crash(second.disk, second.append("t", 4, size=200))
    third = await succeed(second, second_cut)
    await third.append("t")
    await succeed(third, Cut(End.POWER, Loss.DROP))


@pytest.mark.parametrize("end", list(End))
async def test_an_empty_prepared_file_after_kill_9_is_no_damage(end: End) -> None:
    first = await begun()
    assert first.disk.tree()[wal(2)] == SMALL.wal_file_bytes
    second = await succeed(first, Cut(end, Loss.KEEP))
    assert second.disk.tree()[wal(2)] == 0
    await second.append("t")
    third = await succeed(second, Cut(end, Loss.KEEP))
    assert third.engine.report.discarded_bytes == 0


@pytest.mark.parametrize("page", [0, 512])
async def test_a_zeroed_page_in_an_older_file_is_refused(page: int) -> None:
    session = await begun(ROTATING)
    for _ in range(8):
        await session.append("t", size=400)
    disk = session.disk.process_kill()
    oldest = used_files(disk)[1]
    disk.zero(oldest, page, 512)
    error = await refused(disk, ROTATING)
    assert error.file == oldest
    assert error.offset <= page
    assert f"{error.file}, offset {error.offset}" in str(error)


async def test_a_zeroed_log_file_between_other_files_is_refused() -> None:
    session = await begun(ROTATING)
    for _ in range(8):
        await session.append("t", size=400)
    disk = session.disk.process_kill()
    disk.zero(used_files(disk)[1], 0, 4096)
    await refused(disk, ROTATING)


async def test_stale_bytes_after_the_cut_are_never_read_as_frames() -> None:
    first = await begun()
    end = log_length(first.disk, wal(1))
    await first.append("t")
    await first.append("t", 2)
    disk = first.disk.process_kill()
    disk.zero(wal(1), end, 30)  # frames of acked writes follow the damage, as after a lost page
    second = Session(disk, SMALL)
    await second.start()
    assert second.engine.state("t").head_seq == 2
    assert disk.tree()[wal(1)] == end
    (kept,) = [path for path in disk.tree() if path.startswith(f"{ROOT}/quarantine/shard")]
    assert disk.read_file(kept).startswith(bytes(30))
    await second.engine.append("t", [NewRecord(msgspec.Raw(b"3"))])
    third = Session(disk.process_kill(), SMALL)
    await third.start()
    assert [(record.seq, record.body) for record in (await view(third.engine))["t"].records][2:] == [(3, b'{"data":3}')]
    assert used_files(third.disk) == [wal(1), wal(3)]


async def test_a_missing_log_file_is_named_in_the_refusal() -> None:
    session = await begun(ROTATING)
    for _ in range(12):
        await session.append("t", size=400)
    disk = session.disk.process_kill()
    gone = used_files(disk)[2]
    disk.remove_file(gone)
    assert (await refused(disk, ROTATING)).file == gone


@pytest.mark.parametrize("bytes_left", [0, 100])
async def test_a_snapshot_newer_than_the_end_of_the_log_is_refused(bytes_left: int) -> None:
    session = await begun()
    await session.append("t", 2)
    await session.snapshot()
    disk = session.disk.process_kill()
    disk.cut_file(wal(1), bytes_left)
    error = await refused(disk)
    assert "snapshot" in str(error)


async def test_an_unknown_frame_type_was_written_by_a_newer_version() -> None:
    session = await begun()
    disk = session.disk.process_kill()
    frame = encode(99, 0, 1, 0, session.clock.wall_ms(), data=b"\x80")
    end = log_length(disk, wal(1))
    disk.write_file(wal(1), disk.read_file(wal(1))[:end] + frame)
    before = disk.read_file(wal(1))
    with pytest.raises(UnsupportedFormat, match="99"):
        await Session(disk, SMALL).start()
    assert disk.read_file(wal(1)) == before


@pytest.mark.parametrize("keep_bytes", [1, 7, 100, None])
async def test_a_short_write_is_finished(keep_bytes: int | None) -> None:
    session = await begun()
    session.disk.short_writes("*.log", times=40, keep_bytes=keep_bytes)
    await session.append("t", 3, size=100, meta=True)
    await session.append("t", 2)
    await succeed(session, Cut(End.POWER, Loss.DROP))


async def _with_sync_point(*, behind: bool) -> tuple[SimDisk, int]:
    """A log whose third write will be damaged, with or without a SyncPoint after it that covers it."""
    options = msgspec.structs.replace(SMALL, sync_point_bytes=1 if behind else 1 << 30, sync_point_ms=1 << 30)
    session = await begun(options)
    await session.append("t")
    offset = log_length(session.disk, wal(1))
    await session.append("t", size=100)
    await session.append("t")
    await session.append("t")
    return session.disk.process_kill(), offset


async def test_damage_below_a_sync_point_is_corruption() -> None:
    disk, offset = await _with_sync_point(behind=True)
    disk.flip_byte(wal(1), offset + 80)
    error = await refused(disk)
    assert error.file == wal(1)
    assert error.offset <= offset + 80


async def test_damage_above_every_sync_point_is_a_torn_tail() -> None:
    disk, offset = await _with_sync_point(behind=False)
    disk.flip_byte(wal(1), offset + 80)
    session = Session(disk, SMALL)
    await session.start()
    assert session.engine.state("t").head_seq == 3
    assert disk.tree()[wal(1)] == offset
    assert session.engine.report.discarded_bytes > 100


@pytest.mark.parametrize("op", ["pread", "listdir", "size"])
async def test_a_read_error_is_no_invalid_frame(op: str) -> None:
    session = await begun()
    await session.snapshot()
    disk = session.disk.process_kill()
    before = disk.content()
    disk.fail(op, f"{ROOT}/[wm]*", sticky=True)
    with pytest.raises(OSError, match="Input/output error"):
        await Session(disk, SMALL).start()
    disk.clear_faults()
    assert {path: disk.content()[path] for path in before if "/." not in path} == {
        path: data for path, data in before.items() if "/." not in path
    }
    after = Session(disk, SMALL, clock=session.clock, ledger=session.ledger)
    await after.start()
    assert after.engine.state("t").count == 2
