"""Finds records of a segment that are not as they were written, before a base stores them.

The owner of a cell does not sync its files, and deletes slots behind a base. What its disk gives back may be all that
is left of a record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

import kernel
from kernel import Kind
from storage.format import Entries
from storage.segments import SegmentId

#: So many frames are compared at a time: their columns take much less memory than they do.
_AT_ONCE: Final = 4096


class Damage(NamedTuple):
    """The records with these seqs are damaged. Without `seqs`, the file could not be read: `error`."""

    id: SegmentId
    seqs: list[int]
    error: str = ""

    def __str__(self) -> str:
        if not self.seqs:
            return self.error
        return f"{len(self.seqs)} records, the first with seq {self.seqs[0]}, are not as written"


def damaged_seqs(id: SegmentId, entries: Entries, data: bytes, begin: int, end: int) -> list[int]:
    """The records that are damaged, of those with a byte in [begin, end) of .data.

    `entries`: all of .idx. `data`: the whole .data. A record is sound, deleted or not, if its frame is, and is the one
    that belongs there.
    """
    first = max(0, bisect_right(entries.offsets, begin) - 1)
    stop = bisect_left(entries.offsets, end)
    found: list[int] = []
    for at in range(first, stop, _AT_ONCE):
        upto = min(stop, at + _AT_ONCE)
        if not _are_sound(id, entries, data, at, upto):
            found += [
                id.first_seq + number
                for number in range(at, upto)
                if entries.lens[number] and not _are_sound(id, entries, data, number, number + 1)
            ]
    return found


def _are_sound(id: SegmentId, entries: Entries, data: bytes, first: int, stop: int) -> bool:
    """Whether the frames of entries [first, stop) are there, and nothing else."""
    begin, end = entries.offsets[first], entries[stop - 1].end
    if not begin <= end <= len(data):
        return False
    lens = entries.lens[first:stop]
    if all(lens):
        seq = id.first_seq + first
        columns, _, reason = kernel.scan(data, Kind.SEGMENT, begin, end, topic_id=id.topic_id, first_seq=seq)
        return not reason and columns.sizes == lens
    columns, _, reason = kernel.scan(data, Kind.SEGMENT, begin, end, topic_id=id.topic_id)
    seqs = array("Q", [seq for seq, size in enumerate(lens, id.first_seq + first) if size])
    return not reason and columns.sizes == array("I", filter(None, lens)) and columns.seqs == seqs
