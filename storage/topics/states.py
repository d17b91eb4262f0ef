"""Values that other parts keep in the log, durably (see `storage.state.state_table`).

Source: docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from storage.errors import InvalidRequest, LimitReached
from storage.format import control
from storage.log import encode_controls

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.state import Topic

#: Longest kind and key, in bytes of UTF-8.
MAX_NAME_BYTES = 1024


class States:
    """The values that belong to no log, and how the values of logs are written. All methods belong to the loop."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs

    def get(self, kind: str, key: str) -> bytes | None:
        """The value that is durable; None: there is none."""
        return self._logs.catalog.states.table.get(kind, key)

    def items(self, kind: str) -> list[tuple[str, bytes]]:
        """(key, value) of a kind, by key."""
        return self._logs.catalog.states.table.items(kind)

    async def put(self, kind: str, key: str, value: bytes, *, frees: bool = False) -> None:
        """Durable on return. The last value that was put is valid, even while others wait. A cancelled call continues.

        `frees`: the value is a step of a deletion, so it is written on a full disk, too.

        Raises InvalidRequest, LimitReached (detail.limit max_states), Unavailable: only after StorageFailed it is
        unknown which value the next start finds.
        """
        logs = self._logs
        logs.check_open()
        check_state(kind, key, value, logs.options.max_state_bytes)
        table, limit = logs.catalog.states.table, logs.options.max_states
        if table.get(kind, key) is None and len(table) >= limit:
            raise LimitReached(f"There are {limit} values, which is the limit.", limit="max_states", max=limit)
        if not frees:
            logs.shards[0].refuse_when_full()
        await self._write(control.State(kind=kind, key=key, value=value), frees=frees)

    async def delete(self, kind: str, key: str) -> None:
        """Durable on return. Writes even if there is no value: one may be in flight. A cancelled call continues."""
        self._logs.check_open()
        check_state(kind, key, b"", 0)
        await self._write(control.State(kind=kind, key=key), frees=True)

    async def put_of_log(self, topic: Topic, kind: str, key: str, value: bytes) -> None:
        """A value of a log, deleted with the log. Applied on return, and durable with the next sync.

        Raises InvalidRequest, Unavailable.
        """
        logs, log = self._logs, topic.log
        logs.check_open()
        check_state(kind, key, value, logs.options.max_state_bytes)
        shard = logs.shards[log.shard]
        shard.refuse_when_full()
        encoded = encode_controls([control.State(kind=kind, key=key, value=value)], log.topic_id, logs.now_ms())
        if not shard.has_room(1, len(encoded.payload), internal=True):
            await shard.wait_room(1, len(encoded.payload))
        await asyncio.shield(logs.submit_unit(shard, log.topic_id, encoded, needs_sync=False))

    async def _write(self, value: control.State, *, frees: bool) -> None:
        logs = self._logs
        encoded = encode_controls([value], 0, logs.now_ms())
        shard = logs.shards[0]
        if not shard.has_room(1, len(encoded.payload), internal=True):
            await shard.wait_room(1, len(encoded.payload))
        await asyncio.shield(logs.submit_unit(shard, 0, encoded, frees=frees))


def check_state(kind: str, key: str, value: bytes, max_bytes: int) -> None:
    """Raises InvalidRequest."""
    for name, text in (("kind", kind), ("key", key)):
        if not 0 < len(text.encode()) <= MAX_NAME_BYTES:
            raise InvalidRequest(f"{name} has 1 to {MAX_NAME_BYTES} bytes.", field=name)
    if len(value) > max_bytes:
        raise InvalidRequest(f"A value of {kind} has at most {max_bytes} bytes, this has {len(value)}.", field="value")
