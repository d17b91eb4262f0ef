"""The real disk. With `storage.platform.io`, the only place that makes file system calls."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

from storage.platform.filesystem import Buffer, Read, SyncFailed, read_each, write_then_sync

IOV_MAX = 1024
#: Files are readable only by the broker's user, because reading them needs no API key.
FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
_ZEROS = bytes(1 << 20)


class PosixFile:
    """An open descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        return os.pwritev(self._fd, buffers[:IOV_MAX], offset)

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        # The kernel caps one read at about 2 GiB and may stop short elsewhere; only the end of the file ends it.
        parts = [data]
        got = len(data)
        while got < size:
            more = os.pread(self._fd, size - got, offset + got)
            if not more:
                break
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int, *, fill: bool = True) -> None:
        # fallocate first: it reports ENOSPC at once, before 64 MiB of zeros are written in vain. Then real zeros: an
        # fdatasync over blocks never written must also record their conversion (measured 1.5 times slower).
        try:
            os.posix_fallocate(self._fd, 0, size)
            if not fill:
                return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        offset = 0
        while offset < size:
            chunk = _ZEROS if size - offset >= len(_ZEROS) else _ZEROS[: size - offset]
            offset += os.pwrite(self._fd, chunk, offset)

    def datasync(self) -> None:
        os.fdatasync(self._open_fd())

    def sync(self) -> None:
        os.fsync(self._open_fd())

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        fd = self._fd
        if len(buffers) > IOV_MAX or os.pwritev(fd, buffers, offset) != sum(map(len, buffers)):
            return write_then_sync(self, buffers, offset, now)  # all of it, in as many calls as needed
        written = now()
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error
        return written

    def descriptor(self) -> int:
        """The descriptor, for other modules of this package. Raises OSError when closed."""
        return self._open_fd()

    def _open_fd(self) -> int:
        # os.fsync(-1) raises ValueError, not OSError: a sync after the close must not bypass its handler.
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class PosixLock:
    """A flock held for the life of the process, and of processes that got its descriptor."""

    def __init__(self, fd: int, previous: str) -> None:
        self._fd = fd
        self._previous = previous

    def write(self, text: str) -> None:
        # This order matters: on a full disk, the block that truncating to zero frees might not come back.
        data = text.encode()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def previous(self) -> str:
        return self._previous

    def identity(self) -> str:
        """The file, whatever its path: no copy of it has the same."""
        found = os.fstat(self._fd)
        return f"{found.st_dev}:{found.st_ino}"

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def open_descriptor(path: str, *, create: bool, exclusive: bool, write: bool) -> int:
    """As `FileSystem.open`."""
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
    if create or exclusive:
        flags |= os.O_CREAT
    if exclusive:
        flags |= os.O_EXCL
    return os.open(path, flags, FILE_MODE)


class PosixFileSystem:
    """Names and directories of the running system; files are written and synced by plain calls (backend `fd`)."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> PosixFile:
        return PosixFile(open_descriptor(path, create=create, exclusive=exclusive, write=write))

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        return read_each(reads)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def mkdir(self, path: str) -> None:
        os.mkdir(path, FOLDER_MODE)

    def is_private(self, path: str) -> bool:
        return not stat.S_IMODE(os.stat(path).st_mode) & ~FOLDER_MODE & 0o777

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> PosixLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            previous = os.pread(fd, 4096, 0).decode("utf-8", "replace")
        except OSError:
            os.close(fd)
            raise
        return PosixLock(fd, previous)

    def is_running(self, pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except OSError:
            pass  # belongs to somebody else
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
        except (OSError, IndexError):
            return True  # the kernel has just said so, and gives no details

    def boot_id(self) -> str:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""  # unknown: never equal to a recorded one, so the page cache is not trusted
