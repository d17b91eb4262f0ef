"""The contract of storage/platform/filesystem.py, checked with the real disk and with the simulated one."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from storage.platform.filesystem import File, FileSystem, Lock, Read
from storage.platform.io.mmap_file import MAP_MAX_BYTES, MmapFile, MmapFileSystem
from storage.platform.io.uring import LINKED_MAX_BYTES, UringFile, UringFileSystem
from storage.platform.posix import IOV_MAX, PosixFile, PosixFileSystem, PosixLock
from tests.support.backends import EACH, made
from tests.support.sim_disk import SimDisk, SimFile, SimLock
from tests.support.sim_uring import SimUringFile


class Place(NamedTuple):
    """A file system and an empty directory on it."""

    fs: FileSystem
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def make(self, name: str, content: bytes = b"") -> str:
        file = self.fs.open(self.path(name), create=True)
        if content:
            file.pwritev([content], 0)
        file.close()
        return self.path(name)


@pytest.fixture(params=[*EACH, "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param != "sim":
        with made(request.param) as fs:
            yield Place(fs, str(tmp_path))
        return
    disk = SimDisk()
    disk.mkdir("/data")
    yield Place(disk, "/data")


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [
        (File, PosixFile),
        (File, MmapFile),
        (File, UringFile),
        (File, SimFile),
        (File, SimUringFile),
        (Lock, PosixLock),
        (Lock, SimLock),
        (FileSystem, PosixFileSystem),
        (FileSystem, MmapFileSystem),
        (FileSystem, UringFileSystem),
        (FileSystem, SimDisk),
    ],
)
def test_every_call_of_the_protocol_has_the_same_parameters(protocol: type, implementation: type) -> None:
    for name, call in vars(protocol).items():
        if name.startswith("_") or not callable(call):
            continue
        expected = inspect.signature(call).parameters.values()
        found = inspect.signature(getattr(implementation, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in found] == [(p.name, p.kind, p.default) for p in expected]


# ---- bytes


def test_buffers_are_written_in_order(place: Place) -> None:
    file = place.fs.open(place.path("f"), create=True)
    assert file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"ef")], 3) == 6
    assert file.pread(100, 0) == b"\0\0\0abcdef"
    assert file.size() == 9


def test_no_more_than_iov_max_buffers_are_written_at_once(place: Place) -> None:
    file = place.fs.open(place.path("f"), create=True)
    assert file.pwritev([b"xy"] * (IOV_MAX + 1), 0) == 2 * IOV_MAX


def test_writing_no_bytes_changes_no_byte(place: Place) -> None:
    file = place.fs.open(place.path("f"), create=True)
    assert file.pwritev([b""], 50) == 0
    assert file.size() == 0


def test_a_write_in_the_middle_keeps_the_rest(place: Place) -> None:
    file = place.fs.open(place.make("f", b"0123456789"))
    file.pwritev([b"xx"], 4)
    assert file.pread(100, 0) == b"0123xx6789"


def test_a_read_at_or_beyond_the_end_is_empty(place: Place) -> None:
    file = place.fs.open(place.make("f", b"abc"))
    assert (file.pread(10, 3), file.pread(10, 99), file.pread(10, 2)) == (b"", b"", b"c")


def test_bytes_written_by_one_handle_are_read_by_another(place: Place) -> None:
    path = place.make("f")
    writer, reader = place.fs.open(path), place.fs.open(path, write=False)
    writer.pwritev([b"news"], 0)
    assert reader.pread(4, 0) == b"news"


def test_truncate_cuts_and_extends_with_zeros(place: Place) -> None:
    file = place.fs.open(place.make("f", b"abcdef"))
    file.truncate(2)
    file.truncate(5)
    assert file.pread(100, 0) == b"ab\0\0\0"
    assert place.fs.file_size(place.path("f")) == 5


@pytest.mark.parametrize("fill", [True, False])
def test_an_allocated_file_has_that_length_in_zeros(place: Place, fill: bool) -> None:
    file = place.fs.open(place.path("f"), create=True)
    file.allocate(3000, fill=fill)
    assert file.size() == 3000
    assert file.pread(4000, 0) == bytes(3000)


def test_synced_bytes_read_the_same(place: Place) -> None:
    file = place.fs.open(place.make("f", b"abc"))
    file.datasync()
    file.sync()
    assert file.pread(3, 0) == b"abc"


def test_closing_twice_is_harmless(place: Place) -> None:
    file = place.fs.open(place.make("f"))
    file.close()
    file.close()


@pytest.mark.parametrize(("allocated", "fill"), [(0, True), (10_000, True), (10_000, False)])
@pytest.mark.parametrize("size", [1, 4096, 9000, 20_000, MAP_MAX_BYTES + 1])
def test_written_and_synced_bytes_are_read_through_every_handle(
    place: Place, allocated: int, fill: bool, size: int
) -> None:
    path = place.path("f")
    file = place.fs.open(path, create=True)
    if allocated:
        file.allocate(allocated, fill=fill)
    data = bytes(index % 251 for index in range(size))
    times = iter((17, 23))
    assert file.write_and_sync([data[: size // 3], data[size // 3 :]], 100, lambda: next(times)) == 17
    assert file.write_and_sync([b"again"], 4097, lambda: next(times)) == 23
    expected = bytearray(max(allocated, 100 + size, 4102))
    expected[100 : 100 + size] = data
    expected[4097:4102] = b"again"
    assert file.pread(1 << 20, 0) == expected
    assert place.fs.open(path, write=False).pread(1 << 20, 0) == expected


def test_a_write_larger_than_a_system_call_allows_is_written_and_synced(place: Place) -> None:
    file = place.fs.open(place.path("f"), create=True)
    file.write_and_sync([b"xy"] * (IOV_MAX + 5), 1, lambda: 0)
    file.write_and_sync([bytes(LINKED_MAX_BYTES), b"end"], 1 << 20, lambda: 0)
    assert file.pread(3, 2 * IOV_MAX + 7) == b"xyx"
    assert file.pread(9, (1 << 20) + LINKED_MAX_BYTES) == b"end"
    assert file.pread(4, 0) == b"\0xyx"


@pytest.mark.parametrize("taken", [0, 1, 7, 11])
def test_a_short_write_is_completed_before_the_sync(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may write less than it was given. The rest is written too, and only then anything is synced."""
    pwritev, fdatasync = os.pwritev, os.fdatasync
    steps: list[str] = []

    def short(fd: int, buffers: list[bytes], offset: int) -> int:
        if "short" in steps:
            return pwritev(fd, buffers, offset)
        steps.append("short")
        return pwritev(fd, [b"".join(buffers)[:taken]], offset)

    def synced(fd: int) -> None:
        steps.append("sync")
        fdatasync(fd)

    monkeypatch.setattr(os, "pwritev", short)
    monkeypatch.setattr(os, "fdatasync", synced)
    file = PosixFileSystem().open(str(tmp_path / "f"), create=True)
    file.write_and_sync([b"first", b"second"], 3, lambda: steps.append("between") or 0)
    assert file.pread(100, 0) == bytes(3) + b"firstsecond"
    assert steps == ["short", "between", "sync"]
    file.close()


