"""The one seam to the disk: what each call does, and what it promises after a crash.

Implementations: `storage.platform.posix.PosixFileSystem` and, with other ways to write a log, `storage.platform.io`;
and the forgetful disk of the tests (`tests/support/sim_disk.py`), which drops whatever was not synced when its power
is cut.

What a crash keeps (power loss; a killed process loses nothing that a call had returned from):

    pwritev, truncate      nothing, any prefix, or any set of 512-byte sectors, until datasync/sync returns
    datasync, sync         all bytes and the length of that file written before the call was made
    open(create), rename,
    mkdir, unlink, rmdir   nothing until sync_dir(parent) returns; a file synced but never
                           entered in its directory by sync_dir may be gone as a whole
    lock                   released when the last process that has it open ends, however it ends

Every call raises OSError and nothing else. After datasync or sync has raised, the state of
the pages is unknown for good: the caller must never sync that file again and believe it.
Calls are made from several threads at once, but never two at once on one File, but for pread.
Offsets and sizes are bytes; paths are absolute strings.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class SyncFailed(OSError):
    """All bytes were written, but making them durable failed, whatever the errno: never sync that file again."""


class Readable(Protocol):
    """What is read like an open file."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end."""
        ...

    def size(self) -> int:
        """All there is, bytes."""
        ...

    def close(self) -> None: ...


class File(Protocol):
    """An open regular file."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write the buffers one after another at `offset`; return the bytes written, which may be fewer."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`; shorter only at the end of the file."""
        ...

    def size(self) -> int:
        """Length of the file in bytes, as the running system sees it."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend (with zeros) to `size`. Durable only after `sync`."""
        ...

    def allocate(self, size: int, *, fill: bool = True) -> None:
        """Make [0, size) exist as zeros with blocks of their own, so that writing there never lacks space.

        `fill`: the zeros are written, so that a later sync need not note which blocks were written for the first time;
        else they are only had, where the file system can do that. Raises ENOSPC or EDQUOT when it cannot. Only for
        files that hold nothing yet. Durable after `sync`.
        """
        ...

    def datasync(self) -> None:
        """fdatasync: bytes and length written before the call survive anything."""
        ...

    def sync(self) -> None:
        """fsync."""
        ...

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, between: Callable[[], None]) -> None:
        """Write all of the buffers, then `datasync`; the sync is issued only when every byte had been written.

        `between` is called between the two where they are two steps for the caller's machine. Raises SyncFailed when
        the sync failed, any other OSError when the write did: some of the bytes may then be there.
        """
        ...

    def close(self) -> None:
        """Close without syncing. Closing twice is harmless."""
        ...


class Lock(Protocol):
    """An exclusive lock held on a file, which can carry a short text."""

    def write(self, text: str) -> None:
        """Replace the content of the lock file (not synced: it has to outlive a process, not a power loss)."""
        ...

    def previous(self) -> str:
        """What the file held when the lock was taken ('' for a new one)."""
        ...

    def descriptor(self) -> int | None:
        """What another process must have open for the directory to stay locked as long as it lives, whoever made the
        lock; None where no other process can reach these files.
        """
        ...

    def release(self) -> None:
        """Let go of it. Others that have the descriptor open still hold it."""
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
        """What `pread` of each gives, in order. The files are those of this file system."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted. ENOENT when there is none."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def mkdir(self, path: str) -> None:
        """Make one directory, for this user alone. EEXIST when present."""
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

    def runs(self, pid: int) -> bool:
        """Whether there is a process of that number, as far as can be told: one that has ended is not, waited for or
        not.
        """
        ...

    def boot_id(self) -> str:
        """Names the running boot of this machine: the page cache lives as long as it does not change."""
        ...


def write_whole(file: File, data: Buffer, offset: int) -> None:
    """Write all of it, in as many calls as that takes: a short write is no error. Raises OSError."""
    left = memoryview(data)
    while left:
        written = file.pwritev([left], offset)
        if written <= 0:
            raise OSError(errno.EIO, f"{len(left)} bytes were not taken")
        left = left[written:]
        offset += written


def write_buffers(file: File, buffers: Sequence[Buffer], offset: int) -> None:
    """Write all of the buffers one after another, in as many calls as that takes. Raises OSError."""
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


def write_then_sync(file: File, buffers: Sequence[Buffer], offset: int, between: Callable[[], None]) -> None:
    """`File.write_and_sync` in two steps."""
    write_buffers(file, buffers, offset)
    between()
    try:
        file.datasync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error


def read_each(reads: Sequence[Read]) -> list[bytes]:
    """`FileSystem.read_many`, one by one."""
    return [each.file.pread(each.size, each.offset) for each in reads]
