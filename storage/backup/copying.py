"""Copies bytes between files and computes checksums. Blocking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import xxhash

from storage.backup.errors import BackupFailed
from storage.platform import File, write_whole

CHUNK_BYTES = 1 << 20


class Source(Protocol):
    """Anything that can be read like an open file."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`."""
        ...


class Going:
    """Called for every copied chunk; may raise to end the copy."""

    def __init__(self, went_on: Callable[[int], None]) -> None:
        self._went_on = went_on

    def on(self, size: int) -> None:
        self._went_on(size)


def copy(source: Source, what: str, begin: int, size: int, into: File, at: int, going: Going) -> str:
    """Copy [begin, begin + size) of the source to `at`, without a sync. Returns the checksum.

    `what` names the source. Raises BackupFailed if the source is shorter, OSError.
    """
    digest = xxhash.xxh3_64()
    done = 0
    while done < size:
        data = source.pread(min(CHUNK_BYTES, size - done), begin + done)
        if not data:
            raise BackupFailed(
                f"{what} ends after {begin + done} bytes, and {begin + size} should be there.", file=what
            )
        digest.update(data)
        write_whole(into, data, at + done)
        done += len(data)
        going.on(len(data))
    return digest.hexdigest()


def checksum_of(source: Source, size: int, going: Going) -> str:
    """The checksum of the first `size` bytes, or of fewer if the file is shorter."""
    digest = xxhash.xxh3_64()
    done = 0
    while done < size and (data := source.pread(min(CHUNK_BYTES, size - done), done)):
        digest.update(data)
        done += len(data)
        going.on(len(data))
    return digest.hexdigest()