def test_an_empty_write_and_sync_changes_no_byte(place: Place) -> None:
    file = place.fs.open(place.make("f", b"abc"))
    file.write_and_sync([], 1, lambda: 0)
    file.write_and_sync([b""], 50, lambda: 0)
    assert file.pread(10, 0) == b"abc"


def test_an_allocated_file_can_be_cut_written_and_allocated_again(place: Place) -> None:
    file = place.fs.open(place.path("f"), create=True)
    file.allocate(8192)
    file.pwritev([b"first"], 4090)
    file.truncate(4092)
    assert file.pread(10_000, 4080) == bytes(10) + b"fi"
    file.pwritev([b"second"], 4092)
    file.sync()
    assert file.pread(10_000, 4080) == bytes(10) + b"fisecond"
    other = place.fs.open(place.path("g"), create=True)
    other.allocate(100)
    other.allocate(9000)
    other.write_and_sync([b"z"], 8999, lambda: 0)
    assert other.pread(10_000, 0) == bytes(8999) + b"z"


def test_a_batch_of_reads_equals_the_single_reads(place: Place) -> None:
    paths = [place.make(f"f{number}", bytes([number]) * 5000) for number in range(3)]
    files = [place.fs.open(path, write=False) for path in paths]
    reads = [Read(files[number % 3], 100 + number, 37 * number) for number in range(200)]
    reads += [Read(files[0], 10, 4995), Read(files[0], 10, 5000), Read(files[0], 10, 9999), Read(files[1], 0, 3)]
    assert place.fs.read_many(reads) == [each.file.pread(each.size, each.offset) for each in reads]
    assert [len(data) for data in place.fs.read_many(reads)][-4:] == [5, 0, 0, 0]
    assert place.fs.read_many([]) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda file: file.pwritev([b"x"], 0),
        lambda file: file.pread(1, 0),
        lambda file: file.size(),
        lambda file: file.truncate(0),
        lambda file: file.allocate(1),
        lambda file: file.datasync(),
        lambda file: file.sync(),
        lambda file: file.write_and_sync([b"x"], 0, lambda: 0),
    ],
    ids=["pwritev", "pread", "size", "truncate", "allocate", "datasync", "sync", "write_and_sync"],
)
def test_a_closed_file_refuses(place: Place, call: Callable[[File], Any]) -> None:
    file = place.fs.open(place.make("f"))
    file.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        call(file)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda file: file.pwritev([b"x"], 0), errno.EBADF),
        (lambda file: file.truncate(0), errno.EINVAL),
        (lambda file: file.allocate(1), errno.EBADF),
        (lambda file: file.write_and_sync([b"x"], 0, lambda: 0), errno.EBADF),
    ],
    ids=["pwritev", "truncate", "allocate", "write_and_sync"],
)
def test_a_file_opened_for_reading_refuses_to_change(place: Place, call: Callable[[File], Any], expected: int) -> None:
    file = place.fs.open(place.make("f", b"abc"), write=False)
    with pytest.raises(OSError, match=os.strerror(expected)):
        call(file)
    assert file.pread(3, 0) == b"abc"


