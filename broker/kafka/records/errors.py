"""The errors of record batches.

BatchError
  CorruptBatch         the bytes are not a batch, or fail their checksum
  UnsupportedMagic     a message format older than Kafka 0.11
  UnsupportedCodec     an unknown compression codec
  BatchTooLarge        too many bytes after decompression, or too many records
  InvalidBatch         an intact batch that a producer must not send
  KeyMissing           a record without a key, for a topic with cleanup.policy=compact
  InvalidTimestamp     the attributes claim log append times, which only a broker sets
"""

from __future__ import annotations

from collections.abc import Sequence


class BatchError(Exception):
    """A record batch is refused."""


class CorruptBatch(BatchError):
    """The bytes are not a record batch, or fail their checksum."""


class UnsupportedMagic(BatchError):
    """A message format older than Kafka 0.11."""


class UnsupportedCodec(BatchError):
    """The records are compressed with an unknown codec."""


class BatchTooLarge(BatchError):
    """The batch has too many records, or too many bytes after decompression."""


class InvalidBatch(BatchError):
    """A batch that a producer must not send."""


class KeyMissing(BatchError):
    """Records without a key, for a compacted topic. `at`: their indexes in the batch, from 0."""

    def __init__(self, message: str, at: Sequence[int]) -> None:
        super().__init__(message)
        self.at = at


class InvalidTimestamp(BatchError):
    """A producer claims log append times."""
