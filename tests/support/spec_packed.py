"""A .zdata file, decoded from docs/reference/format.md alone: the bytes of the .data that it replaces.

Nothing of the package under test is imported here, and another library uncompresses the blocks.

    0   magic "TPAK", version u32 = 1, topic_id u64, first_seq u64, gen u64, count u32, data_bytes u32
    40  xxh3 u64 over bytes 0-39
    48  one delete byte a seq; then the blocks of 64 KiB of .data each, the last of what is left
    .   a row a block: stored bytes u32, xxh3 u64 of these; xxh3 u64 over header (48 bytes) and table; end of file
"""

from __future__ import annotations

from typing import NamedTuple

import xxhash
import zstandard

BLOCK = 64 << 10


class PackedViolation(Exception):
    """What is not as the format says."""


class Packed(NamedTuple):
    topic_id: int
    first_seq: int
    gen: int
    delete_bytes: bytes
    data: bytes


def _int(content: bytes, at: int, size: int) -> int:
    if at < 0 or at + size > len(content):
        raise PackedViolation(f"the file ends before offset {at + size}")
    return int.from_bytes(content[at : at + size], "little")


def _judge(ok: bool, what: str) -> None:
    if not ok:
        raise PackedViolation(what)


def decode_packed(content: bytes) -> Packed:
    """Check every byte. Raises PackedViolation."""
    _judge(content[:4] == b"TPAK" and _int(content, 4, 4) == 1, "magic or version")
    _judge(_int(content, 40, 8) == xxhash.xxh3_64_intdigest(content[:40]), "checksum of the header")
    count, data_bytes = _int(content, 32, 4), _int(content, 36, 4)
    blocks = (data_bytes + BLOCK - 1) // BLOCK
    table_at = len(content) - 8 - 12 * blocks
    table = content[table_at:-8]
    _judge(
        _int(content, len(content) - 8, 8) == xxhash.xxh3_64_intdigest(content[:48] + table), "checksum of the table"
    )
    at, data = 48 + count, b""
    delete_bytes = content[48:at]
    _judge(set(delete_bytes) <= {0, 0xD5} and len(delete_bytes) == count, "delete bytes")
    unpack = zstandard.ZstdDecompressor().decompress
    for number in range(blocks):
        size = min(BLOCK, data_bytes - number * BLOCK)
        stored_bytes, total = _int(table, number * 12, 4), _int(table, number * 12 + 4, 8)
        stored = content[at : at + stored_bytes]
        _judge(0 < stored_bytes <= size and xxhash.xxh3_64_intdigest(stored) == total, f"block {number}")
        block = stored if stored_bytes == size else unpack(stored, max_output_size=size)
        _judge(len(block) == size, f"length of block {number}")
        data += block
        at += stored_bytes
    _judge(at == table_at, "the blocks do not end where the table begins")
    return Packed(_int(content, 8, 8), _int(content, 16, 8), _int(content, 24, 8), delete_bytes, data)
