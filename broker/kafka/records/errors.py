"""What can be wrong with a record batch.

BatchError
  CorruptBatch         the bytes are not what was sent, or were never a batch
  UnsupportedMagic     a message set of before Kafka 0.11
  UnsupportedCodec     compressed in a way that is not known here
  BatchTooLarge        more bytes, once uncompressed, or more records than are taken
  InvalidBatch         a sound batch that a producer must not send
  KeyMissing           a record without a key, for a topic of cleanup.policy=compact
  InvalidTimestamp     a producer must not say that times are those of the log
"""

from __future__ import annotations

from collections.abc import Sequence


class BatchError(Exception):
    """A record batch cannot be taken."""


class CorruptBatch(BatchError):
    """The bytes are not those of a record batch, or fail their checksum."""


class UnsupportedMagic(BatchError):
    """The format of before Kafka 0.11 is not taken: the client has to be told, or to ask, which versions are."""


class UnsupportedCodec(BatchError):
    """The records are compressed in a way that is not known here."""


class BatchTooLarge(BatchError):
    """Uncompressed, the records are more than are taken at once."""


class InvalidBatch(BatchError):
    """A batch that a producer must not send."""


class KeyMissing(BatchError):
    """Records without a key, for a topic that is compacted by keys: `at` says which of the batch, from 0."""

    def __init__(self, sentence: str, at: Sequence[int]) -> None:
        super().__init__(sentence)
        self.at = at


class InvalidTimestamp(BatchError):
    """A producer gives create times, or none."""
