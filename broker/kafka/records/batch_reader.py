"""Reads the records of a produced batch into columns. Pure."""

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
#: The most headers in a batch: a header of 2 bytes becomes an object of 64 bytes.
MAX_HEADERS: Final = 1 << 20
_TIME_END: Final = 1 << 63


class Columns(NamedTuple):
    """The records of a batch as columns of one length. `headers` None: no record has headers."""

    header: BatchHeader
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None
    stamps: list[int]


def read_batch(batch: bytes | memoryview, *, max_records: int = 1 << 31, max_bytes: int = MAX_BATCH_BYTES) -> Columns:
    """Read a batch, and check that a producer may send it. `batch`: exactly one batch.

    Raises CorruptBatch, UnsupportedMagic, UnsupportedCodec, BatchTooLarge, InvalidBatch, InvalidTimestamp.
    """
    header = read_header(batch)
    count = _check(header)
    if count > max_records:
        raise BatchTooLarge(f"A batch has at most {max_records} records; this one has {count}.")
    records = bytes(memoryview(batch)[HEADER_SIZE:])
    if header.codec:
        records = uncompress(header.codec, records, max_bytes)
    elif len(records) > max_bytes:
        raise BatchTooLarge(f"The records of a batch exceed {max_bytes} bytes.")
    if len(records) < count * _LEAST_RECORD:
        raise CorruptBatch(f"A batch claims {count} records, but contains only {len(records)} bytes.")
    try:
        found = kernel.read_kafka(records, count, max_headers=MAX_HEADERS)
    except OverflowError:
        raise BatchTooLarge(f"The records of a batch have more than {MAX_HEADERS} headers in total.") from None
    except ValueError as error:
        raise CorruptBatch(f"The records of a batch are malformed: {error}") from None
    if found.offset_deltas != array("q", range(count)):
        raise InvalidBatch("The offsets of the records in a batch are not consecutive.")
    stamps = [header.base_timestamp + delta for delta in found.time_deltas]
    if min(stamps) < -_TIME_END or max(stamps) >= _TIME_END:
        raise CorruptBatch("The time of a record does not fit 64 bits.")
    return Columns(header, found.keys or [None] * count, found.values, found.headers, stamps)


def _check(header: BatchHeader) -> int:
    """Check that a producer may send a batch with this header. Returns the number of records."""
    count = header.records_count
    if count < 1 or header.last_offset_delta != count - 1:
        raise InvalidBatch(f"A batch of {count} records has a last offset delta of {header.last_offset_delta}.")
    if header.attributes & (TRANSACTIONAL | CONTROL):
        raise InvalidBatch("This broker has no transactions.")
    if header.attributes & LOG_APPEND_TIME:
        raise InvalidTimestamp("A producer must send create times, not log append times.")
    return count
