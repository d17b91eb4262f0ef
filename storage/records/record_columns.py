"""Records with tags, nodes or metas, column by column: what can be done for all of them at once costs little each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import add

import msgspec

from storage.records.values import BinaryRecord, NewRecord, StoredBodies

#: Below so many records it is as quick to go one by one: as `storage.log.framing` has it.
LEAST = 17


class RecordColumns:
    """JSON records without a delay. `tags` and `nodes` are UTF-8, b"" = none; None instead of a column: no record has
    one. `payloads`: bytes of data and meta of each. Nothing of it may change."""

    __slots__ = ("datas", "metas", "nodes", "payloads", "tags")

    def __init__(
        self,
        datas: Sequence[msgspec.Raw],
        metas: Sequence[msgspec.Raw | None] | None,
        tags: list[bytes] | None,
        nodes: list[bytes] | None,
    ) -> None:
        self.datas = datas
        self.metas = metas
        self.tags = tags
        self.nodes = nodes
        self.payloads = array("I", map(len, datas))
        if metas is not None:
            sizes = [0 if meta is None else len(meta) for meta in metas]
            self.payloads = array("I", map(add, self.payloads, sizes))

    def __len__(self) -> int:
        return len(self.datas)

    def nodes_with(self, default: bytes) -> tuple[bytes, list[bytes] | None]:
        """The node of all records, or that of each (then the first is b""); `default` is that of those without one."""
        if self.nodes is None:
            return default, None
        nodes = [node or default for node in self.nodes]
        return (nodes[0], None) if nodes.count(nodes[0]) == len(nodes) else (b"", nodes)

    def stored(self) -> StoredBodies:
        """As they will lie in the log, but for their nodes."""
        datas, metas = self.datas, self.metas
        if metas is None:
            bodies = [b'{"data":%b}' % data for data in datas]
        else:
            bodies = [
                b'{"data":%b}' % data if meta is None else b'{"data":%b,"meta":%b}' % (data, meta)
                for data, meta in zip(datas, metas, strict=True)
            ]
        return StoredBodies(bodies, self.tags, None, self.payloads)


def columns_of(records: Sequence[NewRecord]) -> RecordColumns | None:
    """None where it takes a look at each: raw bytes or delays among them, text that is no Unicode, or a few records."""
    if len(records) < LEAST or BinaryRecord in {*map(type, records)}:
        return None
    count = len(records)
    delays, times = [record.delay_ms for record in records], [record.deliver_at for record in records]
    if delays.count(None) < count or times.count(None) < count:
        return None
    datas, metas = [record.data for record in records], [record.meta for record in records]
    tags, nodes = [record.tag for record in records], [record.node for record in records]
    try:
        tagged = [tag.encode() if tag else b"" for tag in tags] if any(tags) else None
        from_nodes = [node.encode() if node else b"" for node in nodes] if any(nodes) else None
    except UnicodeEncodeError:
        return None
    return RecordColumns(datas, metas if metas.count(None) < count else None, tagged, from_nodes)
