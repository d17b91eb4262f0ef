"""In each mode the simulated disk keeps over a power cut what storage/platform/filesystem.py promises, and no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.sim_disk import Loss, SimDisk, SimFile

SEEDS = range(60)
SECTOR = 512


def _disk(*paths: str, content: bytes = b"") -> SimDisk:
    """A disk with these files, durable."""
    disk = SimDisk()
    for path in paths:
        disk.write_file(path, content)
    return disk


def _found(disk: SimDisk, path: str, loss: Loss) -> list[bytes]:
    """Possible contents of a file after a power cut, one per seed."""
    return [disk.power_cut(loss, seed).read_file(path) for seed in SEEDS]


# ---- bytes of a file


@pytest.mark.parametrize("sync", [SimFile.datasync, SimFile.sync])
@pytest.mark.parametrize("loss", list(Loss))
def test_synced_bytes_and_length_survive_every_kind_of_cut(sync: Callable[[SimFile], None], loss: Loss) -> None:
    disk = _disk("/f")
    file = disk.open("/f")
    file.pwritev([b"one", b"two"], 1000)
    sync(file)
    assert set(_found(disk, "/f", loss)) == {bytes(1000) + b"onetwo"}


def test_unsynced_bytes_are_dropped_or_kept_as_asked() -> None:
    disk = _disk("/f", content=b"old")
    disk.open("/f").pwritev([b"newer"], 0)
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"old"
    assert disk.power_cut(Loss.KEEP).read_file("/f") == b"newer"


def test_a_write_after_a_sync_is_not_durable() -> None:
    disk = _disk("/f")
    file = disk.open("/f")
    file.pwritev([b"first"], 0)
    file.datasync()
    file.pwritev([b"second"], 5)
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"first"


def test_syncing_a_file_does_not_sync_another_file() -> None:
    disk = _disk("/a", "/b")
    first, second = disk.open("/a"), disk.open("/b")
    second.pwritev([b"b"], 0)
    first.pwritev([b"a"], 0)
    first.sync()
    assert disk.power_cut(Loss.DROP).content() == {"/a": b"a", "/b": b""}


def test_a_handle_syncs_the_writes_of_other_handles_of_the_file() -> None:
    disk = _disk("/f")
    disk.open("/f").pwritev([b"x"], 0)
    disk.open("/f").datasync()
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"x"


def test_prefix_mode_keeps_the_writes_up_to_some_byte() -> None:
    disk = _disk("/f")
    file = disk.open("/f")
    parts = [b"aaaa", b"bbbb", b"cccc"]
    for index, part in enumerate(parts):
        file.pwritev([part], 4 * index)
    whole = b"".join(parts)
    found = set(_found(disk, "/f", Loss.PREFIX))
    assert found <= {whole[:size] for size in range(13)}
    assert {b"", whole} <= found
    assert any(len(content) % 4 for content in found), "no write was ever torn"


def test_torn_mode_keeps_any_set_of_sectors() -> None:
    disk = _disk("/f", content=b"o" * 4 * SECTOR)
    disk.open("/f").pwritev([b"n" * 4 * SECTOR], 0)
    found = _found(disk, "/f", Loss.TORN)
    patterns = {content[::SECTOR] for content in found}
    assert all(len(set(content[at : at + SECTOR])) == 1 for content in found for at in range(0, 4 * SECTOR, SECTOR))
    assert len(patterns) > 8
    assert any(b"on" in pattern for pattern in patterns), "a later sector never made it without an earlier one"


def test_torn_mode_keeps_the_order_of_writes_within_a_sector() -> None:
    disk = _disk("/f", content=bytes(SECTOR))
    file = disk.open("/f")
    file.pwritev([b"1"], 100)
    file.pwritev([b"2"], 200)
    found = {(content[100:101], content[200:201]) for content in _found(disk, "/f", Loss.TORN)}
    assert found == {(b"\0", b"\0"), (b"1", b"\0"), (b"1", b"2")}


def test_torn_mode_may_keep_a_length_without_the_bytes_but_never_bytes_beyond_the_length() -> None:
    disk = _disk("/f", content=b"old")
    disk.open("/f").pwritev([b"x" * SECTOR], SECTOR)
    found = set(_found(disk, "/f", Loss.TORN))
    gap = b"old" + bytes(SECTOR - 3)
    assert found == {b"old", gap + bytes(SECTOR), gap + b"x" * SECTOR}


@pytest.mark.parametrize("loss", [Loss.PREFIX, Loss.TORN])
def test_an_unsynced_truncate_is_kept_or_lost_as_a_whole(loss: Loss) -> None:
    disk = _disk("/f", content=b"0123456789")
    disk.open("/f").truncate(4)
    assert set(_found(disk, "/f", loss)) == {b"0123", b"0123456789"}


def test_bytes_written_after_a_lost_truncate_are_never_found() -> None:
    disk = _disk("/f", content=b"o" * 4 * SECTOR)
    file = disk.open("/f")
    file.truncate(SECTOR)
    file.pwritev([b"n" * SECTOR], 2 * SECTOR)
    for content in _found(disk, "/f", Loss.TORN):
        assert content == b"o" * 4 * SECTOR or content[SECTOR : 2 * SECTOR] == bytes(len(content[SECTOR : 2 * SECTOR]))


def test_a_synced_truncate_survives() -> None:
    disk = _disk("/f", content=b"0123456789")
    file = disk.open("/f")
    file.truncate(4)
    file.truncate(6)
    file.sync()
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"0123\0\0"


def test_an_allocation_is_durable_only_after_a_sync() -> None:
    disk = _disk("/f")
    file = disk.open("/f")
    file.allocate(1 << 20)
    assert disk.power_cut(Loss.DROP).tree() == {"/f": 0}
    disk = disk.process_kill()
    disk.open("/f").sync()
    assert disk.power_cut(Loss.DROP).read_file("/f") == bytes(1 << 20)


def test_a_write_into_an_allocated_file_leaves_zeros_when_lost() -> None:
    disk = _disk("/f")
    file = disk.open("/f")
    file.allocate(4096)
    file.sync()
    file.pwritev([b"x" * 100], 0)
    assert set(_found(disk, "/f", Loss.TORN)) == {bytes(4096), b"x" * 100 + bytes(3996)}


# ---- names


def test_a_synced_file_without_synced_directory_entry_is_gone() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    file.pwritev([b"x"], 0)
    file.sync()
    assert disk.power_cut(Loss.DROP).tree() == {}
    disk = disk.process_kill()
    disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"x"


def test_a_synced_entry_of_an_unsynced_file_leads_to_an_empty_file() -> None:
    disk = SimDisk()
    disk.open("/f", create=True).pwritev([b"x"], 0)
    disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).tree() == {"/f": 0}


def test_a_directory_without_a_synced_entry_is_lost_with_its_synced_files() -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    disk.open("/d/f", create=True).sync()
    disk.sync_dir("/d")
    assert disk.power_cut(Loss.DROP).tree() == {}


def test_syncing_a_directory_does_not_sync_its_parent_or_children() -> None:
    disk = SimDisk()
    for path in ("/a", "/a/b", "/a/b/c"):
        disk.mkdir(path)
    disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).tree() == {"/a/": 0}


def test_an_unsynced_rename_leaves_the_old_target() -> None:
    disk = _disk("/f", content=b"old")
    disk.write_file("/f.tmp", b"new")
    disk.rename("/f.tmp", "/f")
    assert disk.power_cut(Loss.DROP).content() == {"/f": b"old", "/f.tmp": b"new"}
    assert disk.power_cut(Loss.KEEP).content() == {"/f": b"new"}


def test_a_synced_rename_of_an_unsynced_file_leaves_an_empty_file() -> None:
    disk = _disk("/f", content=b"old")
    disk.open("/f.tmp", create=True).pwritev([b"new"], 0)
    disk.rename("/f.tmp", "/f")
    disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).content() == {"/f": b""}


def test_an_unlinked_file_returns_until_its_directory_is_synced() -> None:
    disk = _disk("/f", content=b"x")
    disk.unlink("/f")
    assert disk.power_cut(Loss.DROP).content() == {"/f": b"x"}
    disk = disk.process_kill()
    disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).content() == {}


def test_a_removed_directory_returns_until_its_parent_is_synced() -> None:
    disk = _disk("/d/f")
    disk.unlink("/d/f")
    disk.rmdir("/d")
    assert disk.power_cut(Loss.DROP).tree() == {"/d/": 0, "/d/f": 0}
    disk = disk.process_kill()
    disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).tree() == {}


def test_random_entries_are_a_prefix_in_each_directory_and_independent_between_directories() -> None:
    disk = _disk("/a/x", "/b/x")
    for name in "123":
        for directory in "ab":
            disk.open(f"/{directory}/{name}", create=True)
    kept = [(cut.listdir("/a"), cut.listdir("/b")) for seed in SEEDS if (cut := disk.power_cut(Loss.PREFIX, seed))]
    prefixes = [["x"], ["1", "x"], ["1", "2", "x"], ["1", "2", "3", "x"]]
    assert all(names in prefixes for pair in kept for names in pair)
    assert any(len(a) < len(b) for a, b in kept)
    assert any(len(a) > len(b) for a, b in kept)


@pytest.mark.parametrize("synced", ["/a", "/b"])
def test_a_rename_between_directories_is_durable_as_a_whole_once_either_is_synced(synced: str) -> None:
    disk = _disk("/a/f", "/b/x", content=b"x")
    disk.rename("/a/f", "/b/f")
    assert disk.power_cut(Loss.DROP).content() == {"/a/f": b"x", "/b/x": b"x"}
    disk = disk.process_kill()
    disk.sync_dir(synced)
    assert disk.power_cut(Loss.DROP).content() == {"/b/f": b"x", "/b/x": b"x"}


def test_syncing_one_end_of_a_rename_keeps_earlier_changes_at_the_other_end() -> None:
    disk = _disk("/a/x", "/b/x")
    disk.open("/a/f", create=True)
    disk.rename("/a/f", "/b/f")
    disk.open("/a/later", create=True)
    disk.sync_dir("/b")
    assert disk.power_cut(Loss.DROP).tree() == {"/a/": 0, "/a/x": 0, "/b/": 0, "/b/f": 0, "/b/x": 0}


def test_bytes_and_names_can_be_cut_in_different_ways() -> None:
    disk = SimDisk()
    disk.open("/f", create=True).pwritev([b"x"], 0)
    assert disk.power_cut(Loss.DROP, entries=Loss.KEEP).content() == {"/f": b""}
    assert disk.power_cut(Loss.KEEP, entries=Loss.DROP).content() == {}


# ---- locks, and a process that is killed


def test_a_power_cut_changes_the_boot_and_frees_the_lock() -> None:
    disk = SimDisk()
    boot = disk.boot_id()
    disk.lock("/.lock")
    disk.sync_dir("/")
    found = disk.power_cut(Loss.DROP)
    assert found.boot_id() != boot
    assert found.lock("/.lock").previous() == ""


def test_a_killed_process_loses_only_its_lock() -> None:
    disk = SimDisk()
    boot = disk.boot_id()
    disk.lock("/.lock").write("pid 7")
    disk.open("/f", create=True).pwritev([b"x"], 0)
    found = disk.process_kill()
    assert found.boot_id() == boot
    assert found.lock("/.lock").previous() == "pid 7"
    assert found.read_file("/f") == b"x"


def test_unsynced_writes_of_a_killed_process_are_still_not_durable() -> None:
    disk = _disk("/f")
    disk.open("/f").pwritev([b"x"], 0)
    disk.open("/g", create=True)
    assert disk.process_kill().power_cut(Loss.DROP).content() == {"/f": b""}
