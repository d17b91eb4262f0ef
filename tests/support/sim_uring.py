"""The backend `io_uring` on the simulated disk: its own code, on a ring that carries entries out as calls on that disk.

    SimDisk.dress = SimUringFile          # files are opened as those of the backend

Entries are carried out in order when they are submitted. Each is a call to the disk, where the machine can stop and
which can fail. A link is cut if its write was short or failed, as the kernel does it.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Sequence
from itertools import count

from storage.platform.filesystem import Buffer, File
from storage.platform.io.ring import LINK, OP_FSYNC, OP_NOP, OP_READ, OP_WRITE, Entry
from storage.platform.io.submitter import Submitter
from storage.platform.io.uring import UringFile


class CallRing:
    """A ring whose entries are calls on `files`, by descriptor. `amiss` may return another result than the call's
    own."""

    entries = 8
    completions = 16

    def __init__(self, files: dict[int, File], amiss: Callable[[Entry], int | None] = lambda _: None) -> None:
        self.files = files
        self.amiss = amiss
        #: The entries carried out, in order.
        self.done: list[Entry] = []
        self._pushed: list[tuple[Entry, int]] = []
        self._completed: list[tuple[int, int]] = []

    def push(self, entry: Entry, user_data: int) -> None:
        assert len(self._pushed) < self.entries
        self._pushed.append((entry, user_data))

    def submit(self, count: int) -> int:
        taken, self._pushed = self._pushed[:count], self._pushed[count:]
        linked = severed = False
        for entry, user_data in taken:
            severed = severed and linked
            result = -errno.ECANCELED if severed else self._result(entry)
            linked = bool(entry.flags & LINK)
            severed = severed or result < 0 or (entry.opcode == OP_WRITE and result != entry.length)
            self._completed.append((user_data, result))
        return len(taken)

    def _result(self, entry: Entry) -> int:
        self.done.append(entry)
        wrong = self.amiss(entry)
        if wrong is not None:
            return wrong
        try:
            return _carry_out(self.files, entry)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def wait(self, completions: int) -> None:
        assert len(self._completed) >= completions

    def reap(self) -> list[tuple[int, int]]:
        found, self._completed = self._completed, []
        return found

    def close(self) -> None:
        self.files.clear()


def _carry_out(files: dict[int, File], entry: Entry) -> int:
    if entry.opcode == OP_NOP:
        return 0
    file = files[entry.fd]
    if entry.opcode == OP_FSYNC:
        file.datasync()
        return 0
    if entry.opcode == OP_WRITE:
        return file.pwritev([ctypes.string_at(entry.address, entry.length)], entry.offset)
    assert entry.opcode == OP_READ
    data = file.pread(entry.length, entry.offset)
    ctypes.memmove(entry.address, data, len(data))
    return len(data)


_numbers = count(1_000_000)


class SimUringFile(UringFile):
    """A file of the simulated disk that is written and synced with a ring of its own."""

    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        number = next(_numbers)
        super().__init__(number, Submitter(CallRing({number: file})))
        self._file = file

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        return self._file.pwritev(buffers, offset)

    def pread(self, size: int, offset: int) -> bytes:
        return self._file.pread(size, offset)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int, *, fill: bool = True) -> None:
        self._file.allocate(size, fill=fill)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()
