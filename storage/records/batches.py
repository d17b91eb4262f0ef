"""Records of a batch as columns that a log's index needs."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from storage.format import Batch


class AppendedRecords(NamedTuple):
    """Consecutive Append frames of one batch, as the index needs them."""

    first_seq: int
    ts: int
    sizes: array[int]
    payloads: array[int]
    tagged: list[tuple[bytes, int]]
    """(tag, seq) of the records that have a tag."""
    delayed: list[tuple[int, int]] | tuple[()] = ()
    """(seq, ms since the epoch) of the records that must not be delivered as jobs before that time."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.sizes) - 1


class AppendedBatches(NamedTuple):
    """Whole batches of a log that hold only data, with consecutive seqs, as `kernel.Batches` has them."""

    seqs: array[int]
    stamps: array[int]
    lsns: array[int]
    leads: array[int]
    sizes: array[int]
    payloads: array[int]
    #: (number of a batch, its Batch frame) of those with an idempotency key or a producer, ascending.
    noted: list[tuple[int, Batch]]

    @property
    def first_seq(self) -> int:
        return self.seqs[0]

    @property
    def last_seq(self) -> int:
        return self.seqs[0] + len(self.sizes) - 1

    def behind(self, seq: int) -> AppendedBatches:
        """From the batch with the record `seq` + 1 on, which must be here."""
        entry = bisect_right(self.seqs, seq + 1) - 1
        record = self.seqs[entry] - self.seqs[0]
        entries = self.seqs[entry:], self.stamps[entry:], self.lsns[entry:], self.leads[entry:]
        noted = [(number - entry, batch) for number, batch in self.noted if number >= entry]
        return AppendedBatches(*entries, self.sizes[record:], self.payloads[record:], noted)
