"""A data directory: one process at a time, a version, an identity, and folders whose names are durable."""

from __future__ import annotations

import os

import pytest

from storage import layout
from storage.directory import (
    MAX_SHARDS,
    came_up,
    ensure_dir,
    lock_text,
    make_folders,
    open_format,
    page_cache_kept,
    take_lock,
)
from storage.errors import AlreadyLocked, MetadataLost, OpenError, UnsupportedFormat
from tests.support.sim_disk import Loss, SimCrash, SimDisk

ROOT = "/srv/data"


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    ensure_dir(disk, ROOT)
    return disk


def write(disk: SimDisk, path: str, text: str) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwritev([text.encode()], 0)


def read(disk: SimDisk, path: str) -> str:
    return disk.open(path, write=False).pread(1000, 0).decode()


def test_a_new_directory_is_there_after_a_power_cut(disk: SimDisk) -> None:
    assert disk.power_cut(Loss.DROP).is_dir(ROOT)


def test_making_it_again_is_harmless(disk: SimDisk) -> None:
    ensure_dir(disk, ROOT)
    assert disk.is_dir(ROOT)


def test_a_second_process_is_refused(disk: SimDisk) -> None:
    lock = take_lock(disk, ROOT)
    with pytest.raises(AlreadyLocked):
        take_lock(disk, ROOT)
    lock.release()
    take_lock(disk, ROOT).release()


def test_the_lock_tells_what_the_process_before_left(disk: SimDisk) -> None:
    lock = take_lock(disk, ROOT)
    assert lock.previous() == ""
    lock.write(lock_text(77, "boot-a"))
    lock.release()
    assert take_lock(disk, ROOT).previous() == "77\nboot-a\n"


@pytest.mark.parametrize(
    ("previous", "boot", "kept"),
    [
        (lock_text(7, "boot-a"), "boot-a", True),
        (lock_text(7, "boot-a"), "boot-b", False),
        (lock_text(7), "boot-a", False),
        (lock_text(7, "failed"), "boot-a", False),
        ("", "boot-a", False),
        (lock_text(7), "", False),
        ("7\n\n", "", False),
    ],
)
def test_the_page_cache_is_trusted_only_within_one_boot_after_a_whole_recovery(
    previous: str, boot: str, kept: bool
) -> None:
    assert page_cache_kept(previous, boot) is kept


def test_a_new_directory_gets_version_identity_and_shards(disk: SimDisk) -> None:
    found = open_format(disk, ROOT, 3)
    assert found.shards == 3
    assert read(disk, f"{ROOT}/FORMAT") == f"1\n{found.cluster_id}\n3\n"
    assert len(found.cluster_id) == 32
    after = disk.power_cut(Loss.DROP)
    assert open_format(after, ROOT, 0) == found


def test_no_two_directories_have_one_identity() -> None:
    ids = set()
    for _ in range(3):
        disk = SimDisk()
        ensure_dir(disk, ROOT)
        ids.add(open_format(disk, ROOT, 1).cluster_id)
    assert len(ids) == 3


def test_unless_asked_there_are_as_many_shards_as_cpus_up_to_eight(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert open_format(disk, ROOT, 0).shards == 8


def test_the_count_it_was_made_with_stays_on_record(disk: SimDisk) -> None:
    made = open_format(disk, ROOT, 2)
    assert made.shards == 2
    assert open_format(disk, ROOT, 0) == open_format(disk, ROOT, 2) == open_format(disk, ROOT, 4) == made


@pytest.mark.parametrize("shards", [-1, MAX_SHARDS + 1])
def test_a_count_out_of_range_is_refused_and_makes_nothing(disk: SimDisk, shards: int) -> None:
    with pytest.raises(OpenError):
        open_format(disk, ROOT, shards)
    assert disk.listdir(ROOT) == []
    open_format(disk, ROOT, 1)
    with pytest.raises(OpenError):
        open_format(disk, ROOT, shards)


@pytest.mark.parametrize(
    ("previous", "complete"),
    [("", False), ("7\n", False), (lock_text(7, ""), False), (lock_text(7, "b"), True), (lock_text(7, "failed"), True)],
)
def test_a_start_that_was_cut_short_can_be_told(previous: str, complete: bool) -> None:
    assert came_up(previous) is complete


@pytest.mark.parametrize("text", ["2\nid\n1\n", "99\nid\n1\n", "0\nid\n1\n"])
def test_another_version_is_refused_as_such(disk: SimDisk, text: str) -> None:
    write(disk, f"{ROOT}/FORMAT", text)
    with pytest.raises(UnsupportedFormat):
        open_format(disk, ROOT, 0)


@pytest.mark.parametrize("text", ["", "x", "1", "1\nid", "1\nid\n", "1\nid\nmany\n", "\xff\xfe"])
def test_a_damaged_format_file_is_refused_as_such(disk: SimDisk, text: str) -> None:
    write(disk, f"{ROOT}/FORMAT", text)
    with pytest.raises(OpenError):
        open_format(disk, ROOT, 0)


@pytest.mark.parametrize("name", ["wal", "meta", "topics"])
def test_data_without_a_format_file_is_not_started_as_new(disk: SimDisk, name: str) -> None:
    disk.mkdir(f"{ROOT}/{name}")
    with pytest.raises(MetadataLost):
        open_format(disk, ROOT, 0)
    assert not disk.exists(f"{ROOT}/FORMAT")


@pytest.mark.parametrize("call", range(2, 9))
def test_a_crash_while_it_is_made_leaves_a_directory_that_can_be_made(call: int) -> None:
    disk = SimDisk()
    ensure_dir(disk, ROOT)
    disk.crash_at(len(disk.calls) + call)
    with pytest.raises(SimCrash):
        open_format(disk, ROOT, 1)
    for seed in range(5):
        assert open_format(disk.power_cut(Loss.TORN, seed), ROOT, 1).shards == 1


@pytest.mark.parametrize(("shards", "folders"), [(1, ["wal"]), (2, ["wal/shard-00", "wal/shard-01"])])
def test_folders_are_made_and_durable(disk: SimDisk, shards: int, folders: list[str]) -> None:
    made = make_folders(disk, ROOT, shards)
    assert made == [f"{ROOT}/{folder}" for folder in folders]
    found = disk.power_cut(Loss.DROP)
    assert all(found.is_dir(f"{ROOT}/{folder}") for folder in [*folders, "meta"])


def test_names_are_read_back_and_strangers_are_not() -> None:
    names = [layout.wal_name(12), layout.wal_name(3), "wal-3.log", "wal-0000000000000004.log.tmp", "CURRENT", "reserve"]
    assert layout.wal_numbers(names) == [3, 12]
    names = [layout.snapshot_name(2), layout.snapshot_name(10), layout.snapshot_name(3) + ".tmp", "reserve"]
    assert layout.snapshot_numbers(names) == [2, 10]
