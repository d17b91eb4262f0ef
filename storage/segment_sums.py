"""Payload bytes of the live records of a segment, block by block: what an eviction asks for at every write.

A block is STRIDE records. Its sum is kept together with the bits of the records that it leaves out, so nobody has to
be told of a deletion: whoever asks next sees which bits have changed, and those blocks alone are summed again. Pure.
"""

from __future__ import annotations

from array import array
from itertools import compress

from storage.format.cutting import total

STRIDE = 256
_BLOCK = (1 << STRIDE) - 1
_DEAD_DIGITS = bytes(1 if code == ord("0") else 0 for code in range(256))


def alive_flags(dead: int, begin: int, end: int) -> bytes:
    """1 or 0 for each record with begin <= index < end; bit i of `dead`: the record i is not alive."""
    gone = dead >> begin & ((1 << (end - begin)) - 1)
    if not gone:
        return b"\1" * (end - begin)
    return bytes(f"{gone:0{end - begin}b}", "ascii")[::-1].translate(_DEAD_DIGITS)


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