# ---- names


def test_opening_a_missing_file_without_create_fails(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.fs.open(place.path("none"))


def test_opening_with_create_keeps_the_content(place: Place) -> None:
    path = place.make("f", b"old")
    assert place.fs.open(path, create=True).pread(10, 0) == b"old"


def test_exclusive_open_refuses_an_existing_file(place: Place) -> None:
    place.fs.open(place.path("f"), exclusive=True)
    with pytest.raises(FileExistsError):
        place.fs.open(place.path("f"), exclusive=True)


def test_opening_a_directory_for_writing_fails(place: Place) -> None:
    with pytest.raises(IsADirectoryError):
        place.fs.open(place.root)


def test_listdir_returns_sorted_names(place: Place) -> None:
    for name in ("b", "c", "a"):
        place.make(name)
    place.fs.mkdir(place.path("B"))
    assert place.fs.listdir(place.root) == ["B", "a", "b", "c"]


def test_listing_a_file_or_an_absent_directory_fails(place: Place) -> None:
    place.make("f")
    with pytest.raises(NotADirectoryError):
        place.fs.listdir(place.path("f"))
    with pytest.raises(FileNotFoundError):
        place.fs.listdir(place.path("none"))


def test_exists_and_is_dir_tell_files_from_directories(place: Place) -> None:
    place.make("f")
    place.fs.mkdir(place.path("d"))
    found = [(place.fs.exists(place.path(name)), place.fs.is_dir(place.path(name))) for name in ("f", "d", "none")]
    assert found == [(True, False), (True, True), (False, False)]


def test_a_path_through_a_file_does_not_exist(place: Place) -> None:
    place.make("f")
    assert not place.fs.exists(place.path("f/below"))
    with pytest.raises(NotADirectoryError):
        place.fs.open(place.path("f/below"), create=True)


def test_creating_in_a_missing_directory_fails(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.fs.open(place.path("none/f"), create=True)
    with pytest.raises(FileNotFoundError):
        place.fs.mkdir(place.path("none/d"))


def test_the_size_of_a_missing_file_is_an_error(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.fs.file_size(place.path("none"))


def test_making_a_directory_twice_fails(place: Place) -> None:
    place.fs.mkdir(place.path("d"))
    with pytest.raises(FileExistsError):
        place.fs.mkdir(place.path("d"))


def test_rename_replaces_the_target(place: Place) -> None:
    source, target = place.make("new", b"new"), place.make("old", b"old")
    place.fs.rename(source, target)
    assert place.fs.listdir(place.root) == ["old"]
    assert place.fs.open(target).pread(10, 0) == b"new"


def test_a_rename_to_the_same_path_has_no_effect(place: Place) -> None:
    path = place.make("f", b"x")
    place.fs.rename(path, path)
    assert place.fs.listdir(place.root) == ["f"]


def test_renaming_a_directory_moves_its_content(place: Place) -> None:
    place.fs.mkdir(place.path("a"))
    place.fs.mkdir(place.path("b"))
    place.make("a/f", b"x")
    place.fs.rename(place.path("a"), place.path("b/moved"))
    assert place.fs.listdir(place.path("b/moved")) == ["f"]
    assert not place.fs.exists(place.path("a"))


def test_renaming_an_absent_file_names_both_paths(place: Place) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        place.fs.rename(place.path("none"), place.path("f"))
    assert (caught.value.filename, caught.value.filename2) == (place.path("none"), place.path("f"))


def test_rename_does_not_replace_across_kinds_or_a_full_directory(place: Place) -> None:
    place.make("f")
    for name in ("d", "full"):
        place.fs.mkdir(place.path(name))
    place.make("full/x")
    with pytest.raises(IsADirectoryError):
        place.fs.rename(place.path("f"), place.path("d"))
    with pytest.raises(NotADirectoryError):
        place.fs.rename(place.path("d"), place.path("f"))
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        place.fs.rename(place.path("d"), place.path("full"))


def test_a_directory_cannot_be_moved_into_itself(place: Place) -> None:
    place.fs.mkdir(place.path("d"))
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        place.fs.rename(place.path("d"), place.path("d/d"))


def test_an_unlinked_file_stays_readable_through_its_handle(place: Place) -> None:
    path = place.make("f", b"still")
    file = place.fs.open(path)
    place.fs.unlink(path)
    assert not place.fs.exists(path)
    assert file.pread(10, 0) == b"still"


def test_unlink_refuses_directories_and_missing_names(place: Place) -> None:
    place.fs.mkdir(place.path("d"))
    with pytest.raises(IsADirectoryError):
        place.fs.unlink(place.path("d"))
    with pytest.raises(FileNotFoundError):
        place.fs.unlink(place.path("none"))


def test_rmdir_removes_only_empty_directories(place: Place) -> None:
    place.fs.mkdir(place.path("d"))
    path = place.make("d/f")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        place.fs.rmdir(place.path("d"))
    with pytest.raises(NotADirectoryError):
        place.fs.rmdir(path)
    place.fs.unlink(path)
    place.fs.rmdir(place.path("d"))
    assert place.fs.listdir(place.root) == []


def test_sync_dir_wants_a_directory(place: Place) -> None:
    place.fs.sync_dir(place.root)
    path = place.make("f")
    with pytest.raises(NotADirectoryError):
        place.fs.sync_dir(path)
    with pytest.raises(FileNotFoundError):
        place.fs.sync_dir(place.path("none"))


# ---- lock


def test_a_lock_has_at_most_one_holder(place: Place) -> None:
    lock = place.fs.lock(place.path(".lock"))
    with pytest.raises(BlockingIOError):
        place.fs.lock(place.path(".lock"))
    lock.release()
    place.fs.lock(place.path(".lock")).release()


def test_a_lock_carries_its_text_to_the_next_holder(place: Place) -> None:
    lock = place.fs.lock(place.path(".lock"))
    assert lock.previous() == ""
    lock.write("a long text")
    lock.write("short")
    lock.release()
    following = place.fs.lock(place.path(".lock"))
    assert following.previous() == "short"
    following.release()


def test_releasing_a_lock_twice_does_not_free_the_next_holder(place: Place) -> None:
    lock = place.fs.lock(place.path(".lock"))
    lock.release()
    following = place.fs.lock(place.path(".lock"))
    lock.release()
    with pytest.raises(BlockingIOError):
        place.fs.lock(place.path(".lock"))
    following.release()


def test_a_released_lock_cannot_be_written(place: Place) -> None:
    lock = place.fs.lock(place.path(".lock"))
    lock.release()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        lock.write("late")


def test_the_boot_id_stays_the_same_while_the_machine_runs(place: Place) -> None:
    assert place.fs.boot_id() == place.fs.boot_id() != ""
