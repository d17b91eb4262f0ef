"""An LSN: a position in one shard's log as a single integer, so that positions compare.

file number << 40 | byte offset
"""

from __future__ import annotations

SHIFT = 40
OFFSET_MASK = MAX_OFFSET = (1 << SHIFT) - 1


def position(file: int, offset: int) -> int:
    """The position of a byte offset in a WAL file."""
    return file << SHIFT | offset


def split(lsn: int) -> tuple[int, int]:
    """(file number, byte offset) of a position."""
    return lsn >> SHIFT, lsn & OFFSET_MASK
