"""Which backend an engine gets: the one asked for, or `fd` with one warning where it is refused."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from storage.options import IoBackend
from storage.platform.filesystem import FileSystem
from storage.platform.io.mmap_file import MmapFileSystem
from storage.platform.io.uring import UringFileSystem
from storage.platform.posix import PosixFileSystem

_log = structlog.get_logger("storage")

#: Each raises OSError where the system refuses it.
MAKERS: dict[IoBackend, Callable[[], PosixFileSystem]] = {
    IoBackend.FD: PosixFileSystem,
    IoBackend.MMAP: MmapFileSystem,
    IoBackend.IO_URING: UringFileSystem,
}


def open_file_system(backend: IoBackend) -> PosixFileSystem:
    """Of that kind, or plain when this machine cannot or must not have it; then one warning says why."""
    try:
        return MAKERS[backend]()
    # Besides what the kernel says: a C library without the call, an address space without room.
    except (OSError, AttributeError, ValueError, MemoryError) as error:
        _log.warning("io_backend_refused", wanted=str(backend), used=str(IoBackend.FD), error=str(error))
        return PosixFileSystem()


def backend_of(fs: FileSystem) -> IoBackend | None:
    """Which one it is; None for file systems of other making, whose files no other process may reach."""
    return next((backend for backend, maker in MAKERS.items() if type(fs) is maker), None)


def close_file_system(fs: FileSystem) -> None:
    """Give back what it holds besides files. Nothing of it may be in use."""
    if isinstance(fs, UringFileSystem):
        fs.close()
