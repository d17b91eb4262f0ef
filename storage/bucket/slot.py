"""The objects of a cell's log in a bucket: bytes of the log, and seals.

    offset  size  field
    0       4     magic "TSLO"
    4       1     version 1
    5       1     kind: 1 data, 2 seal
    6       2     0
    8       8     generation u64
    16      8     slot u64
    24      16    nonce of the process that made it
    40      8     number of the log's file u64
    48      8     offset in that file u64
    56      8     length of the body u64
    64      8     XXH3-64 over bytes 0-63 and the body
    72      .     body

Integers are little-endian. The body of a seal is JSON: `Seal`. A data slot counts only if it has the generation and the
nonce of the last seal in front of it. Whatever does not decode is damage, never the end of the log.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec
from xxhash import xxh3_64

DATA: Final = 1
SEAL: Final = 2
MAGIC: Final = b"TSLO"
VERSION: Final = 1
NONCE_BYTES: Final = 16
#: As a successor: every process may seal at once.
ANYONE: Final = "*"
_FIELDS: Final = struct.Struct("<4sBBHQQ16sQQQ")
_SUM: Final = struct.Struct("<Q")
HEADER_BYTES: Final = _FIELDS.size + _SUM.size


class DamagedSlot(Exception):
    """These bytes are not a slot with that number, or do not belong after the last seal."""


class Seal(msgspec.Struct, frozen=True):
    """Who owns the cell from this slot on."""

    slot: int
    generation: int
    #: The nonce of the process, drawn at its start: 32 hex digits.
    nonce: str
    node: str
    address: str = ""
    #: The local directory that holds the rest of the owner's log; "" for none.
    directory: str = ""
    #: Set in the last slot of an owner that gives up the cell: the process that may seal at once, or ANYONE.
    successor: str = ""


class Slot(msgspec.Struct, frozen=True):
    number: int
    generation: int
    nonce: str
    body: bytes
    #: Where the body is in the log. 0 and 0 for a seal.
    file: int = 0
    offset: int = 0
    seal: Seal | None = None


def encode_data(number: int, seal: Seal, file: int, offset: int, body: bytes) -> bytes:
    return _encode(DATA, number, seal.generation, seal.nonce, file, offset, body)


def encode_seal(seal: Seal) -> bytes:
    return _encode(SEAL, seal.slot, seal.generation, seal.nonce, 0, 0, msgspec.json.encode(seal))


def _encode(kind: int, number: int, generation: int, nonce: str, file: int, offset: int, body: bytes) -> bytes:
    fields = _FIELDS.pack(MAGIC, VERSION, kind, 0, generation, number, bytes.fromhex(nonce), file, offset, len(body))
    return b"".join((fields, _SUM.pack(_checksum(fields, body)), body))


def decode(number: int, data: bytes) -> Slot:
    """Raises DamagedSlot."""
    if len(data) < HEADER_BYTES:
        raise DamagedSlot(f"slot {number} has {len(data)} bytes")
    magic, version, kind, zero, generation, found, nonce, file, offset, length = _FIELDS.unpack_from(data)
    body = data[HEADER_BYTES:]
    if (magic, version, zero, found, length) != (MAGIC, VERSION, 0, number, len(body)) or kind not in (DATA, SEAL):
        raise DamagedSlot(f"slot {number} has the wrong header")
    if _SUM.unpack_from(data, _FIELDS.size)[0] != _checksum(data[: _FIELDS.size], body):
        raise DamagedSlot(f"slot {number} fails its checksum")
    if kind == DATA:
        return Slot(number, generation, nonce.hex(), body, file, offset)
    try:
        seal = msgspec.json.decode(body, type=Seal)
    except msgspec.DecodeError as error:
        raise DamagedSlot(f"slot {number} is a seal that names no owner") from error
    if (seal.slot, seal.generation, seal.nonce) != (number, generation, nonce.hex()):
        raise DamagedSlot(f"slot {number} is a seal for another slot or owner")
    return Slot(number, generation, nonce.hex(), body, seal=seal)


def _checksum(fields: bytes, body: bytes) -> int:
    whole = xxh3_64(fields)
    whole.update(body)
    return whole.intdigest()
