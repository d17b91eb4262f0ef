"""Creates, prepares and deletes the files of one shard's log, and numbers the positions in them (LSNs).

An LSN is one integer, so that positions compare: file number << 40 | byte offset.

A file is allocated and synced, and its name is durable, before a byte in it counts. The file before it is truncated to
its length and synced before byte 0 of the next is written.

Source: docs/reference/format.md#directory, docs/reference/guarantees.md#crash-points-of-a-write.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from storage.platform import File, FileSystem, layout, write_whole

if TYPE_CHECKING:
    from storage.log.writer import WalStats

SHIFT = 40
OFFSET_MASK = MAX_OFFSET = (1 << SHIFT) - 1


def position(file: int, offset: int) -> int:
    """The position of a byte offset in a WAL file."""
    return file << SHIFT | offset


def split(lsn: int) -> tuple[int, int]:
    """(file number, byte offset) of a position."""
    return lsn >> SHIFT, lsn & OFFSET_MASK


#: The last two do not mean that space is missing, but they are handled in the same way: nothing was written, and a
#: later try may succeed.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)

#: If a sync covers this many bytes or more on average, files are not filled with zeros beforehand: writing each byte
#: twice costs more than syncing blocks that were never written (ADR 0006).
UNFILLED_FROM = 512 << 10


def no_space(error: OSError) -> bool:
    """Whether the disk (or the quota, or the table of open files) is full: a condition, not a failure."""
    return error.errno in NO_SPACE


class PreparedFile:
    """An allocated, empty WAL file."""

    __slots__ = ("file", "number", "size")

    def __init__(self, number: int, file: File, size: int) -> None:
        self.number = number
        self.file = file
        self.size = size


class WalFiles:
    """The directory of one shard. Only its writer uses it, except that `_prepare` runs on another thread.

    `stats`: of the writer; they tell how much it syncs at a time.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        file_bytes: int,
        reserve_bytes: int,
        spawn: Callable[[Callable[[], None]], None],
        stats: WalStats,
    ) -> None:
        self._fs = fs
        self.directory = directory
        self._file_bytes = file_bytes
        self._reserve_bytes = reserve_bytes
        self._spawn = spawn
        self._stats = stats
        #: Bytes and syncs at the beginning of the last file; whether the next one is filled with zeros.
        self._bytes = self._fsyncs = 0
        self._fill = True
        self._ahead: PreparedFile | None = None
        self._preparing = False
        self._lock = threading.Lock()  # one file is created at a time: `take` waits for a `_prepare` in progress

    def path(self, number: int) -> str:
        return layout.join(self.directory, layout.wal_name(number))

    def _make(self, name: str, size: int, *, fill: bool = True) -> File:
        path = layout.join(self.directory, name)
        file = self._fs.open(path, create=True, exclusive=True)
        try:
            file.allocate(size, fill=fill)
            file.sync()
            self._fs.sync_dir(self.directory)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                self._fs.unlink(path)
            raise
        return file

    def take(self, number: int, size: int) -> PreparedFile:
        """The file `number`, allocated for at least `size` bytes. Raises OSError, ENOSPC among them."""
        wanted = max(size, self._file_bytes)
        with self._lock:
            ahead = self._ahead
            if ahead is None or ahead.number != number:
                file = self._make(layout.wal_name(number), wanted, fill=self._fill)
                return PreparedFile(number, file, wanted)
            if ahead.size < wanted:
                ahead.file.allocate(wanted, fill=self._fill)
                ahead.file.sync()
                ahead.size = wanted
            self._ahead = None
            return ahead

    def begin(self, number: int) -> None:
        """Record in CURRENT which file is about to be written (a hint: the listing decides). Raises OSError.

        Whether the next files are filled with zeros depends on the syncs of the file before.
        """
        written, synced = self._stats.bytes - self._bytes, self._stats.fsyncs - self._fsyncs
        if written:
            self._fill = written < synced * UNFILLED_FROM
        self._bytes, self._fsyncs = self._stats.bytes, self._stats.fsyncs
        path = layout.join(self.directory, layout.CURRENT)
        temporary = path + layout.TMP_SUFFIX
        file = self._fs.open(temporary, create=True)
        try:
            text = f"{layout.wal_name(number)}\n".encode()
            file.truncate(0)
            write_whole(file, text, 0)
            file.sync()
        finally:
            file.close()
        self._fs.rename(temporary, path)
        self._fs.sync_dir(self.directory)

    def prepare_ahead(self, number: int) -> None:
        """Start to create file `number` before it is needed. If that fails, `take` tries again and raises the error."""
        if self._ahead is None and not self._preparing:
            self._preparing = True
            self._spawn(lambda: self._prepare(number))

    def _prepare(self, number: int) -> None:
        with self._lock:
            try:
                if not self._fs.exists(self.path(number)):
                    file = self._make(layout.wal_name(number), self._file_bytes, fill=self._fill)
                    self._ahead = PreparedFile(number, file, self._file_bytes)
            except OSError:
                pass  # the writer tries again when it needs the file, and says what happened
            finally:
                self._preparing = False

    def drop_ahead(self) -> None:
        """Delete the prepared file, to free its space."""
        with self._lock:
            self._drop_ahead()

    def _drop_ahead(self) -> None:
        if self._ahead is not None:
            self.discard(self._ahead)
            self._ahead = None

    # -- the reserve -------------------------------------------------------------------------------------------------

    def has_reserve(self) -> bool:
        return self._fs.exists(layout.join(self.directory, layout.RESERVE))

    def make_reserve(self) -> None:
        """Create the reserve for the time when the disk is full, if it is missing. Raises OSError."""
        path = layout.join(self.directory, layout.RESERVE)
        if self.has_reserve():
            if self._fs.file_size(path) >= self._reserve_bytes:
                return
            self._fs.unlink(path)  # the process was killed before all its space was allocated
        self._make(layout.RESERVE, self._reserve_bytes).close()

    def take_reserve(self, number: int) -> PreparedFile:
        """The reserve becomes file `number`. Raises OSError; ENOENT when it was used before."""
        path = layout.join(self.directory, layout.RESERVE)
        with self._lock:
            self._drop_ahead()  # it has the number that the reserve gets
            file = self._fs.open(path)
            try:
                size = file.size()
                self._fs.rename(path, self.path(number))
                self._fs.sync_dir(self.directory)
            except OSError:
                file.close()
                raise
        return PreparedFile(number, file, size)

    def discard(self, prepared: PreparedFile) -> None:
        """Delete a file that was not used."""
        prepared.file.close()
        with contextlib.suppress(OSError):
            self._fs.unlink(self.path(prepared.number))
