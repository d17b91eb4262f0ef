"""The `.zdata` of a packed segment: the bytes of its .data in compressed blocks, and its delete bytes beside them.

    off  size        field
    0    4           magic "TPAK"
    4    4           version u32
    8    8           topic_id u64     of the segment
    16   8           first_seq u64
    24   8           gen u64
    32   4           count u32        seqs of the segment
    36   4           data_bytes u32   length of the .data that it stands for
    40   8           xxh3 u64         XXH3-64 over bytes 0-39
    48   count       delete bytes     one a seq: 0x00 live, 0xD5 deleted. Not under a checksum: changed in place
    .    .           blocks           one behind the other
    .    12 * n      table            one row a block: bytes in the file u32, XXH3-64 over these u64
    .    8           xxh3 u64         XXH3-64 over the header and the table; the file ends with it

Block i holds the bytes [i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES) of .data, the last one what is left: so there are as
many as data_bytes says, and a frame may lie in two. One with fewer bytes in the file than it holds is a frame of zstd,
one with as many is stored as it is; more is damage. In the blocks every delete byte is 0x00: those in front of them
decide. Little-endian.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

MAGIC = b"TPAK"
VERSION = 1
#: Bytes of .data in a block: what is uncompressed to read one record, and the most that a block can come to.
BLOCK_BYTES = 64 << 10
PREFIX = struct.Struct("<4sIQQQII")
CHECKSUM = struct.Struct("<Q")
HEADER_SIZE = PREFIX.size + CHECKSUM.size
ROW = struct.Struct("<IQ")


class PackedDamaged(ValueError):
    """Not a whole, sound file of that very segment. `offset` is where that shows."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


class Header(NamedTuple):
    """Whose .data it is."""

    topic_id: int
    first_seq: int
    gen: int
    seqs: int
    data_bytes: int

    def encode(self) -> bytes:
        """With its checksum."""
        prefix = PREFIX.pack(MAGIC, VERSION, *self)
        return prefix + CHECKSUM.pack(xxh3_64_intdigest(prefix))

    @property
    def blocks(self) -> int:
        """How many there are."""
        return -(-self.data_bytes // BLOCK_BYTES)

    @property
    def blocks_at(self) -> int:
        """Where the first one begins in the file."""
        return HEADER_SIZE + self.seqs

    @property
    def table_bytes(self) -> int:
        """Of the table and the checksum behind it."""
        return self.blocks * ROW.size + CHECKSUM.size

    def block_bytes(self, number: int) -> int:
        """What a block comes to when it is uncompressed."""
        return min(BLOCK_BYTES, self.data_bytes - number * BLOCK_BYTES)


class Table(NamedTuple):
    """Of each block where it begins in the file, the end of the last one behind them; and its checksum."""

    offsets: array[int]
    sums: array[int]


def decode_header(content: bytes) -> Header:
    """Raises PackedDamaged."""
    if len(content) < HEADER_SIZE:
        raise PackedDamaged(len(content), "the file ends within its header")
    magic, version, *fields = PREFIX.unpack_from(content)
    (stored,) = CHECKSUM.unpack_from(content, PREFIX.size)
    if (magic, version) != (MAGIC, VERSION) or stored != xxh3_64_intdigest(content[: PREFIX.size]):
        raise PackedDamaged(0, "the header fails its check")
    return Header(*fields)


def encode_table(header: Header, entries: Iterable[tuple[int, int]]) -> bytes:
    """(bytes in the file, checksum) of each block."""
    table = b"".join(ROW.pack(*row) for row in entries)
    return table + CHECKSUM.pack(xxh3_64_intdigest(header.encode() + table))


def decode_table(header: Header, content: bytes, file_bytes: int) -> Table:
    """Of the last `header.table_bytes` of a file of so many bytes. Raises PackedDamaged."""
    at = file_bytes - header.table_bytes
    if len(content) != header.table_bytes or at < header.blocks_at:
        raise PackedDamaged(file_bytes, "the file ends before its table does")
    table, (stored,) = content[: -CHECKSUM.size], CHECKSUM.unpack_from(content, len(content) - CHECKSUM.size)
    if stored != xxh3_64_intdigest(header.encode() + table):
        raise PackedDamaged(at, "the table fails its check")
    offsets, sums = array("Q", [header.blocks_at]), array("Q")
    for number, (size, total) in enumerate(ROW.iter_unpack(table)):
        if not 0 < size <= header.block_bytes(number):
            raise PackedDamaged(at + number * ROW.size, f"block {number} cannot have {size} bytes")
        offsets.append(offsets[-1] + size)
        sums.append(total)
    if offsets[-1] != at:
        raise PackedDamaged(at, f"the blocks end at {offsets[-1]}, not where the table begins")
    return Table(offsets, sums)
