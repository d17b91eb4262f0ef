"""Writes record batches for those who fetch. Pure. The bytes of each record are written by compiled code."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder  # pyright: ignore[reportMissingTypeStubs]

_builder: Any = DefaultRecordBatchBuilder
_EPOCH: Final = Struct(">i")
_EPOCH_AT: Final = 12
#: The builder refuses what makes a batch larger than it is told; what goes in has been bounded before.
_ANY_SIZE: Final = (1 << 31) - 1


def write_batch(
    base_offset: int,
    records: Iterable[tuple[int, tuple[bytes | None, bytes | None, Any, int]]],
    leader_epoch: int,
) -> bytearray:
    """A batch, uncompressed, of records: how far behind `base_offset` each is, ascending, and its key, value, headers
    and time in ms. At least one, the first at 0."""
    builder = _builder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=_ANY_SIZE,
    )
    append = builder.append
    for delta, (key, value, headers, stamp) in records:
        append(delta, stamp, key, value, headers if headers.__class__ is list else [*headers])
    batch: bytearray = builder.build()
    rebase(batch, base_offset, leader_epoch)
    return batch


def rebase(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Say where a batch stands. Its checksum leaves this out."""
    batch[:8] = base_offset.to_bytes(8, "big", signed=True)
    _EPOCH.pack_into(batch, _EPOCH_AT, leader_epoch)
