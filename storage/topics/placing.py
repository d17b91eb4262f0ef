"""Decides in which cell of a set a new topic is created.

A topic is created in the home cell of its name, unless that cell has an entry that says otherwise (`ENTRY_KIND`). The
destination of a router and a dead letter topic get one: they are created beside their source.

    the cell that wants it     home cell                   the cell that wants it
    topic_decide           →   entry, open, synced
                               topic_entry             →   entry of its own, synced
                               entry, synced
    topic made             ←   answers

Once there is an open entry, no other cell creates a topic of that name. An open entry is sent again until it is
answered. An entry stays when its topic is deleted, so that a new topic of that name is created in the same cell.

Source: docs/cells.md#names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from storage.errors import StorageError
from storage.platform import CALL_S
from storage.topics.named_locks import NamedLocks

if TYPE_CHECKING:
    from storage.log import Logs
    from storage.platform import Method
    from storage.topics.states import States

#: The kind of the entries. The key is the topic's name, the value the cell's number in decimal.
ENTRY_KIND: Final = "cell_of_topic"
#: The end of the value in the home cell while the other cell may not have its own entry yet.
OPEN_ENTRY: Final = b"?"


def entry_cell(value: bytes) -> int:
    """The cell that an entry names."""
    return int(value.removesuffix(OPEN_ENTRY))


_log = structlog.get_logger("storage")

#: How often open entries are sent again.
TELL_EVERY_S: Final = 10.0


class Placing:
    """The entries of one cell. Belongs to the event loop."""

    def __init__(self, logs: Logs, states: States) -> None:
        self._logs = logs
        self._states = states
        self._locks = NamedLocks()
        #: Entries that are being written, by the topic's name.
        self._coming: dict[str, int] = {}
        #: Topics whose entries are open.
        self._open: set[str] = set()

    @property
    def methods(self) -> dict[str, Method]:
        """The methods that other cells call, by name. Each may be called twice, late, or in vain."""
        return {"topic_decide": self._decide, "topic_entry": self._entry, "topic_where": self._where}

    def start(self) -> None:
        """After recovery."""
        if self._logs.neighbours is None:
            return
        self._open = {name for name, value in self._states.items(ENTRY_KIND) if value.endswith(OPEN_ENTRY)}
        self._logs.runtime.supervisor.start("entries", TELL_EVERY_S, self._send_open)

    def owner(self, name: str) -> int:
        """The cell that has the topic of that name, or would have it. This cell knows that for its own topics and for
        names whose home it is. For any other name it returns the home cell."""
        neighbours = self._logs.neighbours
        assert neighbours is not None
        if name in self._logs.catalog.topics:
            return neighbours.me
        entry = self._states.get(ENTRY_KIND, name)
        if entry is not None:
            return entry_cell(entry)
        coming = self._coming.get(name)
        return neighbours.home(name) if coming is None else coming

    async def here(self, name: str) -> int:
        """The cell that has the topic of that name or, if there is none, where it must be created: here, unless its
        home cell has decided otherwise, or there is no room for an entry. Raises StorageError."""
        neighbours = self._logs.neighbours
        if neighbours is None:
            return 0
        owner, home = self.owner(name), neighbours.home(name)
        if neighbours.me in (owner, home):
            return owner
        if not self._has_room():
            return home
        return await neighbours.call(home, "topic_decide", [name, neighbours.me])

    async def find(self, name: str, *, timeout_s: float = CALL_S) -> tuple[int, bool]:
        """(the cell that has, or would have, the topic of that name; whether there is one). `timeout_s`: of each of two
        calls. Raises StorageError."""
        neighbours = self._logs.neighbours
        assert neighbours is not None
        if name in self._logs.catalog.topics:
            return await self._where(name)
        asked = neighbours.home(name)
        owner, there = await self._ask(asked, name, timeout_s)
        if owner != asked:
            _, there = await self._ask(owner, name, timeout_s)
        return owner, there

    async def _ask(self, cell: int, name: str, timeout_s: float) -> tuple[int, bool]:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        if cell == neighbours.me:
            return await self._where(name)
        owner, there = await neighbours.call(cell, "topic_where", name, timeout_s=timeout_s)
        return owner, there

    def _has_room(self) -> bool:
        return len(self._logs.catalog.states.table) < self._logs.options.max_states

    async def _where(self, argument: Any) -> tuple[int, bool]:
        """(owner, whether the topic is here)."""
        name = argument
        self._logs.check_open()
        topic = self._logs.catalog.topics.get(name)
        return self.owner(name), topic is not None and not topic.provisional

    async def _decide(self, argument: Any) -> int:
        """At home: decide that the topic is made in that cell, unless there is one, or another decision."""
        name, cell = argument
        self._logs.check_open()
        neighbours = self._logs.neighbours
        assert neighbours is not None
        async with self._locks.hold(name):
            if name in self._logs.catalog.topics:
                return neighbours.me
            entry = self._states.get(ENTRY_KIND, name)
            if entry is None:
                if not self._has_room():
                    return neighbours.me
                self._coming[name] = cell
                try:
                    await self._states.put(ENTRY_KIND, name, b"%d%s" % (cell, OPEN_ENTRY))
                finally:
                    del self._coming[name]
                self._open.add(name)
            elif not entry.endswith(OPEN_ENTRY):
                return entry_cell(entry)
            else:
                cell = entry_cell(entry)
            await self._tell(name, cell)
            return cell

    async def _tell(self, name: str, cell: int) -> None:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        await neighbours.call(cell, "topic_entry", name)
        await self._states.put(ENTRY_KIND, name, b"%d" % cell)
        self._open.discard(name)

    async def _entry(self, argument: Any) -> None:
        """In the other cell: from now on, topics of that name are created here, forever."""
        name = argument
        self._logs.check_open()
        neighbours = self._logs.neighbours
        assert neighbours is not None
        if self._states.get(ENTRY_KIND, name) is None:
            await self._states.put(ENTRY_KIND, name, b"%d" % neighbours.me)

    async def _send_open(self) -> None:
        for name in [*self._open]:
            async with self._locks.hold(name):
                entry = self._states.get(ENTRY_KIND, name)
                if entry is None or not entry.endswith(OPEN_ENTRY):
                    self._open.discard(name)
                elif name not in self._logs.catalog.topics:  # otherwise the entry became durable in spite of an error
                    try:
                        await self._tell(name, entry_cell(entry))
                    except StorageError as error:
                        _log.info("entry_not_told", topic=name, error=str(error))
