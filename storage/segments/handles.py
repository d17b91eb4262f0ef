"""Keeps a bounded number of segment files open. The least recently used ones are closed first, never one in use.

Several I/O threads read at once, and no lock is held while they do. A lease counts the users of a segment's files.
Files to be closed (evicted, or of a removed segment) are closed by their last user. For cold segments, whose .data is
not local, `cold` gives an object to read instead.

Source: docs/reference/format.md#segments, docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeAlias

from storage.format import ENTRY_SIZE, Entries, Entry, IdxDamaged, TagFile, idx_entry
from storage.platform import File, FileSystem, Readable
from storage.segments import names
from storage.segments.errors import SegmentCorrupt, SegmentShort
from storage.segments.names import SegmentId
from storage.segments.packed import BlockCache, read_as_data

_TOO_MANY_OPEN = (errno.EMFILE, errno.ENFILE)
#: A larger read first checks that the file has as much, because `pread` allocates what it is asked for.
_UNCHECKED_BYTES = 1 << 20
#: Memory for uncompressed blocks of all open packed segments.
_BLOCKS_BYTES = 16 << 20


#: Gives the .data of a segment that has none in its folder. Does not ask the store yet.
OpenCold: TypeAlias = Callable[[SegmentId], Readable]


class SegmentFiles:
    """The open .data and .idx of one segment, and its .tag once it was needed. Valid within a lease.

    Entry numbers count from 0. Raises SegmentCorrupt where the files do not hold what is asked for
    (SegmentShort where they end before it), and OSError.
    """

    __slots__ = ("_data", "_idx", "_tag_file", "data_path", "id", "idx_path", "retired", "tags", "users")

    def __init__(self, id: SegmentId, paths: tuple[str, str], data: Readable, idx: File) -> None:
        """Made by `OpenSegments`, which alone uses `users` and `retired`, under its lock."""
        self.id = id
        self.data_path, self.idx_path = paths
        self._data = data
        self._idx = idx
        self._tag_file: File | None = None
        #: The verified sidecar; `keep_tags` sets it.
        self.tags: TagFile | None = None
        self.users = 0
        self.retired = False

    def read_idx(self, first: int, count: int) -> bytes:
        """The bytes of `count` entries from number `first` on, unverified."""
        size, offset = count * ENTRY_SIZE, first * ENTRY_SIZE
        buffer = self._idx.pread(size, offset)
        if len(buffer) != size:
            raise SegmentShort(self.idx_path, offset + len(buffer), "the index ends before the segment does")
        return buffer

    def entries(self, first: int, count: int) -> Entries:
        """`count` verified entries from number `first` on."""
        buffer = self.read_idx(first, count)
        try:
            return idx_entry.parse(buffer)
        except IdxDamaged as damage:
            raise self.damaged_entry(first + damage.index) from None

    def entry(self, number: int) -> Entry:
        """One verified entry."""
        return self.entry_in(self.read_idx(number, 1), number, number)

    def entry_in(self, buffer: bytes, number: int, first: int) -> Entry:
        """Entry `number`, verified, of bytes that begin with entry `first`."""
        try:
            return idx_entry.unpack(buffer, number - first)
        except IdxDamaged:
            raise self.damaged_entry(number) from None

    def damaged_entry(self, number: int) -> SegmentCorrupt:
        """The error for an entry that fails its check."""
        return SegmentCorrupt(self.idx_path, self.entry_offset(number), "the index entry fails its check")

    def entry_offset(self, number: int) -> int:
        """Where in .idx an entry begins, bytes."""
        return number * ENTRY_SIZE

    def read_data(self, begin: int, end: int) -> bytes:
        """The bytes [begin, end) of .data, frames unverified."""
        size = end - begin
        if size < 0:
            raise SegmentCorrupt(self.idx_path, 0, f"the entries are out of order: [{begin}, {end}) of .data")
        if size > _UNCHECKED_BYTES and end > (there := self._data.size()):
            raise SegmentShort(self.data_path, there, f"the file ends before offset {end}")
        data = self._data.pread(size, begin) if size else b""
        if len(data) != size:
            raise SegmentShort(self.data_path, begin + len(data), f"the file ends before offset {end}")
        return data

    def keep_tags(self, tags: TagFile, file: File) -> None:
        """Use this sidecar, which reads from `file`, for all later leases. To be called once."""
        self.tags, self._tag_file = tags, file

    def close(self) -> None:
        for file in (self._data, self._idx, self._tag_file):
            if file is not None:
                with contextlib.suppress(OSError):  # nothing was written through it
                    file.close()


class OpenSegments:
    """A cache of open segments, least recently used first out. Every method may be called from any thread.

    Above `max_open` the oldest are closed, or retired while they are in use. When the system has no descriptor left,
    the oldest unused ones are closed until it has; if there are none, the OSError passes through.
    """

    def __init__(self, fs: FileSystem, root: str, max_open: int, cold: OpenCold | None = None) -> None:
        """`cold`: for segments whose .data may be in the cold store. A local .data is preferred."""
        self._fs = fs
        self._root = root
        self._cold = cold
        self._max_open = max_open
        self._blocks = BlockCache(_BLOCKS_BYTES)
        self._lock = threading.Lock()  # never held during a call on the disk
        self._open: OrderedDict[SegmentId, SegmentFiles] = OrderedDict()
        self._forgotten = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def lease(self, id: SegmentId) -> Generator[SegmentFiles]:
        """The segment's files, which stay open until the lease ends. Raises FileNotFoundError when one is missing."""
        files = self._acquire(id)
        try:
            yield files
        finally:
            with self._lock:
                files.users -= 1
                done = files.retired and not files.users
            if done:
                files.close()

    def _acquire(self, id: SegmentId) -> SegmentFiles:
        with self._lock:
            files = self._use(id)
            if files is not None:
                return files
            forgotten = self._forgotten
        made = self._make(id)
        with self._lock:
            files = self._use(id)
            if files is not None:
                closing = [made]  # another thread was faster
            else:
                files = made
                files.users = 1
                # It was forgotten while it was being opened. If it were kept, nothing would ever close it.
                files.retired = self._closed or forgotten != self._forgotten
                if not files.retired:
                    self._open[id] = files
                closing = self._retire_oldest()
        _close(closing)
        return files

    def _use(self, id: SegmentId) -> SegmentFiles | None:
        files = self._open.get(id)
        if files is not None:
            self._open.move_to_end(id)
            files.users += 1
        return files

    def _retire_oldest(self) -> list[SegmentFiles]:
        closing: list[SegmentFiles] = []
        while len(self._open) > self._max_open:
            oldest = self._open.popitem(last=False)[1]
            oldest.retired = True
            if not oldest.users:
                closing.append(oldest)
        return closing

    def _make(self, id: SegmentId) -> SegmentFiles:
        data_path, idx_path = names.records_path(self._root, id), names.path(self._root, id, names.IDX)
        data = self._open_data(id, data_path)
        try:
            idx = self.open_file(idx_path)
        except BaseException:
            data.close()
            raise
        return SegmentFiles(id, (data_path, idx_path), data, idx)

    def _open_data(self, id: SegmentId, path: str) -> Readable:
        try:
            file = self.open_file(path)
        except FileNotFoundError:
            if self._cold is None:
                raise
            return self._cold(id)
        return read_as_data(file, path, id, self._blocks)

    def open_file(self, path: str) -> File:
        """Open for reading. Closes unused segments while the system has no descriptor left."""
        while True:
            try:
                return self._fs.open(path, write=False)
            except OSError as error:
                if error.errno not in _TOO_MANY_OPEN or not self._close_idle():
                    raise

    def _close_idle(self) -> bool:
        """Close the oldest segment that nobody uses; whether there was one."""
        with self._lock:
            idle = next((files for files in self._open.values() if not files.users), None)
            if idle is None:
                return False
            del self._open[idle.id]
        idle.close()
        return True

    def forget(self, id: SegmentId) -> None:
        """Close the segment's files, or let their last reader close them."""
        self._retire([id])

    def close(self) -> None:
        """Close everything, and keep nothing open from now on."""
        with self._lock:
            self._closed = True
            ids = list(self._open)
        self._retire(ids)

    def _retire(self, ids: Iterable[SegmentId]) -> None:
        closing: list[SegmentFiles] = []
        with self._lock:
            self._forgotten += 1
            for id in ids:
                files = self._open.pop(id, None)
                if files is not None:
                    files.retired = True
                    if not files.users:
                        closing.append(files)
        _close(closing)


def _close(closing: Iterable[SegmentFiles]) -> None:
    for files in closing:
        files.close()
