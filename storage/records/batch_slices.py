"""The records that a read wants, and where their frames are in the log: by batch, or as columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple


class BatchSlice(NamedTuple):
    """Records of one batch that a read wants. Their frames are adjacent. The first one is `offset` bytes after the
    batch's first frame."""

    batch_seq: int
    lsn: int
    offset: int
    first_seq: int
    ts: int
    sizes: array[int]


class SliceColumns(NamedTuple):
    """Many slices as columns of numbers, for code that does not look at each slice.

    Entry i stands for `counts[i]` records from seq `seqs[i]` on, with the time `stamps[i]`. Their frames are adjacent,
    from `places[i]` on (0: in memory only). `sizes`: bytes of each record's frame, for all entries in order.
    """

    seqs: array[int]
    stamps: array[int]
    lsns: array[int]
    counts: array[int]
    sizes: array[int]

    @classmethod
    def none(cls) -> SliceColumns:
        return cls(array("Q"), array("Q"), array("Q"), array("I"), array("I"))

    @property
    def end_seq(self) -> int:
        """The seq after the last record."""
        return self.seqs[-1] + self.counts[-1]

    def first(self, count: int) -> SliceColumns:
        """The first `count` entries."""
        if count == len(self.seqs):
            return self
        columns = (self.seqs[:count], self.stamps[:count], self.lsns[:count], self.counts[:count])
        return SliceColumns(*columns, self.sizes[: sum(columns[-1])])

    def slices(self) -> list[BatchSlice]:
        """The slices as a list."""
        ends = accumulate(self.counts)
        return [
            BatchSlice(seq, lsn, 0, seq, ts, self.sizes[end - count : end])
            for seq, ts, lsn, count, end in zip(*self[:4], ends, strict=True)
        ]


def consecutive_ranges(seqs: Sequence[int]) -> Sequence[tuple[int, int]]:
    """(first, last) of each range of consecutive seqs in an ascending sequence."""
    if not seqs:
        return ()
    if seqs[-1] - seqs[0] + 1 == len(seqs):
        return ((seqs[0], seqs[-1]),)
    found: list[tuple[int, int]] = []
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            found.append((first, last))
            first = seq
        last = seq
    found.append((first, last))
    return found
