"""The small files of a data directory and the header of a snapshot, from the specification alone.

Readings, where the specification leaves a choice:

- FORMAT is three lines, each ended by a newline; version and shard count in decimal, the version known here is 1.
- .lock holds the pid, then maybe one more word, the boot id or `failed`, with white space between.
- CURRENT names the active file, by its name or by its number, a newline behind it or not. It is advisory: its
  shape is checked, nothing is concluded from it.
- A reserve holds zeros only. (What became a log file has another name by then.)
- body_len counts the body alone, and the file ends with the body.
- The checksum of a snapshot stands at offset 16, so the body begins at 24.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec.msgpack
import xxhash

from tests.support.spec_control import is_map
from tests.support.spec_frames import SpecViolation

FORMAT_VERSION = 1
PACKED_FORMAT_VERSION = 2
SNAPSHOT_MAGIC = b"TSNP"
SNAPSHOT_VERSION = 1
SNAPSHOT_HEADER_BYTES = 24

_CURRENT = re.compile(rb"(?:wal-)?(\d+)(?:\.log)?\n?")
_CLUSTER_ID = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class FormatFile:
    version: int
    cluster_id: str
    shard_count: int


@dataclass(frozen=True, slots=True)
class LockFile:
    """`word` is the boot id, 'failed', or '' while recovery is not complete."""

    pid: int
    word: str


def decode_format(data: bytes, name: str = "FORMAT") -> FormatFile:
    try:
        lines = data.decode("ascii").split("\n")
        version, cluster_id, shards, rest = lines
        decoded = FormatFile(int(version), cluster_id, int(shards))
    except ValueError as error:
        raise SpecViolation(name, 0, f"not three lines of version, cluster id and shard count: {data!r}") from error
    if decoded.version not in (FORMAT_VERSION, PACKED_FORMAT_VERSION):
        raise SpecViolation(name, 0, f"unknown format version {decoded.version}")
    if rest or decoded.shard_count < 1 or not _CLUSTER_ID.fullmatch(cluster_id):
        raise SpecViolation(name, 0, f"not three lines of version, cluster id and shard count: {data!r}")
    return decoded


def decode_lock(data: bytes, name: str = ".lock") -> LockFile:
    words = data.decode("utf-8", "replace").split()
    if not 1 <= len(words) <= 2 or not words[0].isdigit():
        raise SpecViolation(name, 0, f"not a pid, alone or with a boot id or 'failed': {data!r}")
    return LockFile(int(words[0]), words[1] if len(words) == 2 else "")


def decode_current(data: bytes, name: str = "CURRENT") -> int:
    """The number of the file that CURRENT names."""
    match = _CURRENT.fullmatch(data)
    if match is None:
        raise SpecViolation(name, 0, f"names no log file: {data!r}")
    return int(match[1])


def decode_reserve(data: bytes, name: str = "reserve") -> int:
    """The size of a reserve file."""
    if used := data.strip(b"\0"):
        raise SpecViolation(name, data.index(used[0]), "a reserve holds something")
    return len(data)


def unseal_snapshot(data: bytes, name: str = "snapshot") -> dict[str, Any]:
    """Check magic, version, length and checksum. Returns the map in the body. Raises SpecViolation."""
    if len(data) < SNAPSHOT_HEADER_BYTES:
        raise SpecViolation(name, 0, f"{len(data)} bytes are too few for a header")
    if data[:4] != SNAPSHOT_MAGIC:
        raise SpecViolation(name, 0, f"magic {data[:4]!r}")
    version = int.from_bytes(data[4:8], "little")
    if version != SNAPSHOT_VERSION:
        raise SpecViolation(name, 4, f"unknown snapshot version {version}")
    body_len = int.from_bytes(data[8:16], "little")
    if body_len != len(data) - SNAPSHOT_HEADER_BYTES:
        raise SpecViolation(name, 8, f"body_len {body_len}, but {len(data) - SNAPSHOT_HEADER_BYTES} bytes follow")
    stored = int.from_bytes(data[16:24], "little")
    found = xxhash.xxh3_64_intdigest(data[:16] + data[SNAPSHOT_HEADER_BYTES:], seed=0)
    if stored != found:
        raise SpecViolation(name, 16, f"checksum {stored:016x} stored, {found:016x} found")
    try:
        body = msgspec.msgpack.decode(data[SNAPSHOT_HEADER_BYTES:])
    except msgspec.DecodeError as error:
        raise SpecViolation(name, SNAPSHOT_HEADER_BYTES, f"the body is not MessagePack: {error}") from error
    if not is_map(body):
        raise SpecViolation(name, SNAPSHOT_HEADER_BYTES, "the body is not a map with named keys")
    return body
