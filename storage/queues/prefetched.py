"""Records read ahead for later claims: ranges of consecutive seqs, taken out piece by piece. Pure.

A range stays as it was read, mostly a `FrameRecords`, so that taking a hundred records out of it costs as much as
taking one.

Source: docs/reference/api.md#queues.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage.records import FrameRecords, StoredRecord, chain_records, parts_of
from storage.state import consecutive_ranges


class _Block(NamedTuple):
    """Consecutive records from `first_seq` on. `age` grows with each range added."""

    first_seq: int
    age: int
    records: Sequence[StoredRecord]

    @property
    def end_seq(self) -> int:
        return self.first_seq + len(self.records)

    def between(self, first_seq: int, end_seq: int) -> Sequence[StoredRecord]:
        begin, end = max(0, first_seq - self.first_seq), min(len(self.records), end_seq - self.first_seq)
        return self.records[begin:end]

    def size(self) -> int:
        records = self.records
        return records.bytes_of() if isinstance(records, FrameRecords) else sum([len(each.body) for each in records])


class PrefetchedRecords:
    """At most this many records and bytes of bodies; beyond that, the ranges added first are dropped."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        #: Ascending, without overlaps.
        self._stored: list[_Block] = []
        self._age = 0

    def __len__(self) -> int:
        return sum([len(block.records) for block in self._stored])

    @property
    def bytes(self) -> int:
        """Bytes of all bodies."""
        return sum([block.size() for block in self._stored])

    def add(self, records: Sequence[StoredRecord]) -> None:
        """Add these records, ascending; they replace those with the same seqs."""
        self._age += 1
        for part in parts_of(records):
            for block in self._blocks_of(part):
                self.drop(block.first_seq, block.end_seq)
                self._stored.insert(self._behind(block.first_seq), block)
        sized = sorted([(block.age, block.first_seq, len(block.records), block.size()) for block in self._stored])
        count, size = len(self), sum([each[-1] for each in sized])
        for _, first_seq, records_of_it, size_of_it in sized:
            if count <= self._max_records and size <= self._max_bytes:
                break
            self.drop(first_seq, first_seq + records_of_it)
            count -= records_of_it
            size -= size_of_it

    def take(self, seqs: Sequence[int]) -> Sequence[StoredRecord] | None:
        """Remove and return the records of these ascending seqs. If one is missing, return None and remove nothing."""
        begin, end = seqs[0], seqs[-1] + 1
        at = self._behind(begin) - 1
        if at < 0:
            return None
        block = self._stored[at]
        if end - begin == len(seqs) and end <= block.end_seq:  # the common case
            self._stored[at : at + 1] = [
                *self._rest(block, block.first_seq, begin),
                *self._rest(block, end, block.end_seq),
            ]
            return block.between(begin, end)
        return self._take_pieces(consecutive_ranges(seqs))

    def _take_pieces(self, wanted: Sequence[tuple[int, int]]) -> Sequence[StoredRecord] | None:
        found: list[Sequence[StoredRecord]] = []
        for first, last in wanted:
            while first <= last:
                at = self._behind(first) - 1
                if at < 0 or first >= self._stored[at].end_seq:
                    return None
                piece = self._stored[at].between(first, last + 1)
                found.append(piece)
                first += len(piece)
        for first, last in wanted:
            self.drop(first, last + 1)
        return chain_records(found)

    def drop(self, first_seq: int, end_seq: int) -> None:
        """Drop all records in [first_seq, end_seq)."""
        at = max(0, self._behind(first_seq) - 1)
        while at < len(self._stored) and self._stored[at].first_seq < end_seq:
            block = self._stored[at]
            if block.end_seq <= first_seq:
                at += 1
                continue
            rest = [*self._rest(block, block.first_seq, first_seq), *self._rest(block, end_seq, block.end_seq)]
            self._stored[at : at + 1] = rest
            at += len(rest)

    def _behind(self, seq: int) -> int:
        """The number of the first range that begins after this seq."""
        return bisect_right(self._stored, seq, key=lambda block: block.first_seq)

    def _rest(self, block: _Block, first_seq: int, end_seq: int) -> Iterator[_Block]:
        if first_seq < end_seq:
            records = block.between(first_seq, end_seq)
            yield _Block(first_seq, block.age, records.own() if isinstance(records, FrameRecords) else records)

    def _blocks_of(self, part: Sequence[StoredRecord]) -> Iterator[_Block]:
        at, seqs = 0, part.seqs if isinstance(part, FrameRecords) else [record.seq for record in part]
        for first, last in consecutive_ranges(seqs):
            count = last - first + 1
            yield _Block(first, self._age, part[at : at + count])
            at += count
