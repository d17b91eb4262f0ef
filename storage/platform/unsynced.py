"""A file system whose files are lost when the machine is restarted, so nothing is synced.

A process that is killed leaves everything that it has written, as with any file system.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from storage.platform.filesystem import Buffer, write_buffers
from storage.platform.posix import PosixFile, PosixFileSystem, open_descriptor


class UnsyncedFile(PosixFile):
    """Implements `storage.platform.File`."""

    def datasync(self) -> None:
        pass

    def sync(self) -> None:
        pass

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        write_buffers(self, buffers, offset)
        return now()


class UnsyncedFileSystem(PosixFileSystem):
    """Implements `storage.platform.FileSystem`."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> UnsyncedFile:
        return UnsyncedFile(open_descriptor(path, create=create, exclusive=exclusive, write=write))

    def sync_dir(self, path: str) -> None:
        pass
