"""XXH3-64, seed 0, over all stored bytes that are checked; 128 bits where a collision would confuse two keys."""

from __future__ import annotations

from xxhash import xxh3_64_digest as checksum_bytes  # big-endian: files want it reversed
from xxhash import xxh3_128_digest as digest128

from kernel import checksum

__all__ = ["checksum", "checksum_bytes", "digest128"]
