"""A directory as cold store: each object is a file, and its key is the path below the root.

The steps of a put, each durable before the next:

    1  make the folders of the key, fsync each parent               crash: empty folders, which are no objects
    2  write and fsync <key>.tmp                                    crash: a .tmp, which is no object; the next
                                                                    put or delete of the key removes it
    3  rename it to <key>                                           crash: the old object or the new one
    4  fsync the folder                                             the new object

A delete unlinks the file and fsyncs the folder; an emptied folder is removed if possible.

The root is made only when the store is opened. If it is gone later, or the marker that the store expects in it (because
a file system is no longer mounted; see `marker.py`), every call raises ColdUnavailable, and none says that an object is
missing. A file system that hangs (NFS) blocks the calls, and the kernel offers no way out: only threads of this tier
wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Generator, Iterator
from typing import NoReturn

from storage.errors import OpenError
from storage.platform import File, FileSystem, Readable, ensure_dir, write_whole
from storage.segments.tiering.store import (
    TMP_SUFFIX,
    ColdMissing,
    ColdUnavailable,
    check_key,
    check_prefix,
    check_range,
    is_key,
)

#: A file beside the objects of a cluster. It is not an object.
MARKER = ".topics-cold"
PIECE_BYTES = 1 << 20
#: Puts and deletes in one folder exclude each other. Folders share this many locks.
LOCKS = 64

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


class DirectoryStore:
    """ColdStore in a directory (storage/segments/tiering/store.py says what each call promises)."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        """Make the root if it is missing, durably. Raises OpenError."""
        self._fs = fs
        self._root = os.path.abspath(root)
        self._marker: str | None = None
        # By folder, not by key: a delete must not remove an emptied folder that a put is about to use.
        self._locks = [threading.Lock() for _ in range(LOCKS)]
        try:
            ensure_dir(fs, self._root)
        except OSError as error:
            raise OpenError(f"The cold directory {self._root} cannot be made: {_words(error)}.") from error

    def expect(self, marker: str) -> None:
        """From now on the store is there only where this file is."""
        self._marker = marker

    def put(self, key: str, path: str) -> None:
        check_key(key)
        try:
            source = self._fs.open(path, write=False)
        except OSError as error:
            raise ColdUnavailable(key, f"the local file cannot be read: {_words(error)}") from error
        try:
            self.put_from(key, source)
        finally:
            source.close()

    def put_from(self, key: str, source: Readable) -> None:
        self._put(check_key(key), _pieces(key, source))

    def put_bytes(self, key: str, data: bytes) -> None:
        self._put(check_key(key), iter((data,)))

    def get(self, key: str) -> bytes:
        with self._opened(key) as file:
            return file.pread(file.size(), 0)

    def get_range(self, key: str, offset: int, size: int) -> bytes:
        check_key(key)
        check_range(offset, size)
        if not size:
            return b""
        with self._opened(key) as file:
            return file.pread(size, offset)

    def size(self, key: str) -> int:
        with self._opened(key) as file:
            return file.size()

    def delete(self, key: str) -> None:
        target = self._path(key)
        folder = os.path.dirname(target)
        with self._lock(folder), self._failures(key):
            if not self._fs.is_dir(folder):
                self._need_root(key)
                return
            for path in (target + TMP_SUFFIX, target):
                self._unlink(path)
            # Also for a file that was gone already: the process that unlinked it may have been killed before this.
            self._fs.sync_dir(folder)
            with contextlib.suppress(OSError):
                self._remove_empty(folder)

    def list(self, prefix: str) -> list[str]:
        check_prefix(prefix)
        with self._failures(prefix):
            self._need_root(prefix)
            return sorted(self._keys(prefix))

    def describe(self) -> str:
        return self._root

    # ---- steps

    def _put(self, key: str, pieces: Iterator[bytes]) -> None:
        target = self._path(key)
        folder = os.path.dirname(target)
        temporary = target + TMP_SUFFIX
        with self._lock(folder), self._failures(key):
            self._need_root(key)
            self._make_folders(key)
            # Created again, not overwritten: a file whose sync failed must never be synced again and believed.
            self._unlink(temporary)
            try:
                self._write(temporary, pieces)
                self._fs.rename(temporary, target)
            except (OSError, ColdUnavailable):
                with contextlib.suppress(OSError):
                    self._fs.unlink(temporary)
                raise
            self._fs.sync_dir(folder)

    def _make_folders(self, key: str) -> None:
        parent = self._root
        for name in key.split("/")[:-1]:
            path = f"{parent}/{name}"
            # Another put may make it at the same time. The entry of one that a killed process made may not be durable.
            with contextlib.suppress(FileExistsError):
                self._fs.mkdir(path)
            self._fs.sync_dir(parent)
            parent = path

    def _write(self, path: str, pieces: Iterator[bytes]) -> None:
        file = self._fs.open(path, create=True, exclusive=True)
        try:
            offset = 0
            for piece in pieces:
                write_whole(file, piece, offset)
                offset += len(piece)
            file.sync()
        finally:
            file.close()

    def _unlink(self, path: str) -> None:
        try:
            self._fs.unlink(path)
        except OSError as error:
            # A folder of that name is no object.
            if error.errno not in _ABSENT:
                raise

    def _remove_empty(self, folder: str) -> None:
        if folder != self._root:
            self._fs.rmdir(folder)
            self._fs.sync_dir(os.path.dirname(folder))

    def _keys(self, prefix: str) -> Iterator[str]:
        try:
            names = self._fs.listdir(f"{self._root}/{prefix}" if prefix else self._root)
        except OSError as error:
            if error.errno in _ABSENT:
                return  # also a folder removed since it was seen
            raise
        for name in names:
            key = f"{prefix}/{name}" if prefix else name
            if self._fs.is_dir(f"{self._root}/{key}"):
                yield from self._keys(key)
            elif is_key(key) and name != MARKER:
                yield key

    @contextlib.contextmanager
    def _opened(self, key: str) -> Generator[File]:
        path = self._path(key)
        with self._failures(key):
            try:
                if self._fs.is_dir(path):
                    self._missing(key)
                file = self._fs.open(path, write=False)
            except OSError as error:
                if error.errno in _ABSENT:
                    self._missing(key)
                raise
            try:
                yield file
            finally:
                file.close()

    def _missing(self, key: str) -> NoReturn:
        self._need_root(key)
        raise ColdMissing(key)

    def _need_root(self, key: str) -> None:
        if not self._fs.is_dir(self._root):
            raise ColdUnavailable(key, f"the directory {self._root} is gone")
        if self._marker is not None and not self._fs.exists(self._marker):
            raise ColdUnavailable(key, f"{self._marker} is gone: is the file system mounted?")

    @contextlib.contextmanager
    def _failures(self, key: str) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise ColdUnavailable(key, _words(error)) from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _lock(self, folder: str) -> threading.Lock:
        return self._locks[hash(folder) % LOCKS]


def _pieces(key: str, source: Readable) -> Iterator[bytes]:
    """The content of a local file, piece by piece. Raises ColdUnavailable when it cannot be read."""
    offset = 0
    while True:
        try:
            piece = source.pread(PIECE_BYTES, offset)
        except OSError as error:
            raise ColdUnavailable(key, f"the local file cannot be read: {_words(error)}") from error
        if not piece:
            return
        yield piece
        offset += len(piece)


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else type(error).__name__
