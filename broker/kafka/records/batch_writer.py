"""Writes record batches for consumers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import kernel
from broker.kafka.codec import Buffer
from broker.kafka.records.compression import compress
from broker.kafka.records.header import ATTRIBUTES_AT, HEADER_SIZE, LENGTH, LENGTH_AT, LOG_OVERHEAD, Codec, sealed


class Columns(NamedTuple):
    """Records as columns of one length. `keys` None: all are null; `headers` None: there are none. Times in ms."""

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None
    stamps: Sequence[int]


def write_batch(base_offset: int, deltas: Sequence[int], records: Columns, leader_epoch: int) -> bytes:
    """Encode an uncompressed batch. `deltas`: each record's offset minus `base_offset`, ascending from 0."""
    keys, values, headers, stamps = records
    return kernel.write_kafka(base_offset, deltas, keys, values, headers, stamps, leader_epoch)


def compressed(batch: Buffer, codec: Codec) -> Buffer:
    """Compress an uncompressed batch with records. Returns it unchanged if compression makes it no smaller."""
    records = compress(codec, bytes(memoryview(batch)[HEADER_SIZE:]))
    if codec is Codec.NONE or HEADER_SIZE + len(records) >= len(batch):
        return batch
    changed = bytearray(batch[:HEADER_SIZE])
    LENGTH.pack_into(changed, LENGTH_AT, HEADER_SIZE - LOG_OVERHEAD + len(records))
    changed[ATTRIBUTES_AT + 1] |= codec
    return sealed(changed + records)
