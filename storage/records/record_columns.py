"""Records of a write as columns, which the encoder takes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import add

import msgspec

from storage.records.values import BinaryRecord, NewRecord


class RecordColumns:
    """`tags` and `nodes` are UTF-8, b"" = none; None instead of a column: no record has one. `bodies`: a byte per
    record, 1 for raw bytes; None: all are JSON. `payloads`: bytes of data and meta per record. Never changed."""

    __slots__ = ("bodies", "datas", "delays", "deliver_ats", "metas", "nodes", "payloads", "tags")

    def __init__(self, records: Sequence[NewRecord]) -> None:
        """Raises UnicodeEncodeError for a tag or node that is not valid Unicode."""
        datas, metas = [record.data for record in records], [record.meta for record in records]
        tags, nodes = [record.tag for record in records], [record.node for record in records]
        delays, times = [record.delay_ms for record in records], [record.deliver_at for record in records]
        self.datas: Sequence[msgspec.Raw] = datas
        self.metas: Sequence[msgspec.Raw | None] | None = metas if any_given(metas) else None
        self.tags = [tag.encode() if tag else b"" for tag in tags] if any(tags) else None
        self.nodes = [node.encode() if node else b"" for node in nodes] if any(nodes) else None
        self.delays: Sequence[int | None] | None = delays if any_given(delays) else None
        self.deliver_ats: Sequence[int | None] | None = times if any_given(times) else None
        binary = bytes([isinstance(record, BinaryRecord) for record in records])
        self.bodies = binary if any(binary) else None
        self.payloads = array("I", map(len, datas))
        if self.metas is not None:
            self.payloads = array("I", map(add, self.payloads, [0 if meta is None else len(meta) for meta in metas]))

    def __len__(self) -> int:
        return len(self.datas)

    def due(self, now_ms: int) -> list[int | None] | None:
        """For each record, the time before which it must not be delivered, ms since the epoch; None: at once."""
        if self.delays is None:
            return None if self.deliver_ats is None else [*self.deliver_ats]
        times = self.deliver_ats or [None] * len(self.delays)
        return [at if delay is None else now_ms + delay for at, delay in zip(times, self.delays, strict=True)]


def any_given(column: Sequence[object]) -> bool:
    """Whether any value of the column is not None."""
    return column.count(None) < len(column)


def columns_of(records: Sequence[NewRecord]) -> RecordColumns | None:
    """The columns; None if a tag or node is not valid Unicode."""
    try:
        return RecordColumns(records)
    except UnicodeEncodeError:
        return None
