"""Records of a batch as columns that a log's index needs."""

from __future__ import annotations

from array import array

import msgspec


class AppendedRecords(msgspec.Struct):
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
