"""Reads the records of a produced batch, as columns. Pure. The bytes of each record are read by compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from aiokafka.errors import CorruptRecordException  # pyright: ignore[reportMissingTypeStubs]
from aiokafka.record.default_records import DefaultRecordBatch  # pyright: ignore[reportMissingTypeStubs]

from broker.kafka.records.compression import MAX_BATCH_BYTES, uncompress
from broker.kafka.records.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidTimestamp
from broker.kafka.records.header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from broker.kafka.records.uniform import read_uniform, read_varint

#: Bytes of the smallest record: its length, attributes, two deltas, two lengths, count of headers.
_LEAST_RECORD: Final = 7
#: Headers of one batch, all together: each of two bytes becomes an object of 64.
MAX_HEADERS: Final = 1 << 20
_LEAST_HEADER: Final = 2
_reader: Any = DefaultRecordBatch
#: So few records are read faster one by one.
_FEW: Final = 4
_offset_of, _headers_of, _key_of, _value_of, _stamp_of = map(
    attrgetter, ("offset", "headers", "key", "value", "timestamp")
)


class Columns(NamedTuple):
    """The records of a batch: a column each. `headers` is None when no record has any."""

    header: BatchHeader
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: list[Sequence[tuple[str, bytes | None]]] | None
    stamps: list[int]


def read_batch(batch: bytes | memoryview, *, max_records: int = 1 << 31, max_bytes: int = MAX_BATCH_BYTES) -> Columns:
    """The records of the one batch that these bytes are, as a producer may send it.

    Raises CorruptBatch, UnsupportedMagic, UnsupportedCodec, BatchTooLarge, InvalidBatch, InvalidTimestamp.
    """
    header = read_header(batch)
    count = _check(header)
    if count > max_records:
        raise BatchTooLarge(f"A batch has at most {max_records} records, this has {count}.")
    whole = bytes(batch)
    if header.attributes & CODEC_MASK:
        records = uncompress(header.codec, whole[HEADER_SIZE:], max_bytes)
        opening = bytearray(whole[:HEADER_SIZE])
        opening[ATTRIBUTES_AT + 1] &= ~CODEC_MASK
        whole = bytes(opening) + records
    elif len(whole) > HEADER_SIZE + max_bytes:
        raise BatchTooLarge(f"The records of a batch are more than {max_bytes} bytes.")
    if len(whole) - HEADER_SIZE < count * _LEAST_RECORD:
        raise CorruptBatch(f"A batch of {count} records has only {len(whole) - HEADER_SIZE} bytes of them.")
    uniform = None if count < _FEW else read_uniform(whole, HEADER_SIZE, count)
    if uniform is not None:
        base = header.base_timestamp
        stamps = [base + delta for delta in uniform.deltas]
        return Columns(header, uniform.keys or [None] * count, uniform.values, None, stamps)
    if len(whole) > MAX_HEADERS * _LEAST_HEADER:
        _check_headers(whole, count)
    try:
        found = [*_reader(whole)]
    except (CorruptRecordException, UnicodeDecodeError, ValueError, IndexError, OverflowError) as error:
        raise CorruptBatch(f"Records cannot be told apart: {error}") from None
    base = header.base_offset
    if len(found) != count or [*map(_offset_of, found)] != [*range(base, base + count)]:
        raise InvalidBatch("The records of a batch are not numbered one by one.")
    headers: list[Sequence[tuple[str, bytes | None]]] | None = [*map(_headers_of, found)]
    if not any(headers):
        headers = None
    return Columns(
        header,
        [*map(_key_of, found)],
        [*map(_value_of, found)],
        headers,
        [*map(_stamp_of, found)],
    )


def _check(header: BatchHeader) -> int:
    """That a producer may send a batch with this header; how many records it has."""
    count = header.records_count
    if count < 1 or header.last_offset_delta != count - 1:
        raise InvalidBatch(f"A batch of {count} records says that the last is number {header.last_offset_delta}.")
    if header.attributes & (TRANSACTIONAL | CONTROL):
        raise InvalidBatch("There are no transactions here.")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("A producer gives create times, or none.")
    return count


def _check_headers(whole: bytes, count: int) -> None:
    """That the records have no more than MAX_HEADERS, before any is made. Raises BatchTooLarge, CorruptBatch.

    Only of large batches, since others have no room for so many.
    """
    at, headers = HEADER_SIZE, 0
    try:
        for _ in range(count):
            length, at = read_varint(whole, at)
            end = at + length
            position = at + 1  # behind the attributes
            while whole[position] >= 0x80:  # the time takes up to 10 bytes
                position += 1
            _, position = read_varint(whole, position + 1)
            for _ in range(2):  # key and value
                size, position = read_varint(whole, position)
                position += max(0, size)
            headers += max(0, read_varint(whole, position)[0])
            if headers > MAX_HEADERS:
                raise BatchTooLarge(f"The records of a batch have at most {MAX_HEADERS} headers, all together.")
            if length < 0:
                raise CorruptBatch(f"A record of {length} bytes.")
            at = end
    except IndexError:
        raise CorruptBatch("Records cannot be told apart: they end too early.") from None
