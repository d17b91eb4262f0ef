"""Payload bytes of the live records of a segment, block by block: what an eviction asks for at every write.

A block is STRIDE records. Its sum is kept together with the bits of the records that it leaves out, so nobody has to
be told of a deletion: whoever asks next sees which bits have changed, and those blocks alone are summed again. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate, compress
from operator import mul

from storage.format.cutting import alike, total

STRIDE = 256
_BLOCK = (1 << STRIDE) - 1
_DEAD_DIGITS = bytes(1 if code == ord("0") else 0 for code in range(256))


def alive_flags(dead: int, begin: int, end: int) -> bytes:
    """1 or 0 for each record with begin <= index < end; bit i of `dead`: the record i is not alive."""
    gone = dead >> begin & ((1 << (end - begin)) - 1)
    if not gone:
        return b"\1" * (end - begin)
    return bytes(f"{gone:0{end - begin}b}", "ascii")[::-1].translate(_DEAD_DIGITS)


def that_free(
    count: int, sizes: array[int], alive: bytes | bytearray | None, records: int, size_bytes: int
) -> tuple[int, int, int]:
    """(taken, records, bytes): of the next `count` records the first ones that free so much, all where they do not,
    and what is left to be freed then.

    `alive`: 1 or 0 for each, None: all are. `sizes` is looked at where bytes are to be freed.
    """
    enough = 0
    if records > 0:
        if alive is None:
            enough = records - 1
        elif alive.count(1) < records:
            enough = count
        else:
            enough = bisect_left([*accumulate(alive)], records)
    freed = 0
    if size_bytes > 0 and alive is None and alike(sizes):  # as sizes mostly are
        freed = sizes[0] * count
        enough = max(enough, -(-size_bytes // sizes[0]) - 1 if sizes[0] else count)
    elif size_bytes > 0:
        running = [*accumulate(sizes if alive is None else map(mul, sizes, alive))]
        freed = running[-1]
        enough = max(enough, bisect_left(running, size_bytes))
    if enough < count:
        return enough + 1, 0, 0
    return count, records - (count if alive is None else alive.count(1)), size_bytes - freed


class LiveSums:
    """Sums over `payloads`, which may grow at its end and does not change otherwise."""

    __slots__ = ("_blocks", "_dead", "payloads")

    def __init__(self, payloads: array[int]) -> None:
        self.payloads = payloads
        #: Of each whole block, and the records that these leave out.
        self._blocks: array[int] = array("Q")
        self._dead = 0

    def between(self, begin: int, end: int, dead: int) -> int:
        """Bytes of the records with begin <= index < end that are not in the bitset `dead`."""
        first, last = -(-begin // STRIDE), end // STRIDE
        if first >= last:
            return self._sum(begin, end, dead)
        self._bring_up_to_date(dead)
        size = total(self._blocks[first:last])
        if begin < first * STRIDE:
            size += self._sum(begin, first * STRIDE, dead)
        if last * STRIDE < end:
            size += self._sum(last * STRIDE, end, dead)
        return size

    def _bring_up_to_date(self, dead: int) -> None:
        blocks, whole = self._blocks, len(self.payloads) // STRIDE
        changed = 0
        if dead is not self._dead:
            changed = (dead ^ self._dead) & ((1 << (len(blocks) * STRIDE)) - 1)
            self._dead = dead
        while changed:
            block = ((changed & -changed).bit_length() - 1) // STRIDE
            blocks[block] = self._sum(block * STRIDE, (block + 1) * STRIDE, dead)
            changed &= ~(_BLOCK << (block * STRIDE))
        for block in range(len(blocks), whole):
            blocks.append(self._sum(block * STRIDE, (block + 1) * STRIDE, dead))

    def _sum(self, begin: int, end: int, dead: int) -> int:
        sizes = self.payloads[begin:end]
        if not dead or not dead >> begin & ((1 << (end - begin)) - 1):
            return total(sizes)
        return sum(compress(sizes, alive_flags(dead, begin, end)))
