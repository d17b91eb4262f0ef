"""The `.len` sidecar of a cold segment: the payload bytes of each record.

    off  size       field
    0    4          magic "TLEN"
    4    4          version u32
    8    8          first_seq u64    of the segment
    16   8          data_bytes u64   length of its .data
    24   8          gen u64          of the segment's files
    32   4          count u32        seqs of the segment
    36   8          xxh3 u64         XXH3-64 over bytes 0-35 and everything after this field
    44   4 * count  payloads         u32 each: bytes of data and meta as sent, 0 where there is no record

Little-endian. The file ends with the payloads. It is derived from .data. Caps and ttl count by these numbers, so with
this file they never have to ask the cold store.

Source: docs/reference/format.md#evictwatermark, docs/reference/format.md#cold-tier.
"""

from __future__ import annotations

import struct
import sys
from array import array

from xxhash import xxh3_64_intdigest

MAGIC = b"TLEN"
VERSION = 1
PREFIX = struct.Struct("<4sIQQQI")
CHECKSUM = struct.Struct("<Q")
HEADER_SIZE = PREFIX.size + CHECKSUM.size


def encode(first_seq: int, gen: int, data_bytes: int, payloads: array[int]) -> bytes:
    """The file."""
    prefix = PREFIX.pack(MAGIC, VERSION, first_seq, data_bytes, gen, len(payloads))
    body = _swapped(payloads).tobytes()
    return prefix + CHECKSUM.pack(xxh3_64_intdigest(prefix + body)) + body


def decode(content: bytes, first_seq: int, gen: int, data_bytes: int) -> array[int] | None:
    """The payloads; None unless `content` is a complete, undamaged file of this segment."""
    prefix, body = content[: PREFIX.size], content[HEADER_SIZE:]
    if len(content) < HEADER_SIZE or len(body) % 4:
        return None
    if prefix != PREFIX.pack(MAGIC, VERSION, first_seq, data_bytes, gen, len(body) // 4):
        return None
    if CHECKSUM.unpack_from(content, PREFIX.size)[0] != xxh3_64_intdigest(prefix + body):
        return None
    payloads = array("I")
    payloads.frombytes(body)
    return _swapped(payloads)


def _swapped(payloads: array[int]) -> array[int]:
    """From the machine's byte order to the file's, or back."""
    if sys.byteorder == "little":
        return payloads
    payloads = payloads[:]
    payloads.byteswap()
    return payloads
