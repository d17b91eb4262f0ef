"""An io_uring of the kernel, by system calls: entries are pushed and submitted, and complete as (user_data, result).

    io_uring_setup(entries, params)      creates two rings in memory that kernel and process share
    submission ring                      we write entries of 64 bytes and move its tail; the kernel moves its head
    completion ring                      the kernel writes entries of 16 bytes and moves its tail; we move its head
    io_uring_enter(submit, wait_for)     submits the written entries, or waits for completions

Submission entry, little-endian, offsets in bytes (linux/io_uring.h): 0 opcode u8, 1 flags u8, 2 ioprio u16, 4 fd i32,
8 offset u64, 16 address u64, 24 length u32, 28 flags of the operation u32, 32 user_data u64, the rest 0.
Completion entry: 0 user_data u64, 8 result i32 (negative: errno), 12 flags u32.

Every call lets other threads run (ctypes releases the interpreter lock). The rings are read and written as plain
memory, so the processor must do that in the order of the program. x86-64 keeps this order; other processors do not, and
are refused. Only `wait`, which touches no ring, is safe for two threads at once.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from typing import NamedTuple, Protocol

OP_NOP = 0
OP_FSYNC = 3
OP_READ = 22
OP_WRITE = 23
#: Flag of an entry: the next one starts when this one has succeeded in full.
LINK = 4
#: Flag of OP_FSYNC.
DATASYNC = 1

_SETUP, _ENTER = 425, 426  # the same numbers on every machine except alpha
_PARAMS_SIZE = 120
_OFF_SQES = 0x10000000
_GETEVENTS = 1
_SINGLE_MMAP, _NODROP = 1 << 0, 1 << 1
_SQE = struct.Struct("<BBHiQQIIQ24x")
_CQE = struct.Struct("<QiI")
_ORDERED_MACHINES = ("x86_64",)
_WRAP = 0xFFFFFFFF


class Entry(NamedTuple):
    """An operation for the kernel. The memory at `address` (`length` bytes) must stay until the result is there."""

    opcode: int
    fd: int
    offset: int = 0
    address: int = 0
    length: int = 0
    operation_flags: int = 0
    flags: int = 0


class RingLike(Protocol):
    """The part of a ring that the submitter needs; tests have their own."""

    @property
    def entries(self) -> int:
        """Most entries of one submission."""
        ...

    @property
    def completions(self) -> int:
        """Most entries in flight at a time."""
        ...

    def push(self, entry: Entry, user_data: int) -> None:
        """Write an entry for the next `submit`. At most `entries` may be written and not yet submitted."""
        ...

    def submit(self, count: int) -> int:
        """Submit the pushed entries; returns how many of `count` the kernel took. Raises OSError when it took none."""
        ...

    def wait(self, completions: int) -> None:
        """Return when this many completions are there, or earlier. Raises OSError."""
        ...

    def reap(self) -> list[tuple[int, int]]:
        """(user_data, result) of the completed entries."""
        ...

    def close(self) -> None: ...


class Ring:
    """Raises OSError if the kernel, a sandbox, a limit or the processor does not allow a ring."""

    def __init__(self, entries: int) -> None:
        if os.uname().machine not in _ORDERED_MACHINES:
            raise OSError(errno.ENOTSUP, f"not used on {os.uname().machine}: its memory order asks for barriers")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.syscall.restype = ctypes.c_long
        self._libc.syscall.argtypes = [ctypes.c_long, *[ctypes.c_ulong] * 6]
        params = bytearray(_PARAMS_SIZE)
        self._fd = self._call(_SETUP, entries, address_of(params), 0, 0)
        try:
            self._map(params)
        except BaseException:
            os.close(self._fd)
            raise

    def _map(self, params: bytearray) -> None:
        self.entries, self.completions, _, _, _, features = struct.unpack_from("<6I", params)
        if not (features & _SINGLE_MMAP and features & _NODROP):
            raise OSError(errno.ENOSYS, "the kernel is too old: it may drop completions")
        _, sq_tail, _, _, _, _, sq_array = struct.unpack_from("<7I", params, 40)
        cq_head, cq_tail, _, _, _, cqes = struct.unpack_from("<6I", params, 80)
        size = max(sq_array + 4 * self.entries, cqes + _CQE.size * self.completions)
        self._ring = mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._sqes = mmap.mmap(
            self._fd, self.entries * _SQE.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=_OFF_SQES
        )
        self._words = memoryview(self._ring)[: size // 4 * 4].cast("I")
        self._sq_tail, self._cq_head, self._cq_tail, self._cqes = sq_tail // 4, cq_head // 4, cq_tail // 4, cqes
        for index in range(self.entries):
            self._words[sq_array // 4 + index] = index
        self._tail = self._words[self._sq_tail]

    def _call(self, number: int, first: int, second: int, third: int, fourth: int) -> int:
        result = self._libc.syscall(number, first, second, third, fourth, 0, 0)
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result

    def push(self, entry: Entry, user_data: int) -> None:
        opcode, fd, offset, address, length, operation_flags, flags = entry
        at = (self._tail & (self.entries - 1)) * _SQE.size
        _SQE.pack_into(self._sqes, at, opcode, flags, 0, fd, offset, address, length, operation_flags, user_data)
        self._tail = self._words[self._sq_tail] = (self._tail + 1) & _WRAP

    def submit(self, count: int) -> int:
        return self._call(_ENTER, self._fd, count, 0, 0)

    def wait(self, completions: int) -> None:
        self._call(_ENTER, self._fd, 0, completions, _GETEVENTS)

    def reap(self) -> list[tuple[int, int]]:
        head, tail = self._words[self._cq_head], self._words[self._cq_tail]
        found: list[tuple[int, int]] = []
        while head != tail:
            user_data, result, _ = _CQE.unpack_from(
                self._ring, self._cqes + (head & (self.completions - 1)) * _CQE.size
            )
            found.append((user_data, result))
            head = (head + 1) & _WRAP
        self._words[self._cq_head] = head
        return found

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._words.release()
            self._ring.close()
            self._sqes.close()
            os.close(fd)


def address_of(data: bytes | bytearray) -> int:
    """The address of the content in memory, valid while the object lives and a bytearray keeps its size. Not for
    b''."""
    if isinstance(data, bytes):
        (address,) = struct.unpack("P", ctypes.c_char_p(data))
        return address
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
