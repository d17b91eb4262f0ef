"""Records backed by the bytes of their frames. A record is created when it is accessed, and not kept.

A read of thousands of records creates no object for a record until somebody accesses it, and no garbage for the
collector to scan. The creator of a `FrameRecords` has verified every frame in it.

Source: docs/performance.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any, overload

import kernel
from kernel import Columns, Kind, Part
from storage.format import FrameFlag, wal_frame
from storage.records.values import StoredRecord

#: Creates the tuple without a Python call.
make_record: Callable[[Iterable[Any]], StoredRecord] = partial(tuple.__new__, StoredRecord)  # pyright: ignore


#: A buffer of at most this many bytes is kept whole, however little of it is used.
SMALL_BUFFER = 2048


class Records(Sequence[StoredRecord]):
    """Records in seq order, some of which may not have been created yet. Equal to any sequence of the same records."""

    __slots__ = ()

    def data(self) -> list[bytes]:
        """`data` of each record, byte for byte as appended."""
        return [record.data for record in self]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]  # pyright: ignore[reportUnknownArgumentType]

    def __repr__(self) -> str:
        return f"<{len(self)} records>"


class FrameRecords(Records):
    """The records of these Append frames of one topic, in seq order; there may be gaps between their seqs."""

    __slots__ = ("buffer", "columns")

    def __init__(self, buffer: bytes, columns: Columns) -> None:
        """`columns`: where the frames lie in `buffer`, of the log or of a segment."""
        self.buffer = buffer
        self.columns = columns

    def __len__(self) -> int:
        return self.columns.count

    def __iter__(self) -> Iterator[StoredRecord]:
        return map(make_record, zip(*self.fields(), strict=True))

    def fields(self) -> tuple[array[int], array[int], list[bytes], list[bytes], list[bytes]]:
        """Seqs, times, nodes, tags and bodies of the records."""
        columns = self.columns
        return columns.seqs, columns.stamps, *kernel.parts(self.buffer, columns)

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...

    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            return self.between(begin, max(begin, end)) if step == 1 else [*self][index]
        offset, _, seq, ts, size, _, node_len, tag_len, _, _, _, header = self.columns.row(index)
        node_at = offset + header
        tag_at = node_at + node_len
        body_at = tag_at + tag_len
        # Eight bytes follow the body in the log. In a segment, the bytes that its header is shorter follow as well.
        end, buffer = offset + size - (wal_frame.HEADER_SIZE + 8 - header), self.buffer
        return StoredRecord(seq, ts, buffer[node_at:tag_at], buffer[tag_at:body_at], buffer[body_at:end])

    @property
    def seqs(self) -> array[int]:
        """The seq of each record."""
        return self.columns.seqs

    def bodies(self) -> list[bytes]:
        """The stored body of each record."""
        return kernel.cut(self.buffer, self.columns, Part.BODY)

    def data(self) -> list[bytes]:
        """`data` of each, byte for byte as appended."""
        return kernel.cut(self.buffer, self.columns, Part.DATA)

    def tags(self) -> list[bytes]:
        """The tag of each record; b"" = none."""
        return kernel.cut(self.buffer, self.columns, Part.TAG)

    def payloads(self) -> array[int]:
        """The payload bytes of each record, as `storage.format.record.payload_size` counts them."""
        return kernel.measure(self.buffer, self.columns).payloads

    def is_bare(self) -> bool:
        """Whether no record has a node or a tag."""
        flags = self.columns.flags
        return len(flags.translate(None, _LABELS)) == len(flags)

    def bytes_of(self) -> int:
        """Bytes of all bodies."""
        return self.columns.body_bytes

    def fitting(self, max_bytes: int) -> int:
        """How many records from the front have bodies of at most this many bytes in total."""
        return bisect_right([*accumulate(self.columns.data_lens)], max_bytes)

    def between(self, begin: int, end: int) -> FrameRecords:
        """The records with these numbers, counted from 0."""
        return (
            self
            if begin == 0 and end >= self.columns.count
            else FrameRecords(self.buffer, self.columns.between(begin, end))
        )

    def own(self) -> FrameRecords:
        """The same records, which keep only the bytes of their frames in memory, or little more."""
        columns = self.columns
        if len(self.buffer) <= SMALL_BUFFER:
            return self
        begin, _, _, _, _, _, _, _, _, _, _, header = columns.row(0)
        end = columns.end
        if 2 * (end - begin) >= len(self.buffer):
            return self
        kind = Kind.LOG if header == wal_frame.HEADER_SIZE else Kind.SEGMENT
        buffer = self.buffer[begin:end]
        moved = kernel.scan(buffer, kind, verify=False).columns
        if moved.count > columns.count:  # the buffer has other bytes between them
            numbers = {offset: number for number, offset in enumerate(moved.offsets)}
            moved = moved.take([numbers[offset - begin] for offset in columns.offsets])
        return FrameRecords(buffer, moved)


_LABELS = bytes(flags for flags in range(256) if flags & (FrameFlag.HAS_TAG | FrameFlag.HAS_NODE))


class ChainedRecords(Records):
    """Several sequences of records as one."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: Sequence[Sequence[StoredRecord]]) -> None:
        """No part may be empty."""
        self._parts = parts
        self._ends = [*accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[StoredRecord]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...

    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        if isinstance(index, slice):
            return [*self][index]
        number = range(len(self))[index]
        part = bisect_right(self._ends, number)
        return self._parts[part][number - (self._ends[part - 1] if part else 0)]

    @property
    def parts(self) -> Sequence[Sequence[StoredRecord]]:
        """The sequences that it consists of."""
        return self._parts

    def data(self) -> list[bytes]:
        return [*chain.from_iterable(map(data_of, self._parts))]


def parts_of(records: Sequence[StoredRecord]) -> Sequence[Sequence[StoredRecord]]:
    """The sequences that these records consist of, in order, each a `FrameRecords` or another kind; none is empty."""
    if isinstance(records, ChainedRecords):
        return records.parts
    return (records,) if records else ()


def data_of(records: Sequence[StoredRecord]) -> list[bytes]:
    """`data` of each record, byte for byte as appended."""
    return records.data() if isinstance(records, Records) else [record.data for record in records]


def chain_records(parts: list[Sequence[StoredRecord]]) -> Sequence[StoredRecord]:
    """Several sequences as one; none of them may be empty."""
    if len(parts) == 1:
        return parts[0]
    return ChainedRecords(parts) if parts else []
