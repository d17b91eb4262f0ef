"""Record batches of the Kafka protocol: pure codecs, and compression."""

from broker.kafka.records.batch_writer import Columns, compressed, write_batch
from broker.kafka.records.compression import MAX_BATCH_BYTES
from broker.kafka.records.errors import (
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidTimestamp,
    KeyMissing,
    UnsupportedCodec,
    UnsupportedMagic,
)
from broker.kafka.records.header import CODEC_MASK, HEADER_SIZE, NO_PRODUCER, BatchHeader, Codec, empty_batch

__all__ = [
    "CODEC_MASK",
    "HEADER_SIZE",
    "MAX_BATCH_BYTES",
    "NO_PRODUCER",
    "BatchError",
    "BatchHeader",
    "BatchTooLarge",
    "Codec",
    "Columns",
    "CorruptBatch",
    "InvalidTimestamp",
    "KeyMissing",
    "UnsupportedCodec",
    "UnsupportedMagic",
    "compressed",
    "empty_batch",
    "write_batch",
]
