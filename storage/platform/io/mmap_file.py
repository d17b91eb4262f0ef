"""The backend `mmap` copies groups into a shared map of the preallocated log file and syncs its descriptor.

If the disk cannot take a store into a map, the store kills the process (SIGBUS), while a write would raise. So:

- only files that this handle has allocated are mapped, and only the allocated part, whose blocks exist;
- before every store, MADV_POPULATE_WRITE requests its pages. It raises in the cases in which a store would kill: beyond
  the end, on a full disk (file systems that copy on write), at pages that cannot be read;
- after any error of it, and at every truncate, the map is given up for good. From then on the file uses pwritev, which
  reports errors in its own way.

While pages are populated, other threads run. The copy then finds its pages, and lets no other thread run. Writes above
MAP_MAX_BYTES use pwritev, which always lets other threads run. Map and file share the same pages, so readers and
pwritev see the stored bytes, and an error of the device shows at fdatasync, once, as it does for writes.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence

from storage.platform.filesystem import Buffer, write_then_sync
from storage.platform.posix import PosixFile, PosixFileSystem, open_descriptor

MAP_MAX_BYTES = 256 * 1024
_MADV_POPULATE_WRITE = 23
_PAGE = mmap.PAGESIZE

#: (address, bytes); raises OSError.
Populate = Callable[[int, int], None]


def _libc_populate() -> Populate:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def populate(address: int, size: int) -> None:
        if libc.madvise(address, size, _MADV_POPULATE_WRITE) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return populate


class MmapFile(PosixFile):
    """An open descriptor, and a map of it from the first write after `allocate` to the next `truncate`."""

    __slots__ = ("_address", "_allocated", "_map", "_populate")

    def __init__(self, fd: int, populate: Populate) -> None:
        super().__init__(fd)
        self._populate = populate
        self._allocated = 0
        self._map: mmap.mmap | None = None
        self._address = 0

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        return write_then_sync(self, buffers, offset, now)

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        size = sum(map(len, buffers))
        if not 0 < size <= MAP_MAX_BYTES or offset + size > self._allocated or not self._ready(offset, size):
            return super().pwritev(buffers, offset)
        assert self._map is not None
        self._map[offset : offset + size] = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        return size

    def _ready(self, offset: int, size: int) -> bool:
        """Whether these bytes can be stored through the map."""
        try:
            if self._map is None:
                self._map = mmap.mmap(self._fd, self._allocated)
                self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
            first = offset & -_PAGE
            self._populate(self._address + first, offset + size - first)
        except (OSError, ValueError):  # ValueError: the file has become shorter than it was allocated
            self._unmap()
            return False
        return True

    def _unmap(self) -> None:
        self._allocated = 0
        if self._map is not None:
            self._map.close()
            self._map = None

    def truncate(self, size: int) -> None:
        self._unmap()
        super().truncate(size)

    def allocate(self, size: int, *, fill: bool = True) -> None:
        self._unmap()
        super().allocate(size, fill=fill)
        self._allocated = size

    def close(self) -> None:
        self._unmap()
        super().close()


class MmapFileSystem(PosixFileSystem):
    """Raises OSError if the kernel cannot populate maps (before Linux 5.14)."""

    def __init__(self, populate: Populate | None = None) -> None:
        self._populate = populate or _libc_populate()
        with mmap.mmap(-1, _PAGE) as probe:
            self._populate(ctypes.addressof(ctypes.c_char.from_buffer(probe)), _PAGE)

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> PosixFile:
        fd = open_descriptor(path, create=create, exclusive=exclusive, write=write)
        return MmapFile(fd, self._populate) if write else PosixFile(fd)
