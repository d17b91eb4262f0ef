"""Consecutive records on top of the bytes of their frames. A record is created when it is accessed, and not kept.

A read of thousands of records creates no object for a record until somebody accesses it, and no garbage for the
collector to scan. The creator of a `ContiguousRecords` has checked every frame in it.

Source: docs/performance.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, chain, repeat
from operator import add
from struct import Struct
from typing import Any, overload

from storage.format.binary import OPENING, opening_of
from storage.format.binary import OVERHEAD as AROUND_BYTES
from storage.format.blocks import constant, field, split_block, u64s
from storage.format.wal_frame import OVERHEAD
from storage.records.values import StoredRecord

_U64 = Struct("<Q")
#: How far before a body its record's time is, in a frame with neither node nor tag; log and segment are alike.
_TS_BACK = 16
#: Creates the tuple without a Python call.
make_record: Callable[[Iterable[Any]], StoredRecord] = partial(tuple.__new__, StoredRecord)  # pyright: ignore


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


class ContiguousRecords(Records):
    """Records from seq `first_seq` on, with neither node nor tag, whose frames are adjacent.

    `bodies`: where in `data` each body begins; `sizes`: bytes of each frame. `stamps`: the times, when they are
    known from another source than the frames.
    """

    __slots__ = ("_bodies", "_count", "_data", "_sizes", "_stamps", "first_seq")

    def __init__(
        self, first_seq: int, data: bytes, bodies: Sequence[int], sizes: Sequence[int], stamps: Sequence[int] = ()
    ) -> None:
        """`bodies` is a range when all frames have one size."""
        self.first_seq = first_seq
        self._data = data
        self._bodies = bodies
        self._count = len(bodies)
        self._sizes = sizes
        self._stamps = stamps

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[StoredRecord]:
        columns = zip(self.seqs, self.stamps(), repeat(b""), repeat(b""), self.bodies(), strict=False)
        return map(make_record, columns)

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...

    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = self._bodies[index]
        stamp = self._stamps[index] if self._stamps else _U64.unpack_from(self._data, at - _TS_BACK)[0]
        return StoredRecord(self.seqs[index], stamp, b"", b"", self._data[at : at + self._sizes[index] - OVERHEAD])

    @property
    def seqs(self) -> range:
        """The seq of each record."""
        return range(self.first_seq, self.first_seq + self._count)

    def stamps(self) -> Sequence[int]:
        """The time of each record, ms since the epoch."""
        if self._stamps:
            return self._stamps
        bodies = self._bodies
        if isinstance(bodies, range):
            return u64s(self._count).unpack(field(self._data, bodies[0] - _TS_BACK, bodies.step, self._count, 8))
        stamps = [at - _TS_BACK for at in bodies]
        return [*chain.from_iterable(map(_U64.unpack_from, repeat(self._data), stamps))]

    def column(self, at: int) -> frozenset[int]:
        """The byte at this index of every body, from the end if negative; -1 where a body is shorter."""
        data, bodies = self._data, self._bodies
        least = at + 1 if at >= 0 else -at
        if isinstance(bodies, range):
            size = bodies.step - OVERHEAD
            if size < least:
                return frozenset((-1,))
            first = bodies.start + (at if at >= 0 else size + at)
            return frozenset(data[first : first + (self._count - 1) * bodies.step + 1 : bodies.step])
        if min(self._sizes) - OVERHEAD < least:
            return frozenset((-1,))
        offsets = bodies if at >= 0 else map(add, bodies, [size - OVERHEAD for size in self._sizes])
        return frozenset([data[begin_at + at] for begin_at in offsets])

    def bodies(self, front: int = 0) -> Iterable[bytes]:
        """The stored body of each record, without its first `front` bytes."""
        data, bodies = self._data, self._bodies
        if not isinstance(bodies, range):
            begins = [at + front for at in bodies] if front else bodies
            ends = map(add, bodies, [size - OVERHEAD for size in self._sizes])
            return map(data.__getitem__, map(slice, begins, ends))
        width = bodies.step
        # The last piece ends after its body, where the data may end too.
        size, last = width - OVERHEAD - front, bodies[-1]
        pieces = memoryview(data)[bodies[0] + front : last + front]
        return chain(split_block(pieces, width, f"{size}s{width - size}x"), (data[last + front : last + front + size],))

    def data(self) -> list[bytes]:
        """`data` of each record; for raw bytes, with no Python for each record."""
        data, bodies = self._data, self._bodies
        if isinstance(bodies, range):
            size = bodies.step - OVERHEAD - AROUND_BYTES
            if size >= 0 and constant(data, bodies[0], bodies.step, self._count, opening_of(size)):
                return [*self.bodies(AROUND_BYTES)]
            return super().data()
        found = [*self.bodies()]
        if all(map(bytes.startswith, found, repeat(OPENING))):
            return [body[AROUND_BYTES:] for body in found]
        return super().data()

    def first(self, count: int) -> ContiguousRecords:
        """The first `count` of them."""
        return self.between(0, count)

    def between(self, begin: int, end: int) -> ContiguousRecords:
        """Those from `begin` to `end`, counted from 0; at least one."""
        if begin == 0 and end >= self._count:
            return self
        here = slice(begin, end)
        return ContiguousRecords(
            self.first_seq + begin, self._data, self._bodies[here], self._sizes[here], self._stamps[here]
        )

    def may_have(self, text: bytes) -> bool:
        """Whether a body may contain this text. False is certain."""
        return self._data.find(text, self._bodies[0], self._bodies[-1] + self._sizes[-1] - OVERHEAD) >= 0

    def lengths(self) -> list[int]:
        """Bytes of each body."""
        if isinstance(self._bodies, range):
            return [self._bodies.step - OVERHEAD] * self._count
        return [size - OVERHEAD for size in self._sizes]

    def bytes_of(self) -> int:
        """Bytes of all bodies."""
        if isinstance(self._bodies, range):
            return self._count * (self._bodies.step - OVERHEAD)
        return sum(self._sizes) - self._count * OVERHEAD

    def fitting(self, max_bytes: int) -> int:
        """How many records, from the first on, have bodies of at most this many bytes in total."""
        return bisect_right([*accumulate([size - OVERHEAD for size in self._sizes])], max_bytes)

    def own(self) -> ContiguousRecords:
        """The same records, holding little more memory than the bytes of their frames."""
        begin = self._bodies[0] - _TS_BACK
        end = self._bodies[-1] + self._sizes[-1] - OVERHEAD
        if 2 * (end - begin) >= len(self._data):
            return self
        bodies = self._bodies
        if isinstance(bodies, range):
            moved: Sequence[int] = range(bodies.start - begin, bodies.stop - begin, bodies.step)
        else:
            moved = [at - begin for at in bodies]
        return ContiguousRecords(self.first_seq, self._data[begin:end], moved, self._sizes, self._stamps)


class ChainedRecords(Records):
    """Several sequences of records as one."""

    __slots__ = ("_ends", "_parts")

    def __init__(self, parts: Sequence[Sequence[StoredRecord]]) -> None:
        """None of them is empty."""
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
        """The sequences it consists of."""
        return self._parts

    def data(self) -> list[bytes]:
        return [*chain.from_iterable(map(data_of, self._parts))]


def parts_of(records: Sequence[StoredRecord]) -> Sequence[Sequence[StoredRecord]]:
    """The consecutive sequences of these records, each a `ContiguousRecords` or of another kind; none is empty."""
    if isinstance(records, ChainedRecords):
        return records.parts
    return (records,) if records else ()


def data_of(records: Sequence[StoredRecord]) -> list[bytes]:
    """`data` of each record, byte for byte as appended."""
    return records.data() if isinstance(records, Records) else [record.data for record in records]


def chain_records(parts: list[Sequence[StoredRecord]]) -> Sequence[StoredRecord]:
    """One sequence of several, none of which is empty."""
    if len(parts) == 1:
        return parts[0]
    return ChainedRecords(parts) if parts else []
