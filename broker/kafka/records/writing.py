"""Writes record batches for those who fetch, by columns: with next to no Python a record. Pure.

A record is, with signed varints (zigzag, seven bits a byte, lowest first) for all its numbers:

    length, of what follows
    attributes u8, 0
    time behind the batch's base_timestamp
    offset behind the batch's base_offset
    length of the key (-1 = null), key
    length of the value (-1 = null), value
    count of headers; of each the length of its name, name, length of its value (-1 = null), value
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple

from broker.kafka.codec.wire import Buffer
from broker.kafka.records.codecs import Codec
from broker.kafka.records.compression import compress
from broker.kafka.records.header import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    sealed,
)

_join = b"".join
_NULL: Final = b"\x01"
_NONE: Final = b"\x00"
_CACHED_VARINTS: Final = 1 << 14


class Columns(NamedTuple):
    """Records, a column each. `keys` None: all are null; `headers` None: there are none. Times in ms."""

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None
    stamps: Sequence[int]


def varint(number: int) -> bytes:
    """A signed one, of 64 bits at most."""
    number = number << 1 if number >= 0 else ~number << 1 | 1
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


#: Of the numbers from 0 on: deltas of offsets, and lengths.
_VARINTS: Final = tuple(map(varint, range(_CACHED_VARINTS)))


class _Varints(dict[int, bytes]):
    """Others, of which a batch has few different ones."""

    def __missing__(self, number: int) -> bytes:
        made = self[number] = varint(number)
        return made


def varints(numbers: Sequence[int]) -> Iterable[bytes]:
    """Of each."""
    if min(numbers) >= 0 and max(numbers) < _CACHED_VARINTS:
        return map(_VARINTS.__getitem__, numbers)
    return map(_Varints().__getitem__, numbers)


def write_batch(base_offset: int, deltas: Sequence[int], records: Columns, leader_epoch: int) -> bytes:
    """A batch, uncompressed. `deltas`: how far behind `base_offset` each record is, ascending from 0 on."""
    keys, values, headers, stamps = records
    count, first_stamp = len(values), stamps[0]
    columns: list[Iterable[bytes]] = [
        repeat(_NONE, count),
        varints([stamp - first_stamp for stamp in stamps]),
        varints(deltas),
        *([repeat(_NULL, count)] if keys is None else _with_lengths(keys)),
        *_with_lengths(values),
        repeat(_NONE, count) if headers is None else map(_headers, headers),
    ]
    bodies = [*map(_join, zip(*columns, strict=True))]
    lengths = varints([*map(len, bodies)])
    text = _join(chain.from_iterable(zip(lengths, bodies, strict=True)))
    opening = HEADER.pack(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(text),
        leader_epoch,
        MAGIC,
        0,
        0,
        deltas[-1],
        first_stamp,
        max(stamps),
        NO_PRODUCER,
        -1,
        -1,
        count,
    )
    return sealed(bytearray(opening + text))


def compressed(batch: Buffer, codec: Codec) -> Buffer:
    """The same batch, compressed; as it was where that makes it no smaller. It is uncompressed, and has records."""
    records = compress(codec, bytes(memoryview(batch)[HEADER_SIZE:]))
    if codec is Codec.NONE or HEADER_SIZE + len(records) >= len(batch):
        return batch
    changed = bytearray(batch[:HEADER_SIZE])
    LENGTH.pack_into(changed, LENGTH_AT, HEADER_SIZE - LOG_OVERHEAD + len(records))
    changed[ATTRIBUTES_AT + 1] |= codec
    return sealed(changed + records)


def _with_lengths(fields: Sequence[bytes | None]) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """Fields and their lengths, as two columns."""
    if None in fields:
        lengths: Iterable[bytes] = [_NULL if each is None else varint(len(each)) for each in fields]
        return lengths, [each or b"" for each in fields]
    given: Sequence[bytes] = fields  # pyright: ignore[reportAssignmentType]
    return varints([*map(len, given)]), given


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    if not headers:
        return _NONE
    parts = [varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        parts += (varint(len(text)), text, _NULL if value is None else varint(len(value)), value or b"")
    return _join(parts)
