"""Backups of a working engine: incremental, as of one instant, and refused where they must be."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from storage.backup.errors import BackupFailed, BackupRefused
from storage.backup.taking import Taking
from storage.errors import LimitReached, ShuttingDown, StorageFailed
from storage.records.values import TagMatch
from tests.unit.storage.backup.conftest import BACKUPS, MOUNT, TARGET, Rig, differences
from tests.unit.storage.machine import DATA, record


def shared(rig: Rig) -> set[str]:
    return {path for path in rig.files() if "/segments/" in path}


async def test_a_restore_gives_the_state_of_the_backup(rig: Rig) -> None:
    await rig.fill("a", tag="x")
    await rig.fill("b", 7)
    await rig.mark_flushed()
    await rig.fill("a", 4)
    await rig.engine.delete_records("a", match=TagMatch(b"x"), before_seq=9)
    there = await rig.seen()
    summary = await rig.back_up()
    assert (summary.number, summary.topics, summary.heads) == (1, 2, {"a": 29, "b": 7})
    assert differences(there, await rig.found()) == []


async def test_backups_are_counted(rig: Rig) -> None:
    await rig.fill()
    summary = await rig.back_up()
    rig.disk.fail("rename", f"{BACKUPS}/*")
    with pytest.raises(BackupFailed):
        await rig.back_up()
    counted = {each.name: each.samples[0].value for each in rig.engine.metrics() if "backup" in each.name}
    assert counted == {
        "topics_backups": 1,
        "topics_backups_failed": 1,
        "topics_backup_newest_ms": summary.taken_ms,
    }


async def test_files_of_an_earlier_backup_are_not_copied_again(rig: Rig) -> None:
    await rig.fill(count=25)
    await rig.mark_flushed()
    first = await rig.back_up()
    before = shared(rig)
    await rig.fill(count=25, first=25)
    await rig.mark_flushed()
    second = await rig.back_up()
    assert (first.reused_bytes, len(before)) == (0, 1)
    assert second.reused_bytes == sum(len(data) for path, data in rig.files().items() if path in before)
    assert before < shared(rig)
    third = await rig.back_up()
    assert third.reused_bytes == sum(len(data) for path, data in rig.files().items() if path in shared(rig))


async def test_a_backup_copies_only_the_part_of_the_log_that_a_replay_reads(rig: Rig) -> None:
    await rig.fill(count=200)
    await rig.mark_flushed()
    await rig.back_up()
    second = await rig.back_up()
    log = sum(len(data) for path, data in rig.files(f"{DATA}/wal").items() if path.endswith(".log"))
    records = sum(segment.data_bytes for segment in rig.engine.catalog.topics["t"].log.held.manifest.segments)
    assert second.reused_bytes == records
    assert second.copied_bytes < 200 * 20 + 4000 < records < log
    await rig.fill(count=3)
    there = await rig.seen()
    await rig.back_up()
    assert differences(there, await rig.found()) == []


async def test_only_the_two_newest_backups_and_their_files_are_retained(rig: Rig) -> None:
    await rig.fill(count=25)
    await rig.mark_flushed()
    await rig.back_up()
    await rig.engine.delete_topic("t")
    await rig.mark_flushed()
    await rig.fill("u")
    await rig.back_up()
    assert [path for path in shared(rig) if f"/{1:016x}/" in path]
    await rig.back_up()
    names = {path.removeprefix(BACKUPS + "/").partition("/")[0] for path in rig.files()}
    assert sorted(names) == [
        ".lock",
        "TOPICS-BACKUP",
        "manifest-0000000000000002.json",
        "manifest-0000000000000003.json",
        "state-0000000000000002.bin",
        "state-0000000000000003.bin",
    ]
    assert not [path for path in rig.disk.tree() if f"/{1:016x}" in path and path.startswith(BACKUPS)]


async def test_deletions_after_an_earlier_backup_are_in_the_next_backup(rig: Rig) -> None:
    await rig.fill(count=30, tag="x")
    await rig.mark_flushed()
    await rig.back_up()
    await rig.engine.delete_records("t", before_seq=4)
    await rig.engine.append("t", [record(99, tag="y")])
    await rig.engine.delete_records("t", match=TagMatch(b"y"))
    await rig.fill(count=1, tag="late")
    await rig.mark_flushed()
    there = await rig.seen()
    await rig.back_up()
    assert differences(there, await rig.found()) == []


async def test_deletions_flagged_only_in_an_index_are_in_the_backup(rig: Rig) -> None:
    await rig.engine.put_topic("t")
    await rig.engine.append("t", [record(each, tag="x" if each % 3 else "y") for each in range(30)])
    await rig.mark_flushed()
    await rig.back_up()
    await rig.engine.delete_records("t", match=TagMatch(b"y"))
    await rig.mark_flushed()
    for _ in range(2):
        await rig.engine.snapshotter.take()
    assert rig.engine.housekeeping.flagged == 10
    there = await rig.seen()
    second = await rig.back_up()
    assert second.reused_bytes > 0
    assert differences(there, await rig.found()) == []


async def test_changes_after_the_instant_are_not_in_the_backup(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.fill("gone", 25)
    for tag in ("x", "y", "x", "y", "x"):
        await rig.fill("t", 12, tag=tag)
        await rig.mark_flushed()
    run_io = rig.engine.run_io

    async def unhurried(job: Callable[..., Any], *arguments: Any) -> Any:
        if isinstance(getattr(job, "__self__", None), Taking):  # all the changes happen while it copies
            for _ in range(5000):
                await asyncio.sleep(0)
        return await run_io(job, *arguments)

    monkeypatch.setattr(rig.engine.runtime, "run_io", unhurried)
    there = await rig.seen()
    churning: list[asyncio.Task[None]] = []

    async def churn() -> None:
        engine = rig.engine
        await engine.delete_topic("gone")
        await engine.delete_records("t", match=TagMatch(b"y"))
        await rig.mark_flushed()
        for _ in range(6):
            await rig.fill("t", 30, tag="z")
            await engine.delete_records("t", match=TagMatch(b"x"), before_seq=30)
            await rig.mark_flushed()
            await engine.snapshotter.take()

    await rig.back_up(at_instant=lambda: churning.append(asyncio.ensure_future(churn())))
    await churning[0]
    await rig.mark_flushed()
    assert rig.engine.housekeeping.dropped, "else nothing was kept from going"
    assert differences(there, await rig.found()) == []


async def test_at_the_instant_no_manifest_is_being_changed(rig: Rig) -> None:
    await rig.fill("t", 40)
    absorbing = asyncio.ensure_future(rig.mark_flushed())
    seen: list[tuple[bool, bool]] = []
    await rig.back_up(at_instant=lambda: seen.append((rig.engine.segment_worker.pausing, absorbing.done())))
    assert seen == [(True, True)]
    assert not rig.engine.segment_worker.pausing


async def test_the_segment_worker_stops_while_paused_and_resumes(rig: Rig) -> None:
    await rig.fill("t", 40)
    async with rig.engine.segment_worker.paused():
        absorbing = asyncio.ensure_future(rig.mark_flushed())
        for _ in range(100):
            await asyncio.sleep(0)
        assert rig.engine.flusher.records == 0
    await absorbing
    assert rig.engine.flusher.records == 40


async def test_pins_are_released_after_a_failed_backup(rig: Rig) -> None:
    await rig.fill("t", 40)
    await rig.mark_flushed()
    rig.disk.fail("sync", f"{BACKUPS}/state-*")
    with pytest.raises(BackupFailed):
        await rig.back_up()
    await rig.engine.delete_records("t", before_seq=41)
    await rig.mark_flushed()
    for _ in range(2):
        await rig.engine.snapshotter.take()
    assert rig.engine.housekeeping.dropped == 1
    assert not [path for path in rig.files(DATA) if path.endswith(".data") and "0000001.data" in path]
    assert not [path for path in rig.files() if "/state-" in path], "what was begun takes no room"
    await rig.back_up()


async def test_a_segment_with_a_known_name_and_other_records_is_copied(rig: Rig) -> None:
    await rig.fill(count=1, first=10)
    old = rig.disk.process_kill()
    await rig.kill()
    await rig.fill(count=20, first=10)
    await rig.mark_flushed()
    await rig.back_up()
    copied = rig.files()
    for path, data in copied.items():
        folder = ""
        for part in path.split("/")[1:-1]:
            folder += f"/{part}"
            if not old.exists(folder):
                old.mkdir(folder)
        file = old.open(path, create=True)
        file.pwritev([data], 0)
        file.sync()
        old.sync_dir(folder)
    rig.disk = old
    await rig.clock.advance(5000)
    await rig.kill()  # the data directory as it once was, and the present backups
    await rig.fill(count=20, first=50)
    await rig.mark_flushed()
    there = await rig.seen()
    before = shared(rig)
    await rig.back_up()
    assert len({path.rpartition(".")[0] for path in shared(rig)}) < len(shared(rig)) > len(before)
    assert differences(there, await rig.found()) == []


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_a_backup_into_a_directory_with_foreign_files_is_refused(rig: Rig) -> None:
    rig.disk.mkdir("/desk")
    rig.disk.open("/desk/letter", create=True).close()
    with pytest.raises(BackupRefused, match="letter is there"):
        await rig.back_up("/desk")
    assert rig.disk.listdir("/desk") == ["letter"]


@pytest.mark.parametrize("place", [DATA, f"{DATA}/topics/backup", "/"])
async def test_the_data_directory_is_no_place_for_backups(rig: Rig, place: str) -> None:
    before = rig.disk.content()
    with pytest.raises(BackupRefused, match="must not contain one another"):
        await rig.back_up(place)
    assert rig.disk.content() == before


async def test_a_backup_into_the_directory_of_another_cluster_is_refused(rig: Rig) -> None:
    await rig.fill()
    await rig.back_up()
    rig.restore()
    other = await rig.opened()
    before = rig.files()
    with pytest.raises(BackupRefused, match=f"cluster {rig.engine.cluster_id}"):
        await other.backup(BACKUPS)
    assert rig.files() == before
    await other.close()


async def test_a_second_concurrent_backup_is_refused(rig: Rig) -> None:
    await rig.fill()
    second: list[asyncio.Future[Any]] = []
    await rig.back_up(at_instant=lambda: second.append(asyncio.ensure_future(rig.back_up())))
    with pytest.raises(LimitReached):
        await second[0]


async def test_a_directory_in_use_is_refused(rig: Rig) -> None:
    await rig.fill()
    await rig.back_up()
    lock = rig.disk.lock(f"{BACKUPS}/.lock")
    with pytest.raises(BackupRefused, match="in use"):
        await rig.back_up()
    lock.release()


async def test_a_backup_with_a_failed_shard_is_refused(rig: Rig) -> None:
    await rig.fill()
    rig.disk.fail("datasync", f"{DATA}/wal/*", sticky=True)
    with pytest.raises(StorageFailed):
        await rig.fill(count=1)
    with pytest.raises(StorageFailed):
        await rig.back_up()
    assert not [path for path in rig.files() if "/manifest-" in path]


async def test_a_damaged_index_fails_the_backup_with_its_path(rig: Rig) -> None:
    await rig.fill(count=20)
    await rig.mark_flushed()
    path = next(path for path in rig.files(DATA) if path.endswith(".idx"))
    rig.disk.flip_byte(path, 25)
    with pytest.raises(BackupFailed, match=path.removeprefix(DATA + "/")):
        await rig.back_up()


# -- ends --------------------------------------------------------------------------------------------------------------


async def test_a_stop_ends_a_running_backup(rig: Rig) -> None:
    await rig.fill(count=40)
    await rig.mark_flushed()
    await rig.back_up()
    await rig.fill(count=40)
    stopping: list[asyncio.Future[Any]] = []
    with pytest.raises(ShuttingDown):
        await rig.back_up(at_instant=lambda: stopping.append(asyncio.ensure_future(rig.close())))
    await stopping[0]
    assert len([path for path in rig.files() if "/manifest-" in path]) == 1
    rig.restore()


async def test_a_cancelled_backup_releases_its_pins_before_it_returns(rig: Rig) -> None:
    await rig.fill(count=40)
    task: asyncio.Future[Any] = asyncio.ensure_future(rig.back_up(at_instant=lambda: void(task.cancel())))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert rig.engine.backups.progress is None
    assert not rig.engine.backups.pins.holds_log()
    await rig.back_up()


def void(_: object) -> None:
    """Drops a value."""


async def test_a_full_disk_during_a_backup_ends_the_backup(rig: Rig) -> None:
    await rig.fill(count=40)
    await rig.mark_flushed()

    def fill_up() -> None:
        for shard in rig.engine.shards:
            shard.log.full = True
        assert not rig.engine.backups.pins.holds_log()  # as a trim asks for it

    with pytest.raises(BackupFailed, match="full"):
        await rig.back_up(at_instant=fill_up)
    assert not [path for path in rig.files() if "/manifest-" in path]
    for shard in rig.engine.shards:
        shard.log.full = False
    await rig.fill(count=3)
    await rig.mark_flushed()
    await rig.back_up()  # with room again, the next one is whole
    assert differences(await rig.seen(), await rig.found()) == []


async def test_a_full_backup_disk_fails_the_backup_only(rig: Rig) -> None:
    await rig.fill(count=40)
    await rig.mark_flushed()
    rig.disk.fail("pwritev", f"{BACKUPS}/*", errno=errno.ENOSPC, nth=2)
    with pytest.raises(BackupFailed, match="No space"):
        await rig.back_up()
    await rig.fill(count=3)
    await rig.back_up()
    assert differences(await rig.seen(), await rig.found()) == []


# -- the cold tier -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def cold(rig: Rig) -> Rig:
    """Four segments, of which three are cold, with deletions in them."""
    await rig.restart(cold_dir=MOUNT)
    for begin in range(0, 40, 10):
        await rig.fill(count=5, first=begin, tag="x")
        await rig.fill(count=5, first=begin + 5)
        await rig.mark_flushed()
    await rig.engine.relocator.work()
    await rig.engine.delete_records("t", match=TagMatch(b"x"), before_seq=23)
    await rig.mark_flushed()
    assert rig.engine.relocator.relocated == 3
    return rig


async def test_cold_segments_are_referred_to_and_fetched_by_the_restore(cold: Rig) -> None:
    there = await cold.seen()
    summary = await cold.back_up()
    assert summary.referenced_segments == 3
    with pytest.raises(BackupRefused, match="refers to 3 segments"):
        cold.restore()
    assert not cold.disk.exists(TARGET)
    store = cold.engine.store.cold
    assert store is not None
    assert differences(there, await cold.found(cold=store.store)) == []
    assert not [path for path in cold.files(TARGET) if "cold" in path]


async def test_cold_segments_are_copied_when_asked_for_and_once(cold: Rig) -> None:
    there = await cold.seen()
    first = await cold.back_up(include_cold=True)
    assert (first.referenced_segments, first.reused_bytes) == (0, 0)
    second = await cold.back_up(include_cold=True)
    assert second.reused_bytes > 0
    for path in [path for path in cold.disk.content() if path.startswith(MOUNT)]:
        cold.disk.remove_file(path)
    assert differences(there, await cold.found()) == []


async def test_a_restore_with_a_missing_cold_object_is_refused(cold: Rig) -> None:
    await cold.back_up()
    store = cold.engine.store.cold
    assert store is not None
    path = next(path for path in cold.disk.content() if path.startswith(MOUNT) and path.endswith(".data"))
    cold.disk.remove_file(path)
    with pytest.raises(Exception, match="no object"):
        cold.restore(cold=store.store)
    assert cold.disk.listdir(TARGET) == []
