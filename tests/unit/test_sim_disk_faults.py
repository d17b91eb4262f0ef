"""Errors, short writes and a full disk, as the simulated disk returns them."""

from __future__ import annotations

import errno
import os

import pytest

from tests.support.sim_disk import Loss, SimDisk, SimFile


def _disk(*paths: str) -> SimDisk:
    disk = SimDisk()
    for path in paths:
        disk.write_file(path, b"")
    return disk


def _outcome(file: SimFile, data: bytes = b"x") -> int:
    """The errno of a write at the end of the file, 0 if it succeeds."""
    try:
        file.pwritev([data], file.size())
    except OSError as error:
        return error.errno or -1
    return 0


# ---- which calls fail


def test_a_failed_call_has_no_effect_and_is_counted() -> None:
    disk = SimDisk()
    disk.fail("mkdir", errno=errno.EDQUOT)
    with pytest.raises(OSError, match=os.strerror(errno.EDQUOT)) as caught:
        disk.mkdir("/d")
    assert caught.value.filename == "/d"
    assert disk.tree() == {}
    assert [call.op for call in disk.calls] == ["mkdir"]


def test_a_fault_can_last_for_several_calls() -> None:
    disk = _disk("/f")
    disk.fail("pwritev", nth=2, times=2)
    file = disk.open("/f")
    assert [_outcome(file) for _ in range(5)] == [0, errno.EIO, errno.EIO, 0, 0]


def test_a_sticky_fault_stays_until_cleared() -> None:
    disk = _disk("/f")
    disk.fail("pwritev", nth=2, sticky=True)
    file = disk.open("/f")
    assert [_outcome(file) for _ in range(4)] == [0, errno.EIO, errno.EIO, errno.EIO]
    disk.clear_faults()
    assert _outcome(file) == 0


def test_only_matching_paths_fail() -> None:
    disk = _disk("/wal/log", "/meta/log")
    disk.fail("pwritev", "/wal/*", sticky=True)
    assert [_outcome(disk.open(path)) for path in ("/wal/log", "/meta/log")] == [errno.EIO, 0]


def test_a_pattern_can_match_file_syncs_without_directory_syncs() -> None:
    disk = _disk("/f")
    disk.fail("*sync", sticky=True)
    file = disk.open("/f")
    for sync in (file.sync, file.datasync):
        with pytest.raises(OSError, match="Input/output"):
            sync()
    disk.sync_dir("/")


def test_a_failed_directory_sync_leaves_the_entries_unsynced() -> None:
    disk = SimDisk()
    disk.open("/f", create=True)
    disk.fail("sync_dir")
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_dir("/")
    assert disk.power_cut(Loss.DROP).tree() == {}


# ---- a failed sync


def _with_synced(content: bytes) -> tuple[SimDisk, SimFile]:
    disk = SimDisk()
    disk.write_file("/f", content)
    return disk, disk.open("/f")


def _with_failed_sync() -> tuple[SimDisk, SimFile]:
    disk, file = _with_synced(b"")
    file.pwritev([b"aaa"], 0)
    disk.fail("datasync")
    with pytest.raises(OSError, match="Input/output"):
        file.datasync()
    return disk, file


def test_bytes_of_a_failed_sync_stay_readable_but_are_not_durable() -> None:
    disk, file = _with_failed_sync()
    assert file.pread(3, 0) == b"aaa"
    assert disk.power_cut(Loss.KEEP).read_file("/f") == b""


def test_a_later_sync_does_not_save_bytes_of_a_failed_sync() -> None:
    disk, file = _with_failed_sync()
    file.pwritev([b"bbb"], 3)
    file.datasync()
    assert file.pread(6, 0) == b"aaabbb"
    assert disk.power_cut(Loss.KEEP).read_file("/f") == b"\0\0\0bbb"


def test_bytes_written_again_after_the_failure_are_saved_by_the_next_sync() -> None:
    disk, file = _with_failed_sync()
    file.pwritev([b"aaa"], 0)
    file.datasync()
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"aaa"


def test_after_a_process_kill_bytes_of_a_failed_sync_are_still_not_durable() -> None:
    disk, _ = _with_failed_sync()
    found = disk.process_kill()
    assert found.read_file("/f") == b"aaa"
    found.open("/f").datasync()
    assert found.power_cut(Loss.KEEP).read_file("/f") == bytes(3)


