"""The positions of a log's records that are not in segments yet, as arrays, and slices of them for a read or a copy.

There is one entry for each batch (first seq, commit time, LSN) and two numbers for each record (frame and payload
size), so a write creates no object per record. A record's frame is at its batch's LSN plus the sizes before it. Gaps
in the seqs take no room: entries are found by seq, records by index.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, compress, repeat
from operator import sub
from typing import NamedTuple

from kernel import Batches, total
from storage.records import AppendedRecords
from storage.state.segment_sums import STRIDE, next_that_free, that_free

_TRIM_ENTRIES = 4096
#: Records whose entries are looked up at a time, if the caller does not say how many are wanted.
_STRIDE = 1024


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


class TailIndex:
    """Entries in seq order. Reserved entries (written but not yet committed) are at the end, without an LSN."""

    __slots__ = (
        "_leads",
        "_lsns",
        "_payloads",
        "_seqs",
        "_sizes",
        "_stamps",
        "_starts",
        "_trimmed_entries",
        "_trimmed_records",
        "dead",
    )

    def __init__(self) -> None:
        self._seqs: array[int] = array("Q")
        self._stamps: array[int] = array("Q")
        self._lsns: array[int] = array("Q")
        self._leads: array[int] = array("I")  # bytes of the batch before its first Append frame
        self._starts: array[int] = array("Q")
        self._sizes: array[int] = array("I")
        self._payloads: array[int] = array("I")
        self._trimmed_entries = 0
        self._trimmed_records = 0
        self.dead: bytearray | None = None  # one byte a record, 1 = deleted; None while nothing is

    def __len__(self) -> int:
        return len(self._sizes)

    def append(self, appended: AppendedRecords) -> int:
        """Add an entry; returns its number for `set_lsn`."""
        self._seqs.append(appended.first_seq)
        self._stamps.append(appended.ts)
        self._lsns.append(0)
        self._leads.append(0)
        self._starts.append(self._trimmed_records + len(self._sizes))
        self._sizes.extend(appended.sizes)
        self._payloads.extend(appended.payloads)
        if self.dead is not None:
            self.dead.extend(bytes(len(appended.sizes)))
        return self._trimmed_entries + len(self._seqs) - 1

    def extend(self, batches: Batches) -> None:
        """Add an entry for each batch, like `append` and `set_lsn` one by one."""
        count, start = len(batches.sizes), self._trimmed_records + len(self._sizes)
        self._seqs.extend(batches.seqs)
        self._stamps.extend(batches.stamps)
        self._lsns.extend(batches.lsns)
        self._leads.extend(batches.leads)
        shift = start - batches.first_seq
        of_one_record = len(batches.seqs) == count
        self._starts.extend(range(start, start + count) if of_one_record else [seq + shift for seq in batches.seqs])
        self._sizes.extend(batches.sizes)
        self._payloads.extend(batches.payloads)
        if self.dead is not None:
            self.dead.extend(bytes(count))

    def set_lsn(self, entry: int, unit_lsn: int, lead: int) -> None:
        """Set the LSN of an entry's batch (0: in memory only); its first Append frame comes `lead` bytes later."""
        self._lsns[entry - self._trimmed_entries] = unit_lsn + lead if unit_lsn else 0
        self._leads[entry - self._trimmed_entries] = lead

    def set_batch_lsn(self, first_seq: int, unit_lsn: int, lead: int) -> int:
        """`set_lsn` for the batch that begins with `first_seq`; returns its last seq, or 0 when the batch is no
        longer here."""
        entry = bisect_left(self._seqs, first_seq)
        if entry == len(self._seqs) or self._seqs[entry] != first_seq:
            return 0
        self.set_lsn(entry + self._trimmed_entries, unit_lsn, lead)
        return self.seq_at(self._entry_end(entry) - 1)

    def dead_seqs(self) -> list[int]:
        """Seqs of the deleted records."""
        return [self.seq_at(index) for index, gone in enumerate(self.dead or b"") if gone]

    def index(self, seq: int) -> int:
        """Index of the first record with this seq or a later one."""
        entry = bisect_right(self._seqs, seq) - 1
        if entry < 0:
            return 0
        starts, trimmed = self._starts, self._trimmed_records
        end = starts[entry + 1] - trimmed if entry + 1 < len(starts) else len(self._sizes)
        return min(starts[entry] - trimmed + seq - self._seqs[entry], end)

    def seq_at(self, index: int) -> int:
        """Seq of the record at an index."""
        entry = bisect_right(self._starts, index + self._trimmed_records) - 1
        return self._seqs[entry] + index + self._trimmed_records - self._starts[entry]

    def _entry_end(self, entry: int) -> int:
        if entry + 1 < len(self._starts):
            return self._starts[entry + 1] - self._trimmed_records
        return len(self._sizes)

    def holds(self, seq: int) -> bool:
        """Whether a record with exactly this seq exists and is not deleted."""
        index = self.index(seq)
        return index < len(self._sizes) and self.seq_at(index) == seq and not (self.dead and self.dead[index])

    def totals(self, first_seq: int, end_seq: int) -> tuple[int, int]:
        """(records, payload bytes) not deleted with first_seq <= seq < end_seq."""
        a, b = self.index(first_seq), self.index(end_seq)
        return self._totals(a, b) if a < b else (0, 0)

    def _totals(self, a: int, b: int) -> tuple[int, int]:
        if self.dead is None:
            return b - a, total(self._payloads[a:b])
        gone = self.dead[a:b]
        alive = gone.translate(_FLIP)
        return b - a - gone.count(1), sum(compress(self._payloads[a:b], alive))

    def count(self, first_seq: int, end_seq: int) -> int:
        """Records not deleted with first_seq <= seq < end_seq."""
        a, b = self.index(first_seq), self.index(end_seq)
        return max(0, b - a - (self.dead.count(1, a, b) if self.dead is not None and b > a else 0))

    def first_live(self, seq: int, end_seq: int) -> int | None:
        """The first seq >= `seq` and < `end_seq` with a record that is not deleted."""
        if self.dead is None:
            pieces = self._pieces(seq, end_seq, 1)
            return pieces[0][1] if pieces else None
        index = self.dead.find(0, self.index(seq))
        if index < 0 or index >= len(self._sizes):
            return None
        found = self.seq_at(index)
        return found if found < end_seq else None

    def live_seqs(self, seq: int, end_seq: int, count: int) -> list[int]:
        """The first `count` seqs >= `seq` and < `end_seq` with a record that is not deleted."""
        found: list[int] = []
        dead = self.dead
        most = count  # where records are deleted, that may be too few
        while len(found) < count and (pieces := self._pieces(seq, end_seq, most)):
            most = max(count, _STRIDE)
            for _, first, index, size in pieces:
                seq = first + size
                if dead is None:
                    found += range(first, min(seq, first + count - len(found)))
                    continue
                end = index + size
                at = dead.find(0, index, end)
                while at >= 0 and len(found) < count:  # a range of live records at a time
                    stop = dead.find(1, at, min(end, at + count - len(found)))
                    stop = stop if stop >= 0 else min(end, at + count - len(found))
                    found += range(first + at - index, first + stop - index)
                    at = dead.find(0, stop, end)
        return found

    def time_of(self, seq: int) -> int | None:
        """The time of the record `seq`, which must be here."""
        entry = bisect_right(self._seqs, seq) - 1
        return self._stamps[entry] if entry >= 0 else None

    def gaps(self, seq: int, end_seq: int) -> Iterator[tuple[int, int]]:
        """(first, last) of each range of seqs with seq <= s < end_seq that is in no entry."""
        for entry in range(self._entry_from(seq), len(self._seqs)):
            first = self._seqs[entry]
            if first >= end_seq:
                break
            if first > seq:
                yield seq, first - 1
            seq = first + self._entry_end(entry) - (self._starts[entry] - self._trimmed_records)
        if seq < end_seq:
            yield seq, end_seq - 1

    def _pieces(self, first_seq: int, end_seq: int, most: int) -> list[tuple[int, int, int, int]]:
        """(entry, its first seq in the range, the index of that record, count) of each entry with seqs in the range, up
        to the entry with which they have `most` records."""
        seqs, starts, trimmed, entries = self._seqs, self._starts, self._trimmed_records, len(self._seqs)
        found: list[tuple[int, int, int, int]] = []
        entry = max(0, bisect_right(seqs, first_seq) - 1)  # possibly wholly below `first_seq`: then it has no count
        while entry < entries and most > 0 and (begin := seqs[entry]) < end_seq:
            start = starts[entry] - trimmed
            stop = starts[entry + 1] - trimmed if entry + 1 < entries else len(self._sizes)
            skip = max(0, first_seq - begin)
            count = min(stop - start, end_seq - begin) - skip
            if count > 0:
                found.append((entry, begin + skip, start + skip, count))
                most -= count
            entry += 1
        return found

    def _each_piece(self, seq: int, end_seq: int) -> Iterator[tuple[int, int, int, int]]:
        """`_pieces` of a range of any length, a few at a time."""
        while pieces := self._pieces(seq, end_seq, _STRIDE):
            yield from pieces
            _, first, _, count = pieces[-1]
            seq = first + count

    def deleted_bits(self, first_seq: int, end_seq: int) -> int:
        """A bitset: bit i is set when the record first_seq + i is here and deleted."""
        bits = 0
        dead = self.dead
        if dead is None:
            return bits
        for _, seq, index, count in self._each_piece(first_seq, end_seq):
            gone = dead[index : index + count]
            at = gone.find(1)
            while at >= 0:
                bits |= 1 << (seq - first_seq + at)
                at = gone.find(1, at + 1)
        return bits

    def dead_bits(self, first_seq: int, end_seq: int) -> int:
        """A bitset: bit i is set when the record first_seq + i does not exist or is deleted."""
        if self.dead is None and self.index(end_seq) - self.index(first_seq) == end_seq - first_seq:
            return 0
        bits = (1 << (end_seq - first_seq)) - 1
        for _, seq, _, count in self._each_piece(first_seq, end_seq):
            bits ^= ((1 << count) - 1) << (seq - first_seq)
        return bits | self.deleted_bits(first_seq, end_seq)

    def stamps(self, first_seq: int, end_seq: int, before: int) -> Iterator[tuple[int, int]]:
        """The times of the seqs, as (how many, time). A missing seq has the time of the seq in front of it (`before`
        for the first)."""
        at = first_seq
        for entry, seq, _, count in self._each_piece(first_seq, end_seq):
            if seq > at:
                yield seq - at, before
            before = self._stamps[entry]
            yield count, before
            at = seq + count
        if end_seq > at:
            yield end_seq - at, before

    def stamp(self, seq: int, first_seq: int, before: int) -> int:
        """The time that `stamps(first_seq, seq + 1, before)` ends with."""
        entry = bisect_right(self._seqs, seq) - 1
        return self._stamps[entry] if entry >= self._entry_from(first_seq) else before

    def payloads(self, first_seq: int, end_seq: int) -> array[int]:
        """Payload bytes of each seq, 0 for a missing one."""
        found: array[int] = array("I")
        for _, seq, index, count in self._each_piece(first_seq, end_seq):
            found.extend(repeat(0, seq - first_seq - len(found)))
            found.extend(self._payloads[index : index + count])
        found.extend(repeat(0, end_seq - first_seq - len(found)))
        return found

    def entries_from(self, seq: int) -> int:
        """How many entries have a record >= `seq`."""
        return len(self._seqs) - self._entry_from(seq)

    def oldest_ts(self, seq: int) -> int | None:
        """Time of the first entry with a record >= `seq`."""
        entry = self._entry_from(seq)
        return self._stamps[entry] if entry < len(self._stamps) else None

    def delete(self, seq: int) -> int | None:
        """Mark one record as deleted; returns its payload bytes, or None if it is not here or was deleted before."""
        index = self.index(seq)
        if index >= len(self._sizes) or self.seq_at(index) != seq:
            return None
        if self.dead is None:
            self.dead = bytearray(len(self._sizes))
        if self.dead[index]:
            return None
        self.dead[index] = 1
        return self._payloads[index]

    def delete_all(self, seqs: Sequence[int]) -> tuple[list[int], list[int]]:
        """`delete` for many, ascending: returns the seqs that were alive, and the payload bytes of each."""
        found: list[int] = []
        sizes: list[int] = []
        for begin, end in consecutive_ranges(seqs):
            for _, first, index, count in self._pieces(begin, end + 1, end + 1 - begin):
                if self.dead is None:
                    self.dead = bytearray(len(self._sizes))
                alive = self.dead[index : index + count].translate(_FLIP)
                if not all(alive):
                    found += compress(range(first, first + count), alive)
                    sizes += compress(self._payloads[index : index + count], alive)
                else:
                    found += range(first, first + count)
                    sizes += self._payloads[index : index + count]
                self.dead[index : index + count] = b"\1" * count
        return found, sizes

    def plan_eviction(self, seq: int, records: int, size_bytes: int) -> tuple[int, int, int]:
        """The lowest floor from `seq` on with at least this many live records and payload bytes in between (the end
        if fewer), and their number."""
        index, end = self.index(seq), len(self._sizes)
        if self.dead is None:
            found = next_that_free(self._payloads, index, end, records, size_bytes)
            if found is not None:
                return self.seq_at(index + found[0] - 1) + 1, *found
        begin = index
        while index < end and (records > 0 or size_bytes > 0):
            stop = min(end, index + STRIDE)
            alive = None if self.dead is None else self.dead[index:stop].translate(_FLIP)
            if size_bytes <= 0 and alive is None:
                stop = min(end, index + records)  # the next `records` suffice, whatever their sizes
            sizes = self._payloads[index:stop] if size_bytes > 0 else array("I")
            taken, records, size_bytes = that_free(stop - index, sizes, alive, records, size_bytes)
            index += taken
        return (self.seq_at(index - 1) + 1, *self._totals(begin, index)) if index > begin else (seq, 0, 0)

    def expired_floor(self, seq: int, oldest_ts: int, end_seq: int) -> int:
        """The lowest floor >= `seq` that leaves no record older than `oldest_ts` below `end_seq`."""
        entry = bisect_left(self._stamps, oldest_ts)
        if entry == 0:
            return seq
        last = self._seqs[entry - 1] + self._entry_end(entry - 1) - (self._starts[entry - 1] - self._trimmed_records)
        return max(seq, min(last, end_seq))

    def first_seq_since(self, ts: int) -> int | None:
        """The first seq whose batch was committed at `ts` or later."""
        entry = bisect_left(self._stamps, ts)
        return self._seqs[entry] if entry < len(self._seqs) else None

    def slices(self, seq: int, end_seq: int) -> Iterator[BatchSlice]:
        """Records with seq <= s < end_seq by batch, including deleted ones (see `dead_between`)."""
        entry = max(0, bisect_right(self._seqs, seq) - 1)
        while entry < len(self._seqs) and self._seqs[entry] < end_seq:
            start = self._starts[entry] - self._trimmed_records
            stop = (
                self._starts[entry + 1] - self._trimmed_records if entry + 1 < len(self._starts) else len(self._sizes)
            )
            first = self._seqs[entry]
            a = max(0, seq - first)
            b = min(stop - start, end_seq - first)
            if a < b:
                offset = total(self._sizes[start : start + a]) if a else 0
                yield BatchSlice(
                    first, self._lsns[entry], offset, first + a, self._stamps[entry], self._sizes[start + a : start + b]
                )
            entry += 1

    def whole(self, first_seq: int, end_seq: int) -> tuple[list[BatchSlice], array[int]] | None:
        """Records with first_seq <= s < end_seq by batch, and the payload bytes of each. None: one of them is not here,
        or deleted."""
        count = end_seq - first_seq
        pieces = self._pieces(first_seq, end_seq, count)
        if not pieces:
            return None
        begin, end = pieces[0][2], pieces[-1][2] + pieces[-1][3]
        if end - begin < count:
            return None
        if self.dead is not None and any(self.dead[begin:end]):
            return None
        slices: list[BatchSlice] = []
        for entry, seq, index, size in pieces:
            start = self._starts[entry] - self._trimmed_records
            offset = total(self._sizes[start:index]) if index > start else 0
            sizes = self._sizes[index : index + size]
            slices.append(BatchSlice(self._seqs[entry], self._lsns[entry], offset, seq, self._stamps[entry], sizes))
        return slices, self._payloads[begin:end]

    def slice_columns(self, seq: int, end_seq: int) -> SliceColumns:
        """The entries that begin below `end_seq`, as columns. The first one begins at `seq`, the others are whole."""
        a, b = self._entry_from(seq), bisect_left(self._seqs, end_seq)
        if b <= a:
            return SliceColumns.none()
        start, stop = self._starts[a] - self._trimmed_records, self._entry_end(b - 1)
        skip = max(0, seq - self._seqs[a])
        seqs, lsns, starts = self._seqs[a:b], self._lsns[a:b], self._starts[a:b]
        seqs[0] += skip
        starts[0] += skip
        if lsns[0]:
            lsns[0] += sum(self._sizes[start : start + skip])
        counts = array("I", map(sub, chain(starts[1:], (stop + self._trimmed_records,)), starts))
        return SliceColumns(seqs, self._stamps[a:b], lsns, counts, self._sizes[start + skip : stop])

    def dead_between(self, first_seq: int, count: int) -> bytes | None:
        """Deletion bytes of `count` records of one batch from `first_seq` on; None when none is deleted."""
        if self.dead is None:
            return None
        index = self.index(first_seq)
        gone = bytes(self.dead[index : index + count])
        return gone if any(gone) else None

    def oldest_lsn(self, seq: int) -> int | None:
        """Where the batch of the first entry with a record >= `seq` begins, which the WAL must keep. None: there is
        no such batch."""
        for entry in range(self._entry_from(seq), len(self._lsns)):
            if self._lsns[entry]:
                return self._lsns[entry] - self._leads[entry]
        return None

    def _entry_from(self, seq: int) -> int:
        """The first entry that is not wholly below `seq`."""
        entry = bisect_right(self._seqs, seq) - 1
        if entry < 0:
            return 0
        starts = self._starts
        end = starts[entry + 1] if entry + 1 < len(starts) else self._trimmed_records + len(self._sizes)
        return entry + 1 if seq - self._seqs[entry] >= end - starts[entry] else entry

    def truncate(self, seq: int) -> None:
        """Forget entries that begin at `seq` or later: reserved entries whose write failed."""
        entry = bisect_left(self._seqs, seq)
        if entry == len(self._seqs):
            return
        start = self._starts[entry] - self._trimmed_records
        for column in (self._seqs, self._stamps, self._lsns, self._leads, self._starts):
            del column[entry:]
        del self._sizes[start:]
        del self._payloads[start:]
        if self.dead is not None:
            del self.dead[start:]

    def drop_below(self, seq: int) -> None:
        """Forget entries wholly below `seq`. Not every call does, so that the cost per record is constant."""
        entry = bisect_right(self._seqs, seq)  # or the one before
        if entry < _TRIM_ENTRIES and entry * 2 < len(self._seqs):
            return
        entry = self._entry_from(seq)
        if entry == 0 or (entry < len(self._seqs) and entry < _TRIM_ENTRIES and entry * 2 < len(self._seqs)):
            return
        records = self._starts[entry] - self._trimmed_records if entry < len(self._starts) else len(self._sizes)
        for column in (self._seqs, self._stamps, self._lsns, self._leads, self._starts):
            del column[:entry]
        del self._sizes[:records]
        del self._payloads[:records]
        if self.dead is not None:
            del self.dead[:records]
            if not any(self.dead):
                self.dead = None
        self._trimmed_entries += entry
        self._trimmed_records += records


_FLIP = bytes([1, 0]) + bytes(254)
