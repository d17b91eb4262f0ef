"""How many of the next records free a given amount; examines STRIDE records at a time. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from operator import mul

from kernel import all_equal

STRIDE = 256
#: Different sizes are added in groups of this many.
_SOME = 64
_DEAD_DIGITS = bytes(1 if code == ord("0") else 0 for code in range(256))


def alive_flags(dead: int, begin: int, end: int) -> bytes:
    """1 or 0 for each record with begin <= index < end; bit i of `dead`: record i is not alive."""
    gone = dead >> begin & ((1 << (end - begin)) - 1)
    if not gone:
        return b"\1" * (end - begin)
    return bytes(f"{gone:0{end - begin}b}", "ascii")[::-1].translate(_DEAD_DIGITS)


def next_that_free(sizes: array[int], index: int, end: int, records: int, size_bytes: int) -> tuple[int, int] | None:
    """How many live records from `index` on free at least this much, and their bytes. None: there are not enough before
    `end`. A requirement that is already met may be negative."""
    records = count = records if records > 0 else 0
    if size_bytes > 0 and index < end and sizes[index]:
        count = max(records, -(-size_bytes // sizes[index]))
    if index + count <= end:
        next_sizes = sizes[index : index + count]
        if count > 0 and all_equal(next_sizes) and next_sizes[0] * count >= size_bytes:  # sizes usually are equal
            return count, next_sizes[0] * count
    if index + records > end:
        return None
    at, freed = index + records, sum(sizes[index : index + records])
    while freed < size_bytes:
        some = sizes[at : min(end, at + _SOME)]
        if not some:
            return None
        of_these = sum(some)
        if freed + of_these >= size_bytes:
            running = [*accumulate(some)]
            last = bisect_left(running, size_bytes - freed)
            return at + last + 1 - index, freed + running[last]
        at, freed = at + len(some), freed + of_these
    return at - index, freed


def that_free(
    count: int, sizes: array[int], alive: bytes | bytearray | None, records: int, size_bytes: int
) -> tuple[int, int, int]:
    """(taken, records, bytes): how many of the next `count` records free this much (all, if they do not suffice),
    and how many records and bytes remain to be freed.

    `alive`: 1 or 0 for each record; None: all are alive. `sizes` is read only when bytes are to be freed.
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
    if size_bytes > 0 and alive is None and all_equal(sizes):  # usually all sizes are equal
        freed = sizes[0] * count
        enough = max(enough, -(-size_bytes // sizes[0]) - 1 if sizes[0] else count)
    elif size_bytes > 0:
        running = [*accumulate(sizes if alive is None else map(mul, sizes, alive))]
        freed = running[-1]
        enough = max(enough, bisect_left(running, size_bytes))
    if enough < count:
        return enough + 1, 0, 0
    return count, records - (count if alive is None else alive.count(1)), size_bytes - freed
