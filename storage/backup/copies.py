"""A backup, or the base of a cell in a bucket, seen as a data directory that cannot be written.

Bulk reads of a copy need no restore: the file system of a `Copy` has the files that a restore would make, and reads
their bytes where the copy has them. Deletions after a segment was copied are in its .idx only: `mark_deleted` carries
them over to .data, in a file system that keeps its changes in memory.

Source: docs/reference/guarantees.md#recovery.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from storage.backup import manifest as files
from storage.backup.manifest import Piece
from storage.backup.restoring import NewFiles, segment_of
from storage.backup.source import BackupSource
from storage.platform import Buffer, File, FileSystem, Format, Lock, Read, format_text, layout

#: Returns so many bytes from an offset on.
ReadAt = Callable[[int, int], bytes]


class Extent(NamedTuple):
    """Bytes begin <= at < begin + size of a file. `read` counts offsets from `begin`."""

    begin: int
    size: int
    read: ReadAt


def bytes_of(data: bytes) -> Extent:
    """A whole file."""

    def read(size: int, offset: int) -> bytes:
        return data[offset : offset + size]

    return Extent(0, len(data), read)


class CopiedFile:
    """A file of a copy, open for reading. Bytes in no extent are zero. Implements `storage.platform.File`."""

    def __init__(self, path: str, extents: Sequence[Extent]) -> None:
        self._path = path
        self._extents = sorted(extents, key=attrgetter("begin"))

    def size(self) -> int:
        return max((each.begin + each.size for each in self._extents), default=0)

    def pread(self, size: int, offset: int) -> bytes:
        stop = min(offset + size, self.size())
        found: list[bytes] = []
        at = offset
        for begin, length, read in self._extents:
            first, last = max(begin, at), min(begin + length, stop)
            if first < last:
                found += [bytes(first - at), read(last - first, first - begin)]
                at = last
        return b"".join(found)

    def close(self) -> None:
        """The copy holds what is open."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        raise _read_only(self._path)

    def truncate(self, size: int) -> None:
        raise _read_only(self._path)

    def allocate(self, size: int, *, fill: bool = True) -> None:
        raise _read_only(self._path)

    def datasync(self) -> None:
        raise _read_only(self._path)

    def sync(self) -> None:
        raise _read_only(self._path)

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        raise _read_only(self._path)


class CopyFileSystem:
    """The files of a copy. Implements `storage.platform.FileSystem`; whatever would change it raises EROFS."""

    def __init__(self, root: str) -> None:
        self._files: dict[str, list[Extent]] = {}
        self._folders = {root}
        self._root = root

    def add(self, path: str, extent: Extent) -> None:
        """Add bytes of a file; its path is relative to the directory."""
        path = layout.join(self._root, path)
        self._files.setdefault(path, []).append(extent)
        while (path := path.rpartition("/")[0]) not in self._folders:
            self._folders.add(path)

    def paths(self) -> list[str]:
        """The paths of all files."""
        return [*self._files]

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        if write or create or exclusive:
            raise _read_only(path)
        return CopiedFile(path, self._extents(path))

    def _extents(self, path: str) -> list[Extent]:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._files[path]

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        return [each.file.pread(each.size, each.offset) for each in reads]

    def listdir(self, path: str) -> list[str]:
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        found = (each.rpartition("/") for each in (*self._files, *self._folders))
        return sorted(name for folder, _, name in found if folder == path and name)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def is_dir(self, path: str) -> bool:
        return path in self._folders

    def file_size(self, path: str) -> int:
        return CopiedFile(path, self._extents(path)).size()

    def is_private(self, path: str) -> bool:
        return True

    def mkdir(self, path: str) -> None:
        raise _read_only(path)

    def rename(self, source: str, target: str) -> None:
        raise _read_only(source)

    def unlink(self, path: str) -> None:
        raise _read_only(path)

    def rmdir(self, path: str) -> None:
        raise _read_only(path)

    def sync_dir(self, path: str) -> None:
        raise _read_only(path)

    def lock(self, path: str) -> Lock:
        raise _read_only(path)

    def is_running(self, pid: int) -> bool:
        return False

    def boot_id(self) -> str:
        return ""


def _read_only(path: str) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), path)


class Copy(NamedTuple):
    """Close it behind the last read."""

    fs: CopyFileSystem
    root: str
    #: The .idx at a path relative to `root`.
    read_index: Callable[[str], bytes]
    close: Callable[[], None]

    def mark_deleted(self, fs: FileSystem) -> None:
        """Delete in the .data files of `fs` what .idx says is deleted. Raises BackupDamaged, OSError."""
        new = NewFiles(fs, self.root, self.read_index)
        for path in self.fs.paths():
            id = segment_of(path)
            if id is not None:
                with closing(fs.open(path)) as file:
                    new.flag(file, id)


def copy_of_backup(fs: FileSystem, backup: str, root: str, number: int = 0) -> Copy:
    """A backup of one engine (0: the newest) as the directory `root`, a path that need not exist.

    The caller keeps others from writing the backup meanwhile. Checksums of the state's files are compared when a file
    is first read; those of sealed segments are not, as each of their frames has its own. Segments in the cold store
    that the backup only refers to are missing. Raises BackupRefused, BackupDamaged, OSError.
    """
    source = BackupSource(fs, backup)
    source.open(number, lock=False)
    made = CopyFileSystem(root)
    # A restore makes a new one.
    format = format_text(Format(source.manifest.cluster_id, source.manifest.shards))
    made.add(layout.FORMAT, bytes_of(format))
    for piece in source.pieces:
        made.add(piece.path, Extent(piece.begin, piece.size, _checked(source, piece)))
    for each in source.manifest.shared:
        made.add(files.data_path(each.id), Extent(0, each.size, partial(_read_file, fs, source.path_of(each))))
    return Copy(made, root, source.index, source.close)


def _checked(source: BackupSource, piece: Piece) -> ReadAt:
    checked = False

    def read(size: int, offset: int) -> bytes:
        nonlocal checked
        if not checked:
            source.read_piece(piece, lambda _data, _at: None)
            checked = True
        return source.pread(piece, size, offset)

    return read


def _read_file(fs: FileSystem, path: str, size: int, offset: int) -> bytes:
    with closing(fs.open(path, write=False)) as file:
        return file.pread(size, offset)


__all__ = ["Copy", "CopyFileSystem", "Extent", "bytes_of", "copy_of_backup"]
