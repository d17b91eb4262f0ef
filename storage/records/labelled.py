"""Consecutive records of which some have a node or a tag, as their frames lie in memory: columns, no object a record.

What `ContiguousRecords` is for records that have neither. Whoever makes one has checked every frame in it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, repeat
from operator import add
from struct import Struct
from typing import overload

from storage.format.record import FURTHER, PLAIN_OVERHEAD, payload_size
from storage.format.wal_frame import OVERHEAD
from storage.records.contiguous import Records, make_record
from storage.records.values import StoredRecord

#: The lengths of node, tag and body: they stand in front of the node, in the log as in a segment.
LENGTHS = Struct("<HHI")
_TS_BACK = 16
_U64 = Struct("<Q")


class Labelled(Records):
    """Records of seq `first_seq` and those behind it, whose frames lie back to back.

    `offsets`: where in `data` the node of each begins; `sizes`: bytes of each frame; `flags`: a byte of each, as in the
    log. `stamps`: times, where they are known from elsewhere than the frames.
    """

    __slots__ = ("_data", "_node_lens", "_offsets", "_sizes", "_stamps", "_tag_lens", "first_seq", "flags")

    def __init__(
        self,
        first_seq: int,
        data: bytes,
        offsets: Sequence[int],
        sizes: Sequence[int],
        node_lens: Sequence[int],
        tag_lens: Sequence[int],
        flags: bytes,
        stamps: Sequence[int] = (),
    ) -> None:
        self.first_seq = first_seq
        self.flags = flags
        self._data = data
        self._offsets = offsets
        self._sizes = sizes
        self._node_lens = node_lens
        self._tag_lens = tag_lens
        self._stamps = stamps

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[StoredRecord]:
        tags_at, bodies_at, ends = self._borders()
        columns = (self._cut(self._offsets, tags_at), self._cut(tags_at, bodies_at), self._cut(bodies_at, ends))
        return map(make_record, zip(self.seqs, self.stamps(), *columns, strict=False))

    @overload
    def __getitem__(self, index: int) -> StoredRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRecord]: ...

    def __getitem__(self, index: int | slice) -> StoredRecord | Sequence[StoredRecord]:
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            return [*self.between(begin, end)][::step] if step > 0 and begin < end else [*self][index]
        at, data = self._offsets[index], self._data
        stamp = self._stamps[index] if self._stamps else _U64.unpack_from(data, at - _TS_BACK)[0]
        tag_at = at + self._node_lens[index]
        body_at = tag_at + self._tag_lens[index]
        body = data[body_at : at + self._sizes[index] - OVERHEAD]
        return StoredRecord(self.seqs[index], stamp, data[at:tag_at], data[tag_at:body_at], body)

    @property
    def seqs(self) -> range:
        """The seq of each."""
        return range(self.first_seq, self.first_seq + len(self._offsets))

    def stamps(self) -> Sequence[int]:
        """The time of each, ms since the epoch."""
        if self._stamps:
            return self._stamps
        offsets = [at - _TS_BACK for at in self._offsets]
        return [*chain.from_iterable(map(_U64.unpack_from, repeat(self._data), offsets))]

    def tags(self) -> list[bytes]:
        """The tag of each; b"" = none."""
        tags_at = self._tags_at()
        return self._cut(tags_at, [*map(add, tags_at, self._tag_lens)])

    def contents(self) -> list[bytes]:
        """Of each frame what a copy keeps: the three lengths, node, tag and body."""
        data, size, less = self._data, LENGTHS.size, OVERHEAD
        return [data[at - size : at + each - less] for at, each in zip(self._offsets, self._sizes, strict=True)]

    def payloads(self) -> array[int]:
        """Bytes that each counts for, as `storage.format.record.payload_size` says."""
        data = self._data
        _, bodies_at, ends = self._borders()
        if any(data.find(key, self._offsets[0], ends[-1]) >= 0 for key in FURTHER):
            return array("I", map(payload_size, repeat(data), bodies_at, ends))
        pairs = zip(bodies_at, ends, strict=True)
        return array("I", [max(0, end - begin - PLAIN_OVERHEAD) for begin, end in pairs])

    def lengths(self) -> list[int]:
        """Bytes of each body."""
        parts = zip(self._sizes, self._node_lens, self._tag_lens, strict=True)
        return [size - node_len - tag_len - OVERHEAD for size, node_len, tag_len in parts]

    def bytes_of(self) -> int:
        """Bytes of all bodies."""
        return sum(self._sizes) - len(self) * OVERHEAD - sum(self._node_lens) - sum(self._tag_lens)

    def fitting(self, max_bytes: int) -> int:
        """How many of them from the front have bodies of at most so many bytes together."""
        return bisect_right([*accumulate(self.lengths())], max_bytes)

    def first(self, count: int) -> Labelled:
        """So many of them from the front."""
        return self.between(0, count)

    def between(self, begin: int, end: int) -> Labelled:
        """Those of these numbers, counted from 0: one at least."""
        if begin == 0 and end >= len(self):
            return self
        here = slice(begin, end)
        columns = (self._offsets[here], self._sizes[here], self._node_lens[here], self._tag_lens[here])
        return Labelled(self.first_seq + begin, self._data, *columns, self.flags[here], self._stamps[here])

    def own(self) -> Labelled:
        """The same, keeping no bytes in memory but those of its frames, or little more."""
        begin = self._offsets[0] - _TS_BACK
        end = self._offsets[-1] + self._sizes[-1] - OVERHEAD
        if 2 * (end - begin) >= len(self._data):
            return self
        offsets = [at - begin for at in self._offsets]
        columns = (offsets, self._sizes, self._node_lens, self._tag_lens)
        return Labelled(self.first_seq, self._data[begin:end], *columns, self.flags, self._stamps)

    def _tags_at(self) -> Sequence[int]:
        return [*map(add, self._offsets, self._node_lens)] if any(self._node_lens) else self._offsets

    def _borders(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Of each, where its tag begins, where its body begins, and where that ends."""
        tags_at = self._tags_at()
        ends = [at + size - OVERHEAD for at, size in zip(self._offsets, self._sizes, strict=True)]
        return tags_at, [*map(add, tags_at, self._tag_lens)], ends

    def _cut(self, begins: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        data = self._data
        return [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
