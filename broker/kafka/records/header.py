"""The header of a record batch, format v2 (magic 2). Big-endian. Pure.

    off  size  field
    0    8     base_offset i64
    8    4     batch_length i32, bytes of the batch after this field: 49 + records
    12   4     partition_leader_epoch i32
    16   1     magic i8, here 2
    17   4     crc u32, CRC-32C over bytes [21 .. end)
    21   2     attributes i16: bits 0-2 codec, bit 3 log append time, bit 4 transactional, bit 5 control
    23   4     last_offset_delta i32
    27   8     base_timestamp i64, ms since the epoch
    35   8     max_timestamp i64
    43   8     producer_id i64, -1 = none
    51   2     producer_epoch i16
    53   4     base_sequence i32
    57   4     records_count i32
    61   …     records, compressed as a whole if there is a codec

The checksum does not cover base_offset and partition_leader_epoch: a broker sets them without computing it again. A
batch without records has a range of offsets, like those that Kafka's compaction leaves: clients skip the range. Older
message formats have their magic at the same offset; they are refused.

Source: docs/guides/kafka.md#producing-and-consuming, Kafka's RecordBatch.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Final, NamedTuple

import kernel
from broker.kafka.records.errors import CorruptBatch, UnsupportedMagic


class Codec(enum.IntEnum):
    """The number of the codec in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
BASE_OFFSET: Final = Struct(">q")
LENGTH: Final = Struct(">i")
LENGTH_AT: Final = 8
CRC: Final = Struct(">I")
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
#: Bytes of base_offset and batch_length, which batch_length does not count.
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2
_MAGIC_AT: Final = 16

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1


class BatchHeader(NamedTuple):
    """The fields, in the order of the bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def read_header(batch: bytes | memoryview) -> BatchHeader:
    """Decode the header of a batch and verify the checksum. `batch`: exactly one batch.

    Raises UnsupportedMagic, CorruptBatch. The records are not examined otherwise.
    """
    size = len(batch)
    if size <= _MAGIC_AT:
        raise CorruptBatch(f"{size} bytes are too few for a record batch.")
    magic = batch[_MAGIC_AT]
    if magic < MAGIC:
        raise UnsupportedMagic(f"Message format {magic} is not supported; use format 2.")
    if magic > MAGIC:
        raise CorruptBatch(f"Message format {magic} does not exist.")
    if size < HEADER_SIZE:
        raise CorruptBatch(f"{size} bytes are too few for a record batch.")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.batch_length != size - LOG_OVERHEAD:
        raise CorruptBatch(
            f"A batch has {size - LOG_OVERHEAD} bytes after its length field, which says {header.batch_length}."
        )
    crc = kernel.crc32c(batch[ATTRIBUTES_AT:])
    if crc != header.crc:
        raise CorruptBatch(f"A batch fails its checksum: expected {header.crc:#010x}, found {crc:#010x}.")
    return header


def empty_batch(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """A batch without records for this range of offsets, both inclusive."""
    fixed = HEADER.pack(
        first_offset,
        HEADER_SIZE - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        0,
        last_offset - first_offset,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        NO_PRODUCER,
        -1,
        -1,
        0,
    )
    return sealed(bytearray(fixed))


def sealed(batch: bytearray) -> bytes:
    """Set the checksum."""
    CRC.pack_into(batch, CRC_AT, kernel.crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)
