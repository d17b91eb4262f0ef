"""The `.zdata` of a packed segment: the bytes of its .data in compressed blocks, with the delete bytes beside them.

    off  size        field
    0    4           magic "TPAK"
    4    4           version u32
    8    8           topic_id u64     of the segment
    16   8           first_seq u64
    24   8           gen u64
    32   4           count u32        seqs of the segment
    36   4           data_bytes u32   length of the .data that it replaces
    40   8           xxh3 u64         XXH3-64 over bytes 0-39
    48   count       delete bytes     one per seq: 0x00 live, 0xD5 deleted. Without checksum, since changed in place
    .    .           blocks           adjacent
    .    12 * n      table            one row per block: bytes in the file u32, XXH3-64 over these u64
    .    8           xxh3 u64         XXH3-64 over the header and the table; the file ends with it

Block i holds the bytes [i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES) of .data, the last block the rest. So data_bytes gives
the number of blocks, and a frame may be in two of them. A block with fewer bytes in the file than it holds is a zstd
frame; with the same number, it is stored as it is; with more, it is damaged. Inside the blocks every delete byte is
0x00: only the delete bytes before the blocks count. Little-endian.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

MAGIC = b"TPAK"
VERSION = 1
#: Bytes of .data in a block: reading one record uncompresses this much, and no block holds more.
BLOCK_BYTES = 64 << 10
PREFIX = struct.Struct("<4sIQQQII")
CHECKSUM = struct.Struct("<Q")
HEADER_SIZE = PREFIX.size + CHECKSUM.size
ROW = struct.Struct("<IQ")


class PackedDamaged(ValueError):
    """The file is not a complete, undamaged one of this segment. `offset`: where the damage shows."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset


class Header(NamedTuple):
    """The segment and the length of its .data."""

    topic_id: int
    first_seq: int
    gen: int
    seqs: int
    data_bytes: int

    def encode(self) -> bytes:
        """The header's bytes, with its checksum."""
        prefix = PREFIX.pack(MAGIC, VERSION, *self)
        return prefix + CHECKSUM.pack(xxh3_64_intdigest(prefix))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.data_bytes // BLOCK_BYTES)

    @property
    def blocks_at(self) -> int:
        """Where the first block begins in the file."""
        return HEADER_SIZE + self.seqs

    @property
    def table_bytes(self) -> int:
        """Bytes of the table and the checksum after it."""
        return self.blocks * ROW.size + CHECKSUM.size

    def block_bytes(self, number: int) -> int:
        """Uncompressed bytes of a block."""
        return min(BLOCK_BYTES, self.data_bytes - number * BLOCK_BYTES)


class Table(NamedTuple):
    """Where each block begins in the file, followed by the end of the last block; and each block's checksum."""

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
    """The table and its checksum. `entries`: (bytes in the file, checksum) of each block."""
    table = b"".join(ROW.pack(*row) for row in entries)
    return table + CHECKSUM.pack(xxh3_64_intdigest(header.encode() + table))


def decode_table(header: Header, content: bytes, file_bytes: int) -> Table:
    """The table in `content`, the last `header.table_bytes` of a file of `file_bytes`. Raises PackedDamaged."""
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
