"""What only the real disk has: descriptors, permissions, locks between processes. The rest is in test_filesystem.py."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.platform.io.mmap_file import MmapFileSystem
from storage.platform.posix import PosixFileSystem
from tests.support.backends import EACH, made

_HOLD_LOCK = """
import sys
from storage.platform.posix import PosixFileSystem
lock = PosixFileSystem().lock(sys.argv[1])
lock.write("from the other process")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=EACH)
def fs(request: pytest.FixtureRequest) -> Iterator[PosixFileSystem]:
    with made(request.param) as fs:
        yield fs


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock on `.lock`."""
    command = [sys.executable, "-c", _HOLD_LOCK, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """A limit on the length of files, which the kernel answers with EFBIG."""
    limit = 1 << 20
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_lock_keeps_another_process_out(fs: PosixFileSystem, tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(BlockingIOError):
        fs.lock(str(tmp_path / ".lock"))
    assert (tmp_path / ".lock").read_text() == "from the other process"


def test_the_lock_of_a_killed_process_is_free_and_keeps_its_text(
    fs: PosixFileSystem, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.kill()
    holder.wait()
    lock = fs.lock(str(tmp_path / ".lock"))
    assert lock.previous() == "from the other process"
    lock.release()


def test_a_refused_lock_leaves_no_descriptor_open(
    fs: PosixFileSystem, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    before = _descriptors()
    with pytest.raises(BlockingIOError):
        fs.lock(str(tmp_path / ".lock"))
    assert _descriptors() == before


def test_closing_and_releasing_give_the_descriptors_back(fs: PosixFileSystem, tmp_path: Path) -> None:
    before = _descriptors()
    file, lock = fs.open(str(tmp_path / "f"), create=True), fs.lock(str(tmp_path / ".lock"))
    fs.sync_dir(str(tmp_path))
    file.close()
    lock.release()
    assert _descriptors() == before


def test_descriptors_do_not_pass_to_child_processes(fs: PosixFileSystem, tmp_path: Path) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    (fd,) = [int(name) for name in os.listdir("/proc/self/fd") if _leads_to(name, tmp_path / "f")]
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    file.close()


def _leads_to(fd_name: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd_name}") == str(path)
    except FileNotFoundError:  # the descriptor of the listing itself
        return False


def test_created_files_are_not_readable_by_other_users(fs: PosixFileSystem, tmp_path: Path) -> None:
    fs.open(str(tmp_path / "f"), create=True).close()
    fs.mkdir(str(tmp_path / "d"))
    fs.lock(str(tmp_path / ".lock")).release()
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("f", "d", ".lock")]
    assert [oct(mode) for mode in modes] == ["0o600", "0o700", "0o600"]


@pytest.mark.parametrize(("mode", "private"), [(0o700, True), (0o500, True), (0o750, False), (0o701, False)])
def test_a_folder_open_to_other_users_is_not_private(
    fs: PosixFileSystem, tmp_path: Path, mode: int, private: bool
) -> None:
    fs.mkdir(str(tmp_path / "d"))
    (tmp_path / "d").chmod(mode)
    assert fs.is_private(str(tmp_path / "d")) is private


@pytest.mark.parametrize("fill", [True, False])
def test_an_allocated_file_has_allocated_blocks(fs: PosixFileSystem, tmp_path: Path, fill: bool) -> None:
    # One and a half times the chunk with which it is zeroed, so that the last chunk is partial.
    size = 3 << 19
    file = fs.open(str(tmp_path / "f"), create=True)
    file.allocate(size, fill=fill)
    assert file.pread(size + 1, 0) == bytes(size)
    file.close()
    status = (tmp_path / "f").stat()
    assert status.st_size == size
    assert status.st_blocks * 512 >= size


@pytest.mark.parametrize("system", [PosixFileSystem, MmapFileSystem])
def test_allocation_without_fill_writes_no_byte(
    system: type[PosixFileSystem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: written.append(len(data)) or pwrite(fd, data, at))
    fs = system()
    fs.open(str(tmp_path / "reserved"), create=True).allocate(3 << 20, fill=False)
    assert written == []
    fs.open(str(tmp_path / "filled"), create=True).allocate(3 << 20)
    assert sum(written) == 3 << 20


def test_a_file_is_filled_if_space_cannot_be_allocated_otherwise(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no fallocate here")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = fs.open(str(tmp_path / "f"), create=True)
    file.allocate(5000, fill=False)
    assert file.pread(6000, 0) == bytes(5000)


def test_a_failed_allocation_is_an_error(fs: PosixFileSystem, tmp_path: Path, file_size_limit: int) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        file.allocate(file_size_limit * 2)
    file.close()


def test_a_short_write_returns_the_number_of_written_bytes(
    fs: PosixFileSystem, tmp_path: Path, file_size_limit: int
) -> None:
    file = fs.open(str(tmp_path / "f"), create=True)
    assert file.pwritev([bytes(100)], file_size_limit - 60) == 60
    file.close()


def test_a_dangling_link_exists_as_a_name(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert fs.exists(str(tmp_path / "link"))


def test_the_boot_id_is_the_boot_id_of_the_kernel(fs: PosixFileSystem) -> None:
    assert fs.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
