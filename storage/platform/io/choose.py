"""Chooses an engine's I/O backend: the requested one, or `fd` with one warning if the system refuses it."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from storage.options import IoBackend
from storage.platform.filesystem import FileSystem
from storage.platform.io.mmap_file import MmapFileSystem
from storage.platform.io.uring import UringFileSystem
from storage.platform.posix import PosixFileSystem

_log = structlog.get_logger("storage")

#: Each maker raises OSError if the system refuses the backend.
MAKERS: dict[IoBackend, Callable[[], PosixFileSystem]] = {
    IoBackend.FD: PosixFileSystem,
    IoBackend.MMAP: MmapFileSystem,
    IoBackend.IO_URING: UringFileSystem,
}


def open_file_system(backend: IoBackend) -> PosixFileSystem:
    """A file system with that backend, or the plain one, with one warning, if this machine refuses it."""
    try:
        return MAKERS[backend]()
    # Besides the kernel's errors: a C library without the call, an address space without room.
    except (OSError, AttributeError, ValueError, MemoryError) as error:
        _log.warning("io_backend_refused", wanted=str(backend), used=str(IoBackend.FD), error=str(error))
        return PosixFileSystem()


def backend_of(fs: FileSystem) -> IoBackend | None:
    """The backend of a file system; None for other file systems, whose files other processes may be unable to reach."""
    return next((backend for backend, maker in MAKERS.items() if type(fs) is maker), None)


def close_file_system(fs: FileSystem) -> None:
    """Release the resources that it holds besides files. Nothing of the file system may be in use."""
    if isinstance(fs, UringFileSystem):
        fs.close()
