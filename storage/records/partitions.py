"""Addresses of partitions, and the partition of a record. Pure.

The address of partition 0 is the topic's name, that of partition p is `name/p`; no topic's name contains "/".

Source: docs/reference/api.md#partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from storage.errors import InvalidRequest

#: Upper bound of the setting for partitions of a topic.
MAX_PARTITIONS = 1024
_ADDRESS = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._:-]{0,254})/([1-9][0-9]{0,3})")
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def address(name: str, p: int) -> str:
    """The engine's name for partition `p` of a topic."""
    return name if p == 0 else f"{name}/{p}"


def split(address: str) -> tuple[str, int]:
    """The topic's name and the partition of an address."""
    name, slash, p = address.partition("/")
    return (name, int(p)) if slash else (name, 0)


def is_address(text: str) -> bool:
    """Whether `text` is the address of a partition above 0; partition 0 has the topic's name."""
    return _ADDRESS.fullmatch(text) is not None


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's clients; the sign bit is the top bit."""
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


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Kafka's default partitioner chooses for this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of_tags(tags: Iterable[str | None], partitions: int) -> int | None:
    """The partition that the tags of a batch agree on; None when no record has a tag.

    Raises InvalidRequest when two tags belong to different partitions.
    """
    chosen: int | None = None
    for index, tag in enumerate(tags):
        if tag is None:
            continue
        wanted = partition_of(tag.encode(), partitions)
        if chosen is not None and wanted != chosen:
            raise InvalidRequest(
                f"records[{index}].tag belongs to partition {wanted}, the tags before it to {chosen}; a batch goes to "
                "one partition: give it as partition, or send the records one by one.",
                field=f"records[{index}].tag",
            )
        chosen = wanted
    return chosen
