"""A mapped file never kills its process: if a store is not possible, the write raises like any other."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import pytest

from storage.platform.io.mmap_file import MAP_MAX_BYTES, MmapFile, MmapFileSystem
from storage.platform.posix import PosixFileSystem

PAGE = mmap.PAGESIZE


class Rig:
    """A file system that records calls of `populate`, and may refuse them."""

    def __init__(self, root: Path) -> None:
        self.populated: list[int] = []
        self.refuse = 0
        plain = MmapFileSystem()._populate

        def populate(address: int, size: int) -> None:
            if self.refuse:
                raise OSError(self.refuse, os.strerror(self.refuse))
            plain(address, size)
            self.populated.append(size)

        self.fs = MmapFileSystem(populate)
        self.populated.clear()
        self.path = str(root / "f")

    def file(self, allocated: int = 4 * PAGE) -> MmapFile:
        file = self.fs.open(self.path, create=True)
        assert isinstance(file, MmapFile)
        if allocated:
            file.allocate(allocated)
        return file


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_writes_within_the_allocated_file_are_stores_to_requested_pages(rig: Rig) -> None:
    file = rig.file()
    assert file.pwritev([b"abc", b"def"], PAGE - 3) == 6
    assert file.pwritev([b"x"], 4 * PAGE - 1) == 1
    assert rig.populated == [PAGE + 3, PAGE]
    file.datasync()
    assert Path(rig.path).read_bytes() == bytes(PAGE - 3) + b"abcdef" + bytes(3 * PAGE - 4) + b"x"


@pytest.mark.parametrize(("offset", "size"), [(4 * PAGE - 1, 2), (4 * PAGE, 1), (0, MAP_MAX_BYTES + 1), (5, 0)])
def test_large_writes_and_writes_beyond_the_file_are_plain_writes(rig: Rig, offset: int, size: int) -> None:
    file = rig.file()
    assert file.pwritev([b"y" * size], offset) == size
    assert rig.populated == []
    assert file.pread(size, offset) == b"y" * size


def test_a_handle_maps_only_pages_that_it_allocated(rig: Rig) -> None:
    rig.file().close()
    file = rig.file(allocated=0)
    file.pwritev([b"abc"], 0)
    assert rig.populated == []
    assert file.pread(3, 0) == b"abc"


def test_a_truncated_file_is_never_mapped_again(rig: Rig) -> None:
    file = rig.file()
    file.pwritev([b"abc"], 0)
    file.truncate(3 * PAGE)
    file.pwritev([b"def"], 3)
    file.pwritev([b"beyond"], 3 * PAGE)
    assert rig.populated == [3]
    assert file.pread(6, 0) == b"abcdef"
    assert file.size() == 3 * PAGE + 6


def test_a_file_truncated_by_another_process_is_still_written(rig: Rig) -> None:
    """A store beyond the file's end would kill the process."""
    file = rig.file()
    file.pwritev([b"abc"], 0)
    os.truncate(rig.path, 10)
    file.pwritev([b"far behind"], 2 * PAGE)
    assert rig.populated == [3]
    assert file.pread(10, 2 * PAGE) == b"far behind"


def test_a_file_truncated_before_it_is_mapped_is_still_written(rig: Rig) -> None:
    file = rig.file()
    os.truncate(rig.path, 0)
    file.pwritev([b"abc"], 2 * PAGE)
    assert rig.populated == []
    assert file.pread(3, 2 * PAGE) == b"abc"


def test_after_a_page_fault_all_writes_are_plain_writes(rig: Rig) -> None:
    file = rig.file()
    file.pwritev([b"abc"], 0)
    rig.refuse = errno.EFAULT
    file.pwritev([b"def"], 3)
    rig.refuse = 0
    file.pwritev([b"ghi"], 6)
    assert rig.populated == [3]
    assert file.pread(9, 0) == b"abcdefghi"


def test_after_a_failed_allocation_writes_are_plain_writes(rig: Rig, file_size_limit: int) -> None:
    file = rig.file(allocated=0)
    with pytest.raises(OSError, match="too large"):
        file.allocate(2 * file_size_limit)
    file.pwritev([b"abc"], 0)
    assert rig.populated == []


def test_closing_releases_descriptor_and_map(rig: Rig) -> None:
    before = len(os.listdir("/proc/self/fd"))
    file = rig.file()
    file.pwritev([b"abc"], 0)
    assert rig.path in Path("/proc/self/maps").read_text()
    file.close()
    file.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert rig.path not in Path("/proc/self/maps").read_text()


def test_other_readers_see_a_store_at_once(rig: Rig) -> None:
    file, other = rig.file(), PosixFileSystem().open(rig.path)
    file.pwritev([b"abc"], 100)
    assert other.pread(3, 100) == b"abc"
    other.pwritev([b"x"], 101)
    file.pwritev([b"y"], 102)
    assert file.pread(3, 100) == b"axy"


def test_a_kernel_that_cannot_populate_maps_is_refused() -> None:
    def unknown(_address: int, _size: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with pytest.raises(OSError, match="Invalid"):
        MmapFileSystem(unknown)
