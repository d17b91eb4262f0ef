"""Append frames put together from columns: lengths in front, checksums behind. Pure.

What a checksum covers is joined for it and let go again, while it is in the fastest cache: nothing is copied twice that
has left it, and no record costs a Python call.

Source: docs/reference/format.md#frames.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import add
from typing import TypeAlias

from storage.format.blocks import all_equal, put, split_block, total
from storage.format.checksum import checksum, checksum_bytes
from storage.format.wal_frame import CHECKSUM, LENGTH
from storage.platform.filesystem import Buffer

#: Up to so many frames are made one by one: setting up columns costs more than the few records that share them.
FEW = 16
_join = b"".join

Pieces: TypeAlias = list[Buffer]


class Frames:
    """Append frames that have yet to be joined, so that a large write is copied once. For one use."""

    __slots__ = ("_pieces", "size")

    def __init__(self, pieces: Pieces, size: int) -> None:
        """`size`: bytes of all."""
        self._pieces = pieces
        self.size = size

    def between(self, front: bytes, behind: bytes) -> bytes:
        """They and what goes with them."""
        return _join([front, *self._pieces, behind])


def framed(headers: Sequence[bytes], columns: Sequence[Sequence[Buffer]], closing: bytes, sizes: array[int]) -> Frames:
    """The frames. `headers`: of each what follows the length; `columns`: what follows that, one behind the other;
    `closing`: what all end with; `sizes`: of whole frames.
    """
    count = len(sizes)
    covered: Iterable[bytes]
    if len(columns) == 1 and not closing:
        covered = map(add, headers, columns[0])
    else:
        covered = map(_join, zip(headers, *columns, repeat(closing)))
    sums = _join(map(checksum_bytes, covered))
    # Between two frames stand the checksum of the one and the length of the other.
    width = len(closing) + CHECKSUM.size + LENGTH.size
    if all_equal(sizes):
        first = LENGTH.pack(sizes[0] - LENGTH.size)
        between = bytearray((closing + bytes(CHECKSUM.size) + first) * count)
    else:
        lengths = little(array("I", [each - LENGTH.size for each in sizes]))
        first, following = lengths[: LENGTH.size], lengths[LENGTH.size :] + bytes(LENGTH.size)
        between = bytearray((closing + bytes(CHECKSUM.size + LENGTH.size)) * count)
        put(between, width - LENGTH.size, width, following, LENGTH.size)
    for byte in range(CHECKSUM.size):
        # Digests are big-endian, whatever the machine is.
        between[width - LENGTH.size - 1 - byte :: width] = sums[byte :: CHECKSUM.size]
    step = len(columns) + 2
    pieces: Pieces = [b""] * (step * count + 1)
    pieces[0] = first
    pieces[1::step] = headers
    for index, column in enumerate(columns, start=2):
        pieces[index::step] = column
    pieces[step::step] = split_block(between, width)
    pieces[-1] = bytes(between[-width : -LENGTH.size])
    return Frames(pieces, total(sizes))


def framed_each(bodies: Iterable[bytes]) -> tuple[Frames, array[int]]:
    """The frames, and their sizes, one by one. `bodies`: of each what stands between length and checksum."""
    pieces: Pieces = []
    sizes = array("I")
    for body in bodies:
        size = len(body) + CHECKSUM.size
        pieces += LENGTH.pack(size), body, CHECKSUM.pack(checksum(body))
        sizes.append(size + LENGTH.size)
    return Frames(pieces, sum(sizes)), sizes


def little(column: array[int]) -> bytes:
    """The numbers as they are on disk. The column is not to be used any more."""
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()
