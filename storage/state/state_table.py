"""Small values by kind and key, as durable as a topic's settings. They belong to an engine or to a log. Pure.

Values of an engine are frames of topic_id 0, always in shard 0, with a snapshot section of their own. Values of a log
are in the log's snapshot section.

Source: docs/reference/format.md#frames, docs/reference/format.md#snapshots,
docs/guides/kafka.md#how-kafka-maps-to-topics.
"""

from __future__ import annotations

import msgspec

from storage.format import control

#: Kind of the metadata stored with a consumer's cursor, by the consumer's name. Deleted with the cursor.
OFFSET = "offset"
#: Kind of a consumer's answer that a clean stop found unconfirmed. Deleted with the cursor.
ATTEMPT = "attempt"
#: Kind of the codec that producers of a log used last, by its name; its only key is PRODUCER.
CODEC = "codec"
PRODUCER = "producer"


class StateTable:
    """Values by kind and key. `len` counts them."""

    __slots__ = ("_kinds", "_size")

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, bytes]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, kind: str, key: str) -> bytes | None:
        """The value, or None when there is none."""
        return self._kinds.get(kind, {}).get(key)

    def items(self, kind: str) -> list[tuple[str, bytes]]:
        """(key, value) of a kind, ordered by key."""
        return sorted(self._kinds.get(kind, {}).items())

    def apply(self, value: control.State) -> int:
        """Apply a committed frame; returns the change in the number of values."""
        before = self._size
        values = self._kinds.setdefault(value.kind, {})
        self._size -= len(values)
        if value.value is None:
            values.pop(value.key, None)
        else:
            values[value.key] = value.value
        self._size += len(values)
        if not values:
            del self._kinds[value.kind]
        return self._size - before

    def capture(self) -> list[tuple[str, str, bytes]]:
        """All values, ordered by kind and key."""
        return [(kind, key, value) for kind in sorted(self._kinds) for key, value in self.items(kind)]

    @classmethod
    def of(cls, entries: list[tuple[str, str, bytes]]) -> StateTable:
        """The table restored from a snapshot."""
        table = cls()
        for kind, key, value in entries:
            table.apply(control.State(kind=kind, key=key, value=value))
        return table


class OwnStates:
    """The values of an engine: the table, and the position in shard 0 up to which it knows all frames."""

    __slots__ = ("applied_lsn", "section", "table")

    def __init__(self) -> None:
        self.table = StateTable()
        self.applied_lsn = 0
        #: The last encoded snapshot section; None = changed since.
        self.section: bytes | None = None


class StatesSection(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's values in a snapshot: everything that frames of topic_id 0 in shard 0 below `as_of` say."""

    as_of: tuple[int, int]
    values: list[tuple[str, str, bytes]]
