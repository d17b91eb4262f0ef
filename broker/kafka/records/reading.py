"""Reads the records of a produced batch, as columns. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import kernel
from broker.kafka.records.compression import MAX_BATCH_BYTES, uncompress
from broker.kafka.records.errors import BatchTooLarge, CorruptBatch, InvalidBatch, InvalidTimestamp
from broker.kafka.records.header import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)

#: Bytes of the smallest record: its length, attributes, two deltas, two lengths, count of headers.
_LEAST_RECORD: Final = 7
#: Headers of one batch, all together: each of two bytes becomes an object of 64.
MAX_HEADERS: Final = 1 << 20
_TIME_END: Final = 1 << 63


class Columns(NamedTuple):
    """The records of a batch: a column each. `headers` is None when no record has any."""

    header: BatchHeader
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None
    stamps: list[int]


def read_batch(batch: bytes | memoryview, *, max_records: int = 1 << 31, max_bytes: int = MAX_BATCH_BYTES) -> Columns:
    """The records of the one batch that these bytes are, as a producer may send it.

    Raises CorruptBatch, UnsupportedMagic, UnsupportedCodec, BatchTooLarge, InvalidBatch, InvalidTimestamp.
    """
    header = read_header(batch)
    count = _check(header)
    if count > max_records:
        raise BatchTooLarge(f"A batch has at most {max_records} records, this has {count}.")
    records = bytes(memoryview(batch)[HEADER_SIZE:])
    if header.codec:
        records = uncompress(header.codec, records, max_bytes)
    elif len(records) > max_bytes:
        raise BatchTooLarge(f"The records of a batch are more than {max_bytes} bytes.")
    if len(records) < count * _LEAST_RECORD:
        raise CorruptBatch(f"A batch of {count} records has only {len(records)} bytes of them.")
    try:
        found = kernel.read_kafka(records, count, max_headers=MAX_HEADERS)
    except OverflowError:
        raise BatchTooLarge(f"The records of a batch have at most {MAX_HEADERS} headers, all together.") from None
    except ValueError as error:
        raise CorruptBatch(f"Records cannot be told apart: {error}") from None
    if found.offset_deltas != array("q", range(count)):
        raise InvalidBatch("The records of a batch are not numbered one by one.")
    stamps = [header.base_timestamp + delta for delta in found.time_deltas]
    if min(stamps) < -_TIME_END or max(stamps) >= _TIME_END:
        raise CorruptBatch("The time of a record has more than 64 bits.")
    return Columns(header, found.keys or [None] * count, found.values, found.headers, stamps)


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
