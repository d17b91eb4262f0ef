"""The backend `io_uring`: a group's write and its sync are one submission, even for several shards at once.

The sync is linked after the write: the kernel starts the sync only when the write has succeeded in full. Both results
are checked all the same, and if there is the least doubt whether the link held, the file is synced again.
Short writes continue where they stopped. After EINTR, EAGAIN and ECANCELED (the submitting thread has ended) the call
is repeated. Any other error is the file's. Many reads are one submission; a single read is a plain pread, which is
faster.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence

from storage.platform.filesystem import Buffer, Read, SyncFailed, read_each, write_buffers
from storage.platform.io.ring import (
    DATASYNC,
    LINK,
    OP_FSYNC,
    OP_NOP,
    OP_READ,
    OP_WRITE,
    Entry,
    Ring,
    RingLike,
    address_of,
)
from storage.platform.io.submitter import RingBroken, Submitter
from storage.platform.posix import PosixFile, PosixFileSystem, open_descriptor

_AGAIN = (errno.EINTR, errno.EAGAIN, errno.ECANCELED)
_MOST_TRIES = 1000
#: A larger write uses pwritev, so that its buffers need not be copied into one; its sync still uses the ring.
LINKED_MAX_BYTES = 16 << 20
#: Most entries that a ring can submit at once. A shard has one write and one sync in flight.
WRITE_ENTRIES, READ_ENTRIES = 256, 64


class UringFile(PosixFile):
    """An open descriptor whose syncs, and writes followed by a sync, go through a ring."""

    __slots__ = ("_submitter",)

    def __init__(self, fd: int, submitter: Submitter) -> None:
        super().__init__(fd)
        self._submitter = submitter

    def datasync(self) -> None:
        fd = self._open_fd()
        for _ in range(_MOST_TRIES):
            (result,) = self._run([Entry(OP_FSYNC, fd, operation_flags=DATASYNC)])[0]
            if result >= 0:
                return
            if -result not in _AGAIN:
                raise _error(result)
        raise _error(-errno.EAGAIN)

    def write_and_sync(self, buffers: Sequence[Buffer], offset: int, now: Callable[[], int]) -> int:
        size = sum(map(len, buffers))
        if not 0 < size <= LINKED_MAX_BYTES:
            write_buffers(self, buffers, offset)
            written = now()
            self._sync_or_fail()
            return written
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        began = now()
        self._write_linked(data, offset)
        return began

    def _write_linked(self, data: bytes, offset: int) -> None:
        fd, at = self._open_fd(), address_of(data)
        done = tries = 0
        while True:
            left = len(data) - done
            write = Entry(OP_WRITE, fd, offset + done, at + done, left, flags=LINK)
            (wrote, synced), split = self._run([write, Entry(OP_FSYNC, fd, operation_flags=DATASYNC)], data)
            if wrote < 0 and -wrote not in _AGAIN:
                raise _error(wrote)
            if wrote == left:
                break
            tries = 0 if wrote > 0 else tries + 1
            if tries > _MOST_TRIES or wrote == 0:
                raise OSError(errno.EIO, f"{left} bytes were not taken")
            done += max(0, wrote)
        if synced < 0 and -synced not in _AGAIN:
            raise SyncFailed(-synced, os.strerror(-synced))
        if synced < 0 or split:
            self._sync_or_fail()

    def _sync_or_fail(self) -> None:
        try:
            self.datasync()
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror) from error

    def _run(self, entries: Sequence[Entry], keep: object = None) -> tuple[list[int], bool]:
        """The results of the entries, and whether a link between them may not have held."""
        try:
            request = self._submitter.run(entries, keep)
        except RingBroken:
            self._fd = (
                -1
            )  # never closed: the number must not be reused for another file while the kernel may still run entries
            raise
        return request.results, request.split


class UringFileSystem(PosixFileSystem):
    """Has two rings of its own, for writes and syncs, and for reads. Raises OSError if it cannot get them."""

    def __init__(self, make: Callable[[int], RingLike] = Ring) -> None:
        with contextlib.ExitStack() as made:
            self._writes, self._reads = (_checked(make(entries), made) for entries in (WRITE_ENTRIES, READ_ENTRIES))
            made.pop_all()

    @property
    def submissions(self) -> int:
        """Submissions of writes and syncs so far."""
        return self._writes.submissions

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, write: bool = True) -> PosixFile:
        fd = open_descriptor(path, create=create, exclusive=exclusive, write=write)
        return UringFile(fd, self._writes)

    def read_many(self, reads: Sequence[Read]) -> list[bytes]:
        if len(reads) < 2 or not all(isinstance(each.file, UringFile) and each.size > 0 for each in reads):
            return read_each(reads)
        found: list[bytes] = []
        for begin in range(0, len(reads), self._reads.most_entries):
            found += self._read_batch(reads[begin : begin + self._reads.most_entries])
        return found

    def _read_batch(self, reads: Sequence[Read]) -> list[bytes]:
        buffers = [bytearray(each.size) for each in reads]
        entries = [
            Entry(OP_READ, each.file.descriptor(), each.offset, address_of(buffer), each.size)
            for each, buffer in zip(reads, buffers, strict=True)
            if isinstance(each.file, UringFile)
        ]
        results = self._reads.run(entries, buffers).results
        return [_whole(*each) for each in zip(reads, buffers, results, strict=True)]

    def close(self) -> None:
        """Nothing of this file system may be in use."""
        self._writes.close()
        self._reads.close()


def _whole(read: Read, buffer: bytearray, result: int) -> bytes:
    """The whole read, including the rest after a short read; only the end of the file ends it."""
    if result == read.size:
        return bytes(buffer)
    if result >= 0:
        rest = read.file.pread(read.size - result, read.offset + result) if result else b""
        return bytes(memoryview(buffer)[:result]) + rest
    if -result in _AGAIN:
        return read.file.pread(read.size, read.offset)
    raise _error(result)


def _checked(ring: RingLike, made: contextlib.ExitStack) -> Submitter:
    """A tested ring: a sandbox may allow creating a ring but not using it."""
    submitter = Submitter(ring)
    made.callback(submitter.close)
    (result,) = submitter.run([Entry(OP_NOP, -1)], None).results
    if result < 0:
        raise _error(result)
    return submitter


def _error(result: int) -> OSError:
    return OSError(-result, os.strerror(-result))
