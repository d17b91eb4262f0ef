"""One entry of a segment's .idx file: where the record of a seq is in .data. Entry i is seq first_seq + i.

    off  size  field
    0    4     offset u32    of the frame in .data; without a record: of the next frame
    4    4     len u32       bytes of the frame in .data, delete byte included (= frame_len + 4); 0: no record
    8    8     ts u64        ms since the epoch; without a record: the ts of the entry before, 0 if none
    16   1     flags u8      bit 0 has a tag, bit 1 has a node, bit 2 deleted
    17   3     sum           low 24 bits of XXH3-64 (seed 0) over the 17 bytes before

Little-endian. Frames are adjacent, so an entry's offset is the sum of the lens before it, and .data ends at offset +
len of the last entry. A deletion changes only bytes 16-19. They are aligned, so one write to them never crosses a
sector: all of it is on disk or none.

Source: docs/reference/format.md#segments.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, overload

import kernel
from storage.format.checksum import checksum_bytes

ENTRY_SIZE = 20
HAS_TAG = 1
HAS_NODE = 2
DELETED = 4

_FIELDS = struct.Struct("<IIQB")  # the 17 bytes that the sum covers
_FLAGS_AT = 16
_SUM_BYTES = slice(7, 4, -1)  # of a big-endian digest: its low 24 bits, little-endian

# Translations of one byte of an entry to a binary digit.
_IS_ZERO = b"1" + b"0" * 255
_IS_DELETED = bytes(ord("1") if flags & DELETED else ord("0") for flags in range(256))


class Entry(NamedTuple):
    """A verified entry; `len` 0 means that there is no record."""

    offset: int
    len: int
    ts: int
    flags: int

    @property
    def end(self) -> int:
        """Offset of the next frame in .data, bytes."""
        return self.offset + self.len


#: The same as calling the type, without a Python call.
_entry: Callable[[Iterable[int]], Entry] = partial(tuple.__new__, Entry)  # pyright: ignore


class Entries(Sequence[Entry]):
    """Verified entries by field: an entry is created when accessed. Equal to any sequence of the same entries."""

    __slots__ = ("flags", "lens", "offsets", "stamps")

    def __init__(self, offsets: array[int], lens: array[int], stamps: array[int], flags: bytes) -> None:
        """The type codes of the arrays are I, I and Q."""
        self.offsets = offsets
        self.lens = lens
        self.stamps = stamps
        self.flags = flags

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int, int, int]]) -> Entries:
        """Entries given one by one."""
        offsets, lens, stamps, flags = zip(*entries, strict=True)
        return cls(array("I", offsets), array("I", lens), array("Q", stamps), bytes(flags))

    def __len__(self) -> int:
        return len(self.flags)

    def __iter__(self) -> Iterator[Entry]:
        return map(_entry, zip(self.offsets, self.lens, self.stamps, self.flags, strict=True))

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> Entries: ...

    def __getitem__(self, index: int | slice) -> Entry | Entries:
        if isinstance(index, slice):
            return Entries(self.offsets[index], self.lens[index], self.stamps[index], self.flags[index])
        return Entry(self.offsets[index], self.lens[index], self.stamps[index], self.flags[index])

    def between(self, begin: int, end: int) -> Entries:
        """The entries with numbers [begin, end)."""
        return self if begin == 0 and end >= len(self) else self[begin:end]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]  # pyright: ignore[reportUnknownArgumentType]


class IdxDamaged(ValueError):
    """An entry is cut short, or differs from the bytes written. `index`: its number in the buffer, from 0."""

    def __init__(self, index: int) -> None:
        super().__init__(f"index entry {index} fails its check")
        self.index = index


def pack(offset: int, len: int, ts: int, flags: int) -> bytes:
    """One entry."""
    fields = _FIELDS.pack(offset, len, ts, flags)
    return fields + checksum_bytes(fields)[_SUM_BYTES]


def unpack(buffer: bytes | memoryview, index: int) -> Entry:
    """Entry `index` of the buffer. Raises IdxDamaged."""
    at = index * ENTRY_SIZE
    fields = bytes(buffer[at : at + _FIELDS.size])
    if buffer[at + _FIELDS.size : at + ENTRY_SIZE] != checksum_bytes(fields)[_SUM_BYTES] or len(fields) < _FIELDS.size:
        raise IdxDamaged(index)
    return Entry._make(_FIELDS.unpack(fields))


def damaged(buffer: bytes | memoryview) -> list[int]:
    """Indexes of the entries that fail their check, ascending. Ignores an entry cut short at the end."""
    first, count = kernel.parse_index(buffer).damaged, len(buffer) // ENTRY_SIZE
    return [] if first < 0 else [index for index in range(first, count) if not _is_sound(buffer, index)]


def _is_sound(buffer: bytes | memoryview, index: int) -> bool:
    try:
        unpack(buffer, index)
    except IdxDamaged:
        return False
    return True


def parse(buffer: bytes | memoryview) -> Entries:
    """Every entry of the buffer. Raises IdxDamaged naming the first one that is cut short or fails its check."""
    offsets, lens, stamps, flags, index = kernel.parse_index(buffer)
    if index >= 0:
        raise IdxDamaged(index)
    return Entries(offsets, lens, stamps, flags)


def deleted_tail(buffer: bytes | memoryview, index: int) -> bytes:
    """Bytes 16-19 of entry `index` marked as deleted, for one write. Raises IdxDamaged: no damage gets a valid sum."""
    entry = unpack(buffer, index)
    return pack(entry.offset, entry.len, entry.ts, entry.flags | DELETED)[_FLAGS_AT:]


def dead_bits(buffer: bytes | memoryview) -> int:
    """A bitset: bit i is set when entry i is deleted or holds no record. Sums are not checked: see `damaged`."""
    entries = bytes(buffer)  # taken apart nine times as fast as a memoryview
    last = len(entries) // ENTRY_SIZE * ENTRY_SIZE - ENTRY_SIZE
    if last < 0:
        return 0
    # A column read backwards gives the digits of a number, most significant first.
    no_record = -1
    for byte in range(4, 8):
        no_record &= int(entries[last + byte :: -ENTRY_SIZE].translate(_IS_ZERO), 2)
    return no_record | int(entries[last + _FLAGS_AT :: -ENTRY_SIZE].translate(_IS_DELETED), 2)


def set_bits(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending."""
    digits = f"{bits:b}"[::-1]
    at = digits.find("1")
    while at >= 0:
        yield at
        at = digits.find("1", at + 1)
