"""Codec of subscriptions and assignments of the protocol type `consumer`. Pure. Big-endian.

    subscription   version i16 | count i32 | topics (len i16, UTF-8) | user data (len i32, -1 = none) | …
    assignment     version i16 | count i32 | topics (name as above, count i32, partitions i32) | user data

It writes version 0. Of later versions it reads the fields that version 0 has.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error
from typing import Final, TypeAlias

#: Topic and partition number.
Partition: TypeAlias = tuple[str, int]

#: The protocol type of consumers.
TYPE: Final = "consumer"

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_NO_DATA: Final = _I32.pack(-1)


def subscription(topics: Iterable[str]) -> bytes:
    """Encode a subscription."""
    named = [_named(topic) for topic in topics]
    return b"".join((_I16.pack(0), _I32.pack(len(named)), *named, _NO_DATA))


def subscribed(metadata: bytes) -> set[str]:
    """The topics of a subscription; empty if the bytes are malformed."""
    try:
        at = 2 + _I32.size
        topics: set[str] = set()
        for _ in range(_I32.unpack_from(metadata, 2)[0]):
            topic, at = _name_at(metadata, at)
            topics.add(topic)
    except (error, UnicodeDecodeError):
        return set()
    return topics


def wanted(protocols: Iterable[tuple[str, bytes]]) -> set[str]:
    """The topics that a member subscribes to, with any of its assignors."""
    return {topic for _, metadata in protocols for topic in subscribed(metadata)}


def assignment(partitions: Iterable[Partition]) -> bytes:
    """Encode an assignment."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    parts = [_I16.pack(0), _I32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += [_named(topic), _I32.pack(len(numbers)), *map(_I32.pack, numbers)]
    return b"".join((*parts, _NO_DATA))


def assigned(given: bytes) -> list[Partition]:
    """The partitions of an assignment; empty if the bytes are malformed."""
    found: list[Partition] = []
    try:
        at = 2 + _I32.size
        for _ in range(_I32.unpack_from(given, 2)[0] if given else 0):
            topic, at = _name_at(given, at)
            (count,) = _I32.unpack_from(given, at)
            for _ in range(count):
                at += _I32.size
                found.append((topic, _I32.unpack_from(given, at)[0]))
            at += _I32.size
    except (error, UnicodeDecodeError):
        return []
    return found


def _named(topic: str) -> bytes:
    raw = topic.encode()
    return _I16.pack(len(raw)) + raw


def _name_at(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _I16.unpack_from(data, at)
    end = at + _I16.size + size
    if size < 0 or end > len(data):
        raise error("cut off")
    return data[at + _I16.size : end].decode(), end
