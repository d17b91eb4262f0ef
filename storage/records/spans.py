"""Which records are meant, and where in the log their frames are: batch by batch, or column by column."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple


class Span(NamedTuple):
    """Records of one batch that a read wants: frames lie back to back from `offset` behind the batch's place."""

    batch_seq: int
    place: int
    offset: int
    first_seq: int
    ts: int
    sizes: array[int]


class Rows(NamedTuple):
    """Many spans, as columns of numbers: for whoever hands them on, and does not look at each.

    Row i is `counts[i]` records from seq `seqs[i]` on, of time `stamps[i]`, whose frames lie back to back from
    `places[i]` on (0: they are in memory only). `sizes`: bytes of the frame of each record, those of all rows in order.
    """

    seqs: array[int]
    stamps: array[int]
    places: array[int]
    counts: array[int]
    sizes: array[int]

    @classmethod
    def none(cls) -> Rows:
        return cls(array("Q"), array("Q"), array("Q"), array("I"), array("I"))

    @property
    def end_seq(self) -> int:
        """The seq behind the last record."""
        return self.seqs[-1] + self.counts[-1]

    def first(self, count: int) -> Rows:
        """So many rows from the front."""
        if count == len(self.seqs):
            return self
        columns = (self.seqs[:count], self.stamps[:count], self.places[:count], self.counts[:count])
        return Rows(*columns, self.sizes[: sum(columns[-1])])

    def spans(self) -> list[Span]:
        """The same row by row."""
        ends = accumulate(self.counts)
        return [
            Span(seq, place, 0, seq, ts, self.sizes[end - count : end])
            for seq, ts, place, count, end in zip(*self[:4], ends, strict=True)
        ]


def stretches(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each stretch of consecutive seqs in an ascending sequence."""
    if not seqs:
        return
    if seqs[-1] - seqs[0] + 1 == len(seqs):
        yield seqs[0], seqs[-1]
        return
    first = last = seqs[0]
    for seq in seqs[1:]:
        if seq != last + 1:
            yield first, last
            first = seq
        last = seq
    yield first, last
