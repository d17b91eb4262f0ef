"""A file system that keeps all changes in memory: shows what a recovery would do to a directory, without doing it.

Reads go to the file system below until something has been changed. Nothing survives the process, and no other
process sees the changes. For `storage.offline.stopped` only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from storage.platform.filesystem import Buffer, File, FileSystem, Lock, Read, read_each, write_then_sync


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class _Content:
    """A file's bytes: the bytes of `below` up to `limit`, and patches over them."""

    def __init__(self, below: File | None) -> None:
        self.below = below
        self.limit = self.size = below.size() if below is not None else 0
        self._patches: list[tuple[int, bytes]] = []

    def read(self, count: int, offset: int) -> bytes:
        count = max(0, min(count, self.size - offset))
        if not count:
            return b""
        readable = max(0, min(count, self.limit - offset))
        base = self.below.pread(readable, offset) if self.below is not None and readable else b""
        if not self._patches:
            return base if len(base) == count else base + bytes(count - len(base))
        out = bytearray(base) + bytes(count - len(base))
        for at, data in self._patches:
            begin, end = max(at, offset), min(at + len(data), offset + count)
            if begin < end:
                out[begin - offset : end - offset] = data[begin - at : end - at]
        return bytes(out)

    def write(self, data: bytes, offset: int) -> None:
        if data:
            self._patches.append((offset, data))
            self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        self.limit = min(self.limit, size)
        self._patches = [(at, data[: size - at]) for at, data in self._patches if at < size]
        self.size = size


class OverlayFile:
    """An open file of the overlay."""

    def __init__(self, content: _Content) -> None:
        self._content = content

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = b"".join(bytes(each) for each in buffers)
        self._content.write(data, offset)
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        return self._content.read(size, offset)

    def size(self) -> int:
        return self._content.size

    def truncate(self, size: int) -> None:
        self._content.resize(size)

    def allocate(self, size: int, *, fill: bool = True) -> None:
        self._content.size = max(self._content.size, size)

    def datasync(self) -> None:
        """Nothing is ever durable here."""

    def sync(self) -> None:
        """Nothing is ever durable here."""

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        return write_then_sync(self, buffers, offset, now)

    def close(self) -> None:
        """The content goes with the overlay."""


class _ForeignLock:
    """A lock that another process holds."""

    def __init__(self, previous: str) -> None:
        self._previous = previous

    def write(self, text: str) -> None:
        """The file stays unchanged."""

    def previous(self) -> str:
        return self._previous

    def release(self) -> None:
        """This process does not own it."""


class OverlayFileSystem:
    """`below` with changes in memory. For one thread. Files of `below` must not change meanwhile."""

    def __init__(self, below: FileSystem) -> None:
        self._below = below
        self._contents: dict[str, _Content] = {}
        self._folders: set[str] = set()
        #: Names of `below` that are deleted here.
        self._gone: set[str] = set()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        there = self.exists(path)
        if there and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if not there and not (create or exclusive):
            raise _missing(path)
        if path not in self._contents:
            if there and not write:
                return self._below.open(path, write=False)
            self._contents[path] = _Content(self._below.open(path, write=False) if there else None)
        return OverlayFile(self._contents[path])

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        return read_each(reads)

    def listdir(self, path: str) -> list[str]:
        found: set[str] = set()
        if self._below.is_dir(path) and path not in self._gone:
            found = {name for name in self._below.listdir(path) if f"{path}/{name}" not in self._gone}
        elif path not in self._folders:
            raise _missing(path)
        for each in (*self._contents, *self._folders):
            folder, _, name = each.rpartition("/")
            if folder == path:
                found.add(name)
        return sorted(found)

    def exists(self, path: str) -> bool:
        if path in self._contents or path in self._folders:
            return True
        return path not in self._gone and self._below.exists(path)

    def is_dir(self, path: str) -> bool:
        return path in self._folders or (path not in self._gone and self._below.is_dir(path))

    def is_private(self, path: str) -> bool:
        return self._below.is_private(path)

    def file_size(self, path: str) -> int:
        if path in self._contents:
            return self._contents[path].size
        if path in self._gone:
            raise _missing(path)
        return self._below.file_size(path)

    def mkdir(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._folders.add(path)

    def rename(self, source: str, target: str) -> None:
        if source not in self._contents:
            self.open(source)
        self._contents[target] = self._contents.pop(source)
        self._gone.add(source)

    def unlink(self, path: str) -> None:
        if not self.exists(path):
            raise _missing(path)
        self._contents.pop(path, None)
        self._gone.add(path)

    def rmdir(self, path: str) -> None:
        if self.listdir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self._folders.discard(path)
        self._gone.add(path)

    def sync_dir(self, path: str) -> None:
        """Nothing is ever durable here."""

    def lock(self, path: str) -> Lock:
        """The creator of the overlay keeps others away; this returns the text of the directory's last owner."""
        if not self._below.exists(path):
            return _ForeignLock("")
        file = self._below.open(path, write=False)
        try:
            return _ForeignLock(file.pread(4096, 0).decode("utf-8", "replace"))
        finally:
            file.close()

    def is_running(self, pid: int) -> bool:
        return self._below.is_running(pid)

    def boot_id(self) -> str:
        return self._below.boot_id()

    def close(self) -> None:
        """Close the files of `below` that are open."""
        for content in self._contents.values():
            if content.below is not None:
                content.below.close()
