"""Records of a batch as columns that a log's index needs."""

from __future__ import annotations

from array import array
from typing import NamedTuple


class AppendedRecords(NamedTuple):
    """Consecutive Append frames of one batch, as the index needs them."""

    first_seq: int
    ts: int
    sizes: array[int]
    payloads: array[int]
    tagged: list[tuple[bytes, int]]
    """(tag, seq) of the records that have a tag."""
    delayed: list[tuple[int, int]] | tuple[()] = ()
    """(seq, ms since the epoch) of the records that are not to be handed out as jobs before a time."""

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.sizes) - 1


class LoneAppends(NamedTuple):
    """Append frames with consecutive seqs, each a batch of its own. `offsets` count from the start of their unit."""

    first_seq: int
    stamps: array[int]
    offsets: array[int]
    sizes: array[int]
    payloads: array[int]

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.sizes) - 1

    def without(self, count: int) -> LoneAppends:
        """All but the first `count`."""
        columns = (self.stamps[count:], self.offsets[count:], self.sizes[count:], self.payloads[count:])
        return LoneAppends(self.first_seq + count, *columns)
