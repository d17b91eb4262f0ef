"""The position of a stream in all its topics, for ids of events and Last-Event-ID. Pure.

base64url, without padding, of {"orders":{"epoch":1,"seq":42},…}. The key of a topic is its name, or name#partition
for partitions above 0. seq is that of the last record examined.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

#: Room for 256 topics with the longest names.
MAX_BYTES: Final = 256 * 1024
_MAX_U64: Final = 2**64 - 1


class Position(NamedTuple):
    """Everything up to `seq`, in the topic of that epoch."""

    epoch: int
    seq: int


_entries: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Entry(msgspec.Struct):
    epoch: int
    seq: int


_entry = msgspec.json.Decoder(_Entry)


def key(address: str) -> str:
    """The key of a partition in the map. `address`: its name in the engine."""
    return address.replace("/", "#")


def entry(key: bytes, position: Position) -> bytes:
    """One member of the map; `key` is a JSON string."""
    return b'%b:{"epoch":%d,"seq":%d}' % (key, position.epoch, position.seq)


def encode(entries: Iterable[bytes]) -> bytes:
    """The id with these members."""
    return urlsafe_b64encode(b"{%b}" % b",".join(entries)).rstrip(b"=")


def decode(text: bytes) -> dict[str, Position]:
    """The positions by key. Unreadable ids and members are skipped: these topics start at their default."""
    if not text or len(text) > MAX_BYTES:
        return {}
    try:
        members = _entries.decode(b64decode(text.rstrip(b"=") + b"=" * (-len(text.rstrip(b"=")) % 4), b"-_", True))
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error, ValueError):
        return {}
    found: dict[str, Position] = {}
    for key, raw in members.items():
        try:
            given = _entry.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if 0 <= given.epoch <= _MAX_U64 and 0 <= given.seq <= _MAX_U64:
            found[key] = Position(given.epoch, given.seq)
    return found
