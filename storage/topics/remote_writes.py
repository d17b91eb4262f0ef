"""Writes to partitions in other cells: the cell of the topic forwards them, and the partition's cell executes them.

    spread_append  writes records to a partition
    spread_knows   whether a partition knows an idempotency key

A write without an answer is not repeated here: the caller learns that its outcome is unknown.

Source: docs/cells.md#partitions-in-several-cells.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from storage.platform import Method
from storage.records import Appended, BinaryRecord, NewRecord, PlainBinary, PlainRecords, StoredBodies
from storage.state import Topic

if TYPE_CHECKING:
    from storage.log import Logs

APPEND: Final = "spread_append"
KNOWS: Final = "spread_knows"

Contents = list[NewRecord] | PlainRecords | StoredBodies

_PLAIN, _BINARY, _EACH, _STORED = range(4)


class Options(msgspec.Struct, array_like=True):
    """The options of a write, as `Engine.append` describes them."""

    node: str | None = None
    idempotency_key: str | None = None
    idempotency_strict: bool = False
    expected_seq: int | None = None


class RemoteWrites:
    """Both sides of these calls. Belongs to the event loop."""

    def __init__(self, logs: Logs, append: Callable[[str, Contents, Options], Awaitable[Appended]]) -> None:
        """`append`: writes to a partition of this cell, by its address."""
        self._logs = logs
        self._append = append

    @property
    def methods(self) -> dict[str, Method]:
        """By name."""
        return {APPEND: self._serve_append, KNOWS: self._serve_knows}

    async def append(self, cell: int, address: str, records: Contents, options: Options) -> Appended:
        """Write to a partition of another cell. Raises the error that the cell answers, and Unavailable."""
        argument = [address, _to_wire(records), msgspec.to_builtins(options)]
        return msgspec.convert(await self._call(cell, APPEND, argument), Appended)

    async def knows(self, cell: int, address: str, digest: bytes) -> bool:
        """Whether a partition of another cell has a write with this key, committed or in flight. Raises Unavailable."""
        return bool(await self._call(cell, KNOWS, [address, digest]))

    def knows_here(self, topic: Topic, digest: bytes) -> bool:
        """`knows` for a partition in this cell."""
        keys = topic.log.keys
        if (topic.topic_id, digest) in self._logs.pending_keys:
            return True
        window_ms = topic.config.idempotency_window_ms
        return keys is not None and keys.find(digest, self._logs.now_ms(), window_ms) is not None

    async def _call(self, cell: int, method: str, argument: Any) -> Any:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        return await neighbours.call(cell, method, argument)

    async def _serve_append(self, argument: Any) -> Any:
        address, wire, options = argument
        done = await self._append(address, _from_wire(wire), msgspec.convert(options, Options))
        return msgspec.to_builtins(done)

    async def _serve_knows(self, argument: Any) -> bool:
        address, digest = argument
        self._logs.check_open()
        return self.knows_here(self._logs.topic(address), digest)


def _to_wire(records: Contents) -> list[Any]:
    if isinstance(records, StoredBodies):
        return [_STORED, records.bodies, records.tags, records.binary, [*records.payloads]]
    if isinstance(records, PlainRecords):
        kind = _BINARY if isinstance(records, PlainBinary) else _PLAIN
        return [kind, [bytes(each) for each in records]]
    return [
        _EACH,
        [
            (
                isinstance(each, BinaryRecord),
                bytes(each.data),
                None if each.meta is None else bytes(each.meta),
                each.tag,
                each.node,
                each.delay_ms,
                each.deliver_at,
            )
            for each in records
        ],
    ]


def _from_wire(wire: list[Any]) -> Contents:
    kind, *rest = wire
    if kind == _STORED:
        bodies, tags, binary, payloads = rest
        return StoredBodies(bodies, tags, binary, array("I", payloads))
    if kind in (_PLAIN, _BINARY):
        return (PlainBinary if kind == _BINARY else PlainRecords)(map(msgspec.Raw, rest[0]))
    return [_record(*each) for each in rest[0]]


def _record(
    is_binary: bool,
    data: bytes,
    meta: bytes | None,
    tag: str | None,
    node: str | None,
    delay_ms: int | None,
    deliver_at: int | None,
) -> NewRecord:
    if is_binary:
        return BinaryRecord(data, tag=tag, node=node)
    return NewRecord(
        data=msgspec.Raw(data),
        meta=None if meta is None else msgspec.Raw(meta),
        tag=tag,
        node=node,
        delay_ms=delay_ms,
        deliver_at=deliver_at,
    )