def test_bytes_synced_before_a_failed_sync_stay_durable() -> None:
    disk, file = _with_synced(b"good")
    file.pwritev([b"bad"], 4)
    disk.fail("datasync")
    with pytest.raises(OSError, match="Input/output"):
        file.datasync()
    assert disk.power_cut(Loss.DROP).read_file("/f") == b"good"


def test_a_torn_failed_sync_makes_some_sectors_durable() -> None:
    found: set[bytes] = set()
    for seed in range(10):
        disk, file = _with_synced(bytes(8 * 512))
        file.pwritev([b"a" * 8 * 512], 0)
        disk.fail("datasync", torn=True, seed=seed)
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        # What reached the device is decided by then: the cut does not change it.
        assert disk.power_cut(Loss.DROP).content() == disk.power_cut(Loss.KEEP).content()
        found.add(disk.power_cut(Loss.DROP).read_file("/f")[::512])
    assert all(set(sectors) <= set(b"a\0") for sectors in found)
    assert len(found) > 3


# ---- short writes


def test_a_short_write_writes_the_first_part_and_returns_its_length() -> None:
    disk = _disk("/f")
    disk.short_writes(nth=2, keep_bytes=3)
    file = disk.open("/f")
    assert [file.pwritev([b"ab", b"cdef"], offset) for offset in (0, 6, 9)] == [6, 3, 6]
    assert disk.read_file("/f") == b"abcdefabcabcdef"


def test_a_short_write_is_half_by_default_and_only_where_asked() -> None:
    disk = _disk("/f", "/g")
    disk.short_writes("/f", sticky=True)
    assert [disk.open(path).pwritev([b"1234567"], 0) for path in ("/f", "/g", "/f")] == [3, 7, 3]


# ---- space


def test_a_write_beyond_the_capacity_is_short_and_the_next_fails() -> None:
    disk = _disk("/f")
    disk.capacity_bytes = 10
    file = disk.open("/f")
    assert file.pwritev([b"12345678"], 0) == 8
    assert file.pwritev([b"abcd"], 8) == 2
    assert _outcome(file) == errno.ENOSPC
    assert disk.read_file("/f") == b"12345678ab"


def test_an_allocation_beyond_the_capacity_is_refused_as_a_whole() -> None:
    disk = _disk("/f")
    disk.capacity_bytes = 1000
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        disk.open("/f").allocate(1001)
    assert disk.tree() == {"/f": 0}


def test_writing_into_allocated_space_never_lacks_space() -> None:
    disk = _disk("/f", "/g")
    disk.capacity_bytes = 1000
    file = disk.open("/f")
    file.allocate(1000)
    assert _outcome(disk.open("/g")) == errno.ENOSPC
    assert file.pwritev([bytes(1000)], 0) == 1000


def test_extending_by_truncate_takes_no_space_but_writing_there_does() -> None:
    disk = _disk("/f")
    disk.capacity_bytes = 10
    file = disk.open("/f")
    file.truncate(1000)
    assert disk.used_bytes == 0
    with pytest.raises(OSError, match="No space"):
        file.pwritev([b"x"], 999)


def test_unlink_truncate_and_replacement_give_space_back() -> None:
    disk = _disk("/f", "/g", "/h")
    for path in ("/f", "/g", "/h"):
        disk.open(path).pwritev([bytes(100)], 0)
    disk.unlink("/f")
    assert disk.used_bytes == 200
    disk.open("/g").truncate(30)
    assert disk.used_bytes == 130
    disk.rename("/g", "/h")
    assert disk.used_bytes == 30


def test_space_can_come_back_at_run_time() -> None:
    disk = SimDisk(capacity_bytes=0)
    file = disk.open("/f", create=True)
    assert _outcome(file) == errno.ENOSPC
    disk.capacity_bytes = 1
    assert _outcome(file) == 0
    disk.capacity_bytes = None
    assert _outcome(file, bytes(10_000)) == 0


def test_the_space_in_use_is_the_same_after_a_restart() -> None:
    disk = _disk("/f")
    file = disk.open("/f")
    file.allocate(5000)
    file.sync()
    assert [disk.power_cut(Loss.DROP).used_bytes, disk.process_kill().used_bytes] == [5000, 5000]
