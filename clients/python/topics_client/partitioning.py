"""The partition of a tag, as the broker and Kafka's clients compute it.

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


@lru_cache(maxsize=1 << 16)
def partition_of(tag: str, partitions: int) -> int:
    """The partition of records with this tag. Cached, because hashing takes longer than the rest of the work for a
    record."""
    return (_murmur2(tag.encode()) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's clients."""
    h = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
