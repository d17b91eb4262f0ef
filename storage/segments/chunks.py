"""All records of a segment in few large reads of .data, for code that goes through it.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from storage.segments.errors import SegmentCorrupt
from storage.segments.handles import SegmentFiles

CHUNK_BYTES = 4 << 20
#: A gap of at most this many bytes between two wanted frames is read too: that is cheaper than a second read.
GAP_BYTES = 64 << 10


class Columns(NamedTuple):
    """The verified entries of a segment, by field. Frames are adjacent, in order."""

    offsets: Sequence[int]
    lens: Sequence[int]
    stamps: Sequence[int]
    flags: Sequence[int]


class Chunk(NamedTuple):
    """Bytes of .data from `base` on, which hold the frames of the entries `numbers`."""

    numbers: Sequence[int]
    data: bytes
    base: int


def columns(files: SegmentFiles, count: int) -> Columns:
    """The first `count` entries. Raises SegmentCorrupt, also if they are valid but not adjacent."""
    if not count:
        return Columns((), (), (), ())
    entries = files.entries(0, count)
    found = Columns(entries.offsets, entries.lens, entries.stamps, entries.flags)
    positions = list(accumulate(found.lens, initial=0))
    positions.pop()
    if positions != [*found.offsets]:
        number = next(number for number, position in enumerate(positions) if position != found.offsets[number])
        raise SegmentCorrupt(
            files.idx_path,
            files.entry_offset(number),
            f"the entry says offset {found.offsets[number]} of .data, those before it come to {positions[number]}",
        )
    return found


def chunks(files: SegmentFiles, entries: Columns, wanted: Sequence[int]) -> Iterator[Chunk]:
    """The frames of the `wanted` entries: numbers of entries that have one, ascending.

    A chunk has at most CHUNK_BYTES, or one frame.
    """
    offsets, lens = entries.offsets, entries.lens
    begins = [offsets[number] for number in wanted]
    ends = [offsets[number] + lens[number] for number in wanted]
    # The positions before gaps that are too long to be read.
    stops = [at for at in range(1, len(wanted)) if begins[at] - ends[at - 1] > GAP_BYTES]
    start = 0
    for stop in (*stops, len(wanted)):
        while start < stop:
            base = begins[start]
            end = max(start + 1, bisect_right(ends, base + CHUNK_BYTES, lo=start, hi=stop))
            yield Chunk(wanted[start:end], files.read_data(base, ends[end - 1]), base)
            start = end
