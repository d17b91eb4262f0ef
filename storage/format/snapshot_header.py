"""The header of a metadata snapshot.

    off  size  field
    0    4     magic "TSNP"
    4    4     version u32
    8    8     body_len u64
    16   8     xxh3 u64       XXH3-64 over bytes 0-15 and the body
    24   .     body           MessagePack map

Little-endian.

Source: docs/reference/format.md#snapshots.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64

from storage.format.checksum import checksum

MAGIC = b"TSNP"
VERSION = 1
_PREFIX = struct.Struct("<4sIQ")
_CHECKSUM = struct.Struct("<Q")
HEADER_SIZE = _PREFIX.size + _CHECKSUM.size


class SnapshotDamaged(ValueError):
    """The bytes are not a whole valid snapshot."""


class SnapshotUnsupported(ValueError):
    """A valid snapshot of a version this program does not know."""


def seal(body: bytes) -> bytes:
    """The snapshot file for a body."""
    prefix = _PREFIX.pack(MAGIC, VERSION, len(body))
    return prefix + _CHECKSUM.pack(checksum(prefix + body)) + body


def check(file: bytes) -> None:
    """Raises SnapshotDamaged. Copies nothing."""
    if len(file) < HEADER_SIZE:
        raise SnapshotDamaged(f"{len(file)} bytes are too few for a snapshot")
    magic, _, body_len = _PREFIX.unpack_from(file)
    if magic != MAGIC:
        raise SnapshotDamaged("it does not begin with TSNP")
    if body_len != len(file) - HEADER_SIZE:
        raise SnapshotDamaged(f"body_len is {body_len}, the file holds {len(file) - HEADER_SIZE}")
    digest = xxh3_64(file[: _PREFIX.size])
    digest.update(memoryview(file)[HEADER_SIZE:])
    if digest.intdigest() != _CHECKSUM.unpack_from(file, _PREFIX.size)[0]:
        raise SnapshotDamaged("checksum mismatch")


def unseal(file: bytes) -> bytes:
    """The verified body. Raises SnapshotDamaged, or SnapshotUnsupported when valid but newer."""
    check(file)
    _, version, _ = _PREFIX.unpack_from(file)
    if version != VERSION:
        raise SnapshotUnsupported(f"snapshot version {version}, this program knows {VERSION}")
    return file[HEADER_SIZE:]
