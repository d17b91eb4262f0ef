"""Small values that are to be as durable as a topic's settings, by kind and key: of an engine, or of a log. Pure.

Those of no log are frames of topic_id 0, always in shard 0, with a snapshot section of their own; those of a log lie
in its section. Source: storage.md §2, §5; kafka.md §1.
"""

from __future__ import annotations

import msgspec

from storage.format import control

#: Kind of what is kept with the cursor of a consumer, by its name, in the consumer's log. It goes with the cursor.
OFFSET = "offset"
#: Kind of the answer of a consumer that a clean stop found unconfirmed. It goes with the cursor as well.
ATTEMPT = "attempt"
#: Kind of the codec that producers of a log have compressed with last, by its name; its one key is PRODUCER.
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
        """None: there is none."""
        return self._kinds.get(kind, {}).get(key)

    def items(self, kind: str) -> list[tuple[str, bytes]]:
        """(key, value) of a kind, by key."""
        return sorted(self._kinds.get(kind, {}).items())

    def apply(self, value: control.State) -> int:
        """Do what a committed frame says; by how many there are more now."""
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
        """All of them, by kind and key."""
        return [(kind, key, value) for kind in sorted(self._kinds) for key, value in self.items(kind)]

    @classmethod
    def of(cls, rows: list[tuple[str, str, bytes]]) -> StateTable:
        """The table of which this was captured."""
        table = cls()
        for kind, key, value in rows:
            table.apply(control.State(kind=kind, key=key, value=value))
        return table


class OwnStates:
    """Those of no log: the table, and up to which place of shard 0 it knows all frames."""

    __slots__ = ("applied_place", "section", "table")

    def __init__(self) -> None:
        self.table = StateTable()
        self.applied_place = 0
        #: The last encoded snapshot section; None = changed since.
        self.section: bytes | None = None


class StatesSection(msgspec.Struct, frozen=True, kw_only=True):
    """Those of no log in a snapshot. Everything that frames of topic_id 0 in shard 0 below `as_of` say is in here."""

    as_of: tuple[int, int]
    values: list[tuple[str, str, bytes]]
