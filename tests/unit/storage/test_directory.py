"""A data directory: one process at a time, a version, an identity, and folders whose names are durable."""

from __future__ import annotations

import os

import pytest

from storage.errors import AlreadyLocked, MetadataLost, OpenError, UnsupportedFormat
from storage.platform import layout
from storage.platform.directory import (
    MAX_SHARDS,
    LockText,
    ShardTrust,
    ensure_dir,
    make_folders,
    open_format,
    take_lock,
)
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


def test_a_new_directory_exists_after_a_power_cut(disk: SimDisk) -> None:
    assert disk.power_cut(Loss.DROP).is_dir(ROOT)


def test_making_an_existing_directory_succeeds(disk: SimDisk) -> None:
    ensure_dir(disk, ROOT)
    assert disk.is_dir(ROOT)


def test_a_second_process_is_refused(disk: SimDisk) -> None:
    lock = take_lock(disk, ROOT)
    with pytest.raises(AlreadyLocked):
        take_lock(disk, ROOT)
    lock.release()
    take_lock(disk, ROOT).release()


def test_the_lock_returns_the_text_of_the_previous_process(disk: SimDisk) -> None:
    lock = take_lock(disk, ROOT)
    assert lock.previous() == ""
    lock.write("77\nboot-a\n")
    lock.release()
    assert take_lock(disk, ROOT).previous() == "77\nboot-a\n"


WHOLE = LockText(pid=7, boot="boot-a", came_up=True)
STARTING = LockText(pid=7, boot="boot-a", ends=(0, 12))


@pytest.mark.parametrize(
    "text", [WHOLE, STARTING, LockText(pid=7, boot="boot-a"), LockText(pid=7), LockText(pid=7, came_up=True)]
)
def test_a_lock_text_is_parsed_back(text: LockText) -> None:
    assert LockText.parse(text.encode()) == text


@pytest.mark.parametrize("before", [WHOLE.encode(), STARTING.encode(), "1234567\nboot-b\n", "99\nfailed\n", "1\n"])
@pytest.mark.parametrize(
    "text", [WHOLE, STARTING, LockText(pid=7, boot="boot-a"), LockText(pid=7), LockText(pid=7, came_up=True)]
)
def test_a_lock_text_over_a_longer_text_is_parsed_as_the_new_text(before: str, text: LockText) -> None:
    new = text.encode()
    assert LockText.parse(new + before[len(new) :]) == text


@pytest.mark.parametrize("text", ["", "7\n", "7\n\n", "x\ny", "7\nrecovering \n", "7\n\nboot-a\n"])
def test_a_lock_without_a_boot_id_is_not_trusted(text: str) -> None:
    found = LockText.parse(text)
    assert (found.boot in ("", "y"), found.ends) == (True, ())


def test_a_shard_with_a_torn_log_is_not_trusted() -> None:
    trust = ShardTrust(3)
    assert [trust[shard] for shard in range(3)] == [True, True, True]
    after = trust.after([0, 4, 0], [3, 5, 9])
    assert after.ends == (3, 0, 9)
    assert [after[shard] for shard in range(3)] == [True, False, True]
    assert after.after([0, 0, 0], [4, 6, 10]).ends == (3, 0, 9)


def test_a_torn_end_in_a_file_of_an_incomplete_start_is_not_evidence() -> None:
    trust = ShardTrust(2, (3, 7))
    assert trust.after([3, 6], [4, 8]).ends == (3, 0)


def test_a_lost_trust_is_not_regained() -> None:
    assert ShardTrust(2, None).after([0, 0], [1, 1]).ends is None
    assert not ShardTrust(2, None)[1]


def test_trust_of_another_shard_count_is_ignored() -> None:
    assert ShardTrust(2, (0, 4, 4))[0]


def test_a_new_directory_gets_version_identity_and_shards(disk: SimDisk) -> None:
    found = open_format(disk, ROOT, 3)
    assert found.shards == 3
    assert read(disk, f"{ROOT}/FORMAT") == f"1\n{found.cluster_id}\n3\n"
    assert len(found.cluster_id) == 32
    after = disk.power_cut(Loss.DROP)
    assert open_format(after, ROOT, 0) == found


def test_every_directory_has_its_own_cluster_id() -> None:
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


def test_the_format_file_keeps_the_first_shard_count(disk: SimDisk) -> None:
    made = open_format(disk, ROOT, 2)
    assert made.shards == 2
    assert open_format(disk, ROOT, 0) == open_format(disk, ROOT, 2) == open_format(disk, ROOT, 4) == made


@pytest.mark.parametrize("shards", [-1, MAX_SHARDS + 1])
def test_a_shard_count_out_of_range_is_refused_and_creates_no_file(disk: SimDisk, shards: int) -> None:
    with pytest.raises(OpenError):
        open_format(disk, ROOT, shards)
    assert disk.listdir(ROOT) == []
    open_format(disk, ROOT, 1)
    with pytest.raises(OpenError):
        open_format(disk, ROOT, shards)


@pytest.mark.parametrize(
    ("previous", "complete"),
    [("", False), ("7\n", False), ("7\nb\n", True), ("7\nfailed\n", True), (STARTING.encode(), False)],
)
def test_an_incomplete_start_is_recognised_by_the_lock_text(previous: str, complete: bool) -> None:
    assert LockText.parse(previous).came_up is complete


@pytest.mark.parametrize("text", ["3\nid\n1\n", "99\nid\n1\n", "0\nid\n1\n"])
def test_another_format_version_is_refused_as_unsupported(disk: SimDisk, text: str) -> None:
    write(disk, f"{ROOT}/FORMAT", text)
    with pytest.raises(UnsupportedFormat):
        open_format(disk, ROOT, 0)


@pytest.mark.parametrize("text", ["", "x", "1", "1\nid", "1\nid\n", "1\nid\nmany\n", "\xff\xfe"])
def test_a_damaged_format_file_is_refused(disk: SimDisk, text: str) -> None:
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
def test_a_directory_can_be_made_after_a_crash_during_its_creation(call: int) -> None:
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
