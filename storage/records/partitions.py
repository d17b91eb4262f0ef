"""Partitions of a topic: how one is addressed, and which one a record belongs to. Pure. Source: kafka.md §1.

Partition 0 goes by the topic's name, partition p by `name/p`: "/" is in no topic's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from storage.errors import InvalidRequest

#: Most a topic can be given, whatever the limit is set to.
MAX_PARTITIONS = 1024
_ADDRESS = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._:-]{0,254})/([1-9][0-9]{0,3})")
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def address(name: str, p: int) -> str:
    """Where the engine finds partition `p` of a topic."""
    return name if p == 0 else f"{name}/{p}"


def split(address: str) -> tuple[str, int]:
    """The topic's name and the partition that an address means."""
    name, slash, p = address.partition("/")
    return (name, int(p)) if slash else (name, 0)


def is_address(text: str) -> bool:
    """Whether it is the address of a partition above 0; those of partition 0 are names."""
    return _ADDRESS.fullmatch(text) is not None


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 as Kafka's clients seed it; the sign bit as the top bit."""
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
    """Where Kafka's default partitioner puts a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of_tags(tags: Iterable[str | None], partitions: int) -> int | None:
    """The partition that the tags of one batch agree on; None: none of its records has one.

    Raises InvalidRequest where two of them belong to different partitions.
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
