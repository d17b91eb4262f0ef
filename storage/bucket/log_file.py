"""Sends the log of an engine into slots: a file system that turns each sync of the log into one slot.

The log is written to local files as usual, so reads and recovery know nothing of the bucket. A sync of such a file
becomes one slot with the bytes written since the last one, and no sync of the local disk. Writes acknowledged after a
sync are in the bucket. The rest of the directory stays local, and may be lost with the machine.

    SlotFileSystem   the file system of a cell
    lay_out          makes a directory of what is in the bucket

A slot that cannot be created is a failed sync, whatever the reason: the log stops, as after any failed sync.
Source: docs/reference/bucket.md.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from storage.platform import (
    Buffer,
    File,
    FileSystem,
    Lock,
    Read,
    SyncFailed,
    ensure_dir,
    layout,
    write_buffers,
    write_whole,
)


class Body(NamedTuple):
    """The content of a data slot: bytes of a file of the log."""

    file: int
    offset: int
    data: bytes


class SlotSink(Protocol):
    """Creates the slots of an owner."""

    def append(self, body: Body) -> None:
        """Return when the slot is created. OSError: it is not known to be created."""
        ...


class LogFile:
    """A file of the log, open for writing. Implements `storage.platform.File`."""

    def __init__(self, below: File, number: int, sink: SlotSink) -> None:
        self._below = below
        self.number = number
        self._sink = sink
        #: What was written after the last slot, from `_begin` on.
        self._unsent: list[bytes] = []
        self._begin = self._end = 0

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        written = self._below.pwritev(buffers, offset)
        if offset != self._end:
            self._go_to(offset)
        left = written
        for each in buffers:
            if left <= 0:
                break
            self._unsent.append(bytes(memoryview(each)[:left]))
            left -= len(self._unsent[-1])
        self._end = offset + written
        return written

    def _go_to(self, offset: int) -> None:
        """The next write is at this offset: after a failed write, or wherever the first one is."""
        if self._unsent and self._begin <= offset < self._end:
            self._unsent = [b"".join(self._unsent)[: offset - self._begin]]
        elif self._unsent:
            raise OSError(errno.EINVAL, "the log is not written in order")
        else:
            self._begin = offset
        self._end = offset

    def pread(self, size: int, offset: int) -> bytes:
        return self._below.pread(size, offset)

    def size(self) -> int:
        return self._below.size()

    def truncate(self, size: int) -> None:
        self._below.truncate(size)
        if size < self._end and self._unsent:
            self._go_to(max(size, self._begin))

    def allocate(self, size: int, *, fill: bool = True) -> None:
        """Nothing is synced here, so no byte is written twice."""
        self._below.allocate(size, fill=False)

    def datasync(self) -> None:
        finish = self.begin_sync()
        if finish is not None:
            finish()

    def begin_sync(self) -> Callable[[], None] | None:
        """What makes everything written so far a slot; None: it is in slots. Later writes belong to the next slot."""
        if self._begin == self._end:
            return None
        number, begin, unsent = self.number, self._begin, self._unsent
        self._unsent, self._begin = [], self._end
        return lambda: self._sink.append(Body(number, begin, b"".join(unsent)))

    def sync(self) -> None:
        self.datasync()

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        write_buffers(self, buffers, offset)
        written = now()
        try:
            self.datasync()
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error
        return written

    def close(self) -> None:
        self._below.close()


class SlotFileSystem:
    """The file system of a cell in a bucket. Implements `storage.platform.FileSystem` for one data directory."""

    def __init__(self, below: FileSystem, root: str, sink: SlotSink) -> None:
        self._below = below
        self._log = layout.shard_dir(root, 0, 1)
        self._sink = sink
        #: The reserve, which becomes a file of the log when the disk is full.
        self._reserve: LogFile | None = None

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        file = self._below.open(path, create=create, exclusive=exclusive, write=write)
        if not write:
            return file
        if path == layout.join(self._log, layout.RESERVE):
            self._reserve = LogFile(file, 0, self._sink)
            return self._reserve
        number = log_number(self._log, path)
        return file if number is None else LogFile(file, number, self._sink)

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        return self._below.read_many(reads)

    def listdir(self, path: str) -> list[str]:
        return self._below.listdir(path)

    def exists(self, path: str) -> bool:
        return self._below.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._below.is_dir(path)

    def file_size(self, path: str) -> int:
        return self._below.file_size(path)

    def mkdir(self, path: str) -> None:
        self._below.mkdir(path)

    def is_private(self, path: str) -> bool:
        return self._below.is_private(path)

    def rename(self, source: str, target: str) -> None:
        self._below.rename(source, target)
        number = log_number(self._log, target)
        if number is not None and self._reserve is not None:
            self._reserve.number = number

    def unlink(self, path: str) -> None:
        self._below.unlink(path)

    def rmdir(self, path: str) -> None:
        self._below.rmdir(path)

    def sync_dir(self, path: str) -> None:
        self._below.sync_dir(path)

    def lock(self, path: str) -> Lock:
        return self._below.lock(path)

    def is_running(self, pid: int) -> bool:
        return self._below.is_running(pid)

    def boot_id(self) -> str:
        return self._below.boot_id()


def log_number(folder: str, path: str) -> int | None:
    """The number of the file of the log at `path`. None: it is not such a file."""
    parent, _, name = path.rpartition("/")
    numbers = layout.wal_numbers([name]) if parent == folder else []
    return numbers[0] if numbers else None


def lay_out(fs: FileSystem, root: str, log: Iterable[Body], redo: tuple[int, int]) -> tuple[int, int]:
    """Write the content of slots into the files of the log of `root`. Returns file and offset of its end. Raises
    OSError.

    `redo`: the file and offset at which recovery begins. The first slot contains it, or a later one if nothing was
    written there. A file that is in no slot was begun and never written to, because slots have no gaps, so it is made
    empty. A later body replaces what an earlier one wrote: the bytes are the same.
    """
    folder = layout.shard_dir(root, 0, 1)
    for each in (root, folder):
        ensure_dir(fs, each)
    number, begin = redo
    file = fs.open(layout.join(folder, layout.wal_name(number)), create=True)
    file.truncate(begin)
    try:
        for body in log:
            if body.file < number:
                continue  # of a slot that ends before the redo offset
            while number < body.file:
                file.sync()
                file.close()
                number += 1
                file = fs.open(layout.join(folder, layout.wal_name(number)), create=True)
            if body.offset > file.size():
                raise OSError(errno.EIO, f"slots are not in order: file {body.file}, offset {body.offset}")
            write_whole(file, body.data, body.offset)
        file.sync()
        end = file.size()
    finally:
        file.close()
    fs.sync_dir(folder)
    return number, end
