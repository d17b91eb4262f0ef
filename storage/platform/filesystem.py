"""The only interface to the disk: what each call does, and what it promises after a crash.

Implementations: `storage.platform.posix.PosixFileSystem` and, with other ways to write a log, `storage.platform.io`;
and the simulated disk of the tests (`tests/support/sim_disk.py`), which drops all unsynced bytes when its power is cut.

What a crash keeps (power loss; killing the process loses nothing for which a call had returned):

    pwritev, truncate      nothing, any prefix, or any set of 512-byte sectors, until datasync/sync returns
    datasync, sync         all bytes and the length of that file written before the call was made
    open(create), rename,
    mkdir, unlink, rmdir   nothing until sync_dir(parent) returns; a synced file whose directory
                           was never synced by sync_dir may be gone as a whole
    lock                   released when the last process that has it open ends, however it ends

Every call raises OSError and nothing else. After datasync or sync has raised, the state of
the pages is unknown for good: the caller must never sync that file again and trust the result.
Several threads make calls at once, but never two on one File, except for pread.
Offsets and sizes are bytes; paths are absolute strings.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class SyncFailed(OSError):
    """All bytes were written, but the sync failed, whatever the errno: never sync that file again."""


class Readable(Protocol):
    """Can be read like an open file."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def close(self) -> None: ...


class File(Protocol):
    """An open regular file."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write the buffers one after another at `offset`; return the number of bytes written, which may be fewer."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end of the file."""
        ...

    def size(self) -> int:
        """Length of the file in bytes, as the running system sees it."""
        ...

    def truncate(self, size: int) -> None:
        """Shorten the file, or extend it with zeros, to `size`. Durable only after `sync`."""
        ...

    def allocate(self, size: int, *, fill: bool = True) -> None:
        """Make [0, size) exist as zeros with allocated blocks, so that writing there never lacks space.

        `fill`: the zeros are written, so that later syncs need not record the first write to a block. Otherwise the
        blocks are only allocated, where the file system supports that. Raises ENOSPC or EDQUOT when there is no
        space. Only for empty files. Durable after `sync`.
        """
        ...

    def datasync(self) -> None:
        """fdatasync: bytes and length written before the call survive anything."""
        ...

    def sync(self) -> None:
        """fsync."""
        ...

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        """Write all of the buffers, then `datasync`; the sync is issued only when every byte has been written.

        Returns what `now` said between the two; before both, if they are one step. Raises SyncFailed when the sync
        failed, and any other OSError when the write failed: then some of the bytes may be in the file.
        """
        ...

    def close(self) -> None:
        """Close without syncing. Closing twice is harmless."""
        ...


class Lock(Protocol):
    """An exclusive lock held on a file, which can carry a short text."""

    def write(self, text: str) -> None:
        """Replace the content of the lock file (not synced: it must survive the process, not a power loss)."""
        ...

    def previous(self) -> str:
        """The content of the file when the lock was taken ('' for a new one)."""
        ...

    def release(self) -> None:
        """Release the lock. Other processes with the descriptor open still hold it."""
        ...


class Read(NamedTuple):
    """One read of several."""

    file: File
    size: int
    offset: int


class FileSystem(Protocol):
    """Names and directories."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> File:
        """Open a file. `create` makes it when missing, for this user; `exclusive` refuses (EEXIST) an existing one."""
        ...

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        """The result of `pread` for each, in order. The files belong to this file system."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted. ENOENT when there is none."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def mkdir(self, path: str) -> None:
        """Create one directory, for this user only. EEXIST when it exists."""
        ...

    def is_private(self, path: str) -> bool:
        """Whether no other user may enter or read a directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None:
        """fsync of the directory: its entries as they are now survive anything."""
        ...

    def lock(self, path: str) -> Lock:
        """flock(LOCK_EX | LOCK_NB), creating the file. BlockingIOError when another process holds it."""
        ...

    def is_running(self, pid: int) -> bool:
        """Whether a process with that number exists, as far as can be known. A process that has ended does not
        count, even if nobody has waited for it."""
        ...

    def boot_id(self) -> str:
        """The name of the machine's running boot: the page cache lives as long as it does not change."""
        ...


def write_whole(file: File, data: Buffer, offset: int) -> None:
    """Write all of `data`, in as many calls as needed: a short write is no error. Raises OSError."""
    left = memoryview(data)
    while left:
        written = file.pwritev([left], offset)
        if written <= 0:
            raise OSError(errno.EIO, f"{len(left)} bytes were not taken")
        left = left[written:]
        offset += written


def write_buffers(file: File, buffers: Sequence[Buffer], offset: int) -> None:
    """Write all of the buffers one after another, in as many calls as needed. Raises OSError."""
    left = list(buffers)
    first, size = 0, sum(map(len, left))
    while size:
        count = file.pwritev(left[first:] if first else left, offset)
        if count <= 0:
            raise OSError(errno.EIO, f"{size} bytes were not taken")
        offset += count
        size -= count
        while size and count >= len(left[first]):
            count -= len(left[first])
            first += 1
        if size and count:
            left[first] = memoryview(left[first])[count:]


def write_then_sync(file: File, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
    """`File.write_and_sync` in two steps."""
    write_buffers(file, buffers, offset)
    written = now()
    try:
        file.datasync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error
    return written


def read_each(reads: Sequence[Read]) -> list[bytes]:
    """`FileSystem.read_many`, one by one."""
    return [each.file.pread(each.size, each.offset) for each in reads]
