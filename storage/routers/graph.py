"""The graph of all routers of a set of cells. Cell 0 has it, and changes it.

A router runs in the cell of its destination. Its entry here, a durable value, says which cell that is. Before another
cell changes a router on an order from here, the entry says so:

    make, change    entry "making", synced   →   router_make, synced     →   entry "made"
    delete          entry "leaving", synced  →   router_unmake, synced   →   no entry

A crash of either cell, or a lost answer, may leave an entry open. It is closed by asking: a router that exists keeps
its entry, and one that does not exist has none. A deletion is completed instead. Nothing is concluded from a missing
answer.

A router may end without an order, when its source or destination is deleted. Its cell reports that, and from time to
time all cells are asked which routers they have. Routers without an entry, because they are older than the set, get one
in this way.

Source: docs/cells.md#routers-and-dead-letters-between-cells.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

import msgspec
import structlog

from storage.errors import (
    LimitReached,
    NotReady,
    RouterCycle,
    RouterNotFound,
    StorageError,
    TopicNotFound,
)
from storage.log import Logs
from storage.platform import CALL_S, Era, Method
from storage.routers.admin import check_cycle, check_definition, check_ends, check_room, check_router_name
from storage.routers.orders import GRAPH_CELL, PAGE, Orders
from storage.state.routers import Definition, RouterState
from storage.topics import NamedLocks, Placing, States

_log = structlog.get_logger("storage")

#: The kind of the entries. The key is the router's name.
ENTRY_KIND: Final = "router"
#: How often open entries are closed, and how often cells are asked for all their routers.
CLOSE_EVERY_S: Final = 1.0
ASK_EVERY_S: Final = 30.0
#: How often an order follows the destination to another cell.
MAX_FOLLOWED: Final = 3
#: How many entries are written together.
ROUND: Final = 500


class Phase(enum.StrEnum):
    """What is known of the router."""

    MADE = "made"
    MAKING = "making"
    LEAVING = "leaving"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A router of the set. `router_id` is 0 until it is known."""

    phase: Phase
    cell: int
    definition: Definition
    router_id: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class Graph:
    """The entries, and the operations on routers of the set. Used only on the event loop of cell 0."""

    def __init__(self, logs: Logs, states: States, placing: Placing, orders: Orders) -> None:
        self._logs = logs
        self._states = states
        self._placing = placing
        self._orders = orders
        self._era = Era(logs.clock.monotonic_ns)
        self._locks = NamedLocks()
        self._entries: dict[str, Entry] = {}
        #: Names of routers by their source and destination topics.
        self._by_topic: dict[str, set[str]] = {}
        #: Names whose entries are open.
        self._open: set[str] = set()
        #: Routers that are reported to have changed without an order.
        self._reported: set[str] = set()
        #: Whether the routers of this cell have entries. Before that there are no operations.
        self._known = asyncio.Event()
        self._ask_at_ms = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def methods(self) -> dict[str, Method]:
        """The methods that other cells call. Each may be called twice or late."""
        return {
            "graph_report": self._report,
            "graph_out_of": self._out_of,
            "graph_ends": self._ends,
            "graph_topic_gone": self._topic_gone,
        }

    @property
    def entries(self) -> Mapping[str, Entry]:
        """By the router's name."""
        return self._entries

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """After recovery."""
        for name, value in self._states.items(ENTRY_KIND):
            self._set(name, _decode(value))
        self._task = self._logs.runtime.loop.create_task(self._adopt_own(), name="storage-router-graph")
        self._logs.runtime.supervisor.start("router-graph", CLOSE_EVERY_S, self._tick)

    async def stop(self) -> None:
        """On return, no adoption is in progress."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _adopt_own(self) -> None:
        """Give entries to the routers of this engine that have none."""
        routes = self._logs.catalog.routes
        while True:
            missing = [router for name, router in routes.by_name.items() if name not in self._entries]
            if not missing:
                break
            writes = (
                self._record(
                    router.name,
                    Entry(phase=Phase.MADE, cell=GRAPH_CELL, definition=router.definition, router_id=router.router_id),
                )
                for router in missing[:ROUND]
            )
            for outcome in await asyncio.gather(*writes, return_exceptions=True):
                if isinstance(outcome, LimitReached):
                    _log.error("router_not_in_graph", error=str(outcome))
                    self._known.set()
                    return
                if isinstance(outcome, StorageError):
                    await self._logs.clock.sleep(CLOSE_EVERY_S)
        self._known.set()

    async def _tick(self) -> None:
        reported, self._reported = self._reported, set()
        for name in [*self._open | reported]:
            if not self._locks.held(name):  # otherwise it is just being changed
                await self._resolve_later(name)
            elif name in reported:
                self._reported.add(name)
        if self._logs.monotonic_ms() >= self._ask_at_ms and self._known.is_set():
            self._ask_at_ms = self._logs.monotonic_ms() + ASK_EVERY_S * 1000
            await self._look_at_all()

    # -- entries -------------------------------------------------------------------------------------------------------

    def _set(self, name: str, entry: Entry | None) -> None:
        before = self._entries.pop(name, None)
        if before is not None:
            for topic in (before.definition.source, before.definition.dest):
                names = self._by_topic.get(topic, set())
                names.discard(name)
                if not names:
                    self._by_topic.pop(topic, None)
        if entry is not None:
            self._entries[name] = entry
            for topic in (entry.definition.source, entry.definition.dest):
                self._by_topic.setdefault(topic, set()).add(name)
        if entry is not None and entry.phase is not Phase.MADE:
            self._open.add(name)
        else:
            self._open.discard(name)

    async def _record(self, name: str, entry: Entry | None, *, frees: bool = False) -> None:
        """Write an entry, or its deletion. It is valid from the call on. After an error, the former entry is valid
        again."""
        before = self._entries.get(name)
        self._set(name, entry)
        try:
            if entry is None:
                await self._states.delete(ENTRY_KIND, name)
            else:
                await self._states.put(ENTRY_KIND, name, _encode(entry), frees=frees)
        except StorageError:
            if self._entries.get(name) is entry:
                self._set(name, before)
            raise

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _call(self, cell: int, method: str, argument: Any, timeout_s: float = CALL_S) -> Any:
        neighbours = self._logs.neighbours
        assert neighbours is not None
        if cell == neighbours.me:
            return await self._orders.methods[method](argument)
        return await neighbours.call(cell, method, argument, timeout_s=timeout_s)

    async def _order(self, cell: int, method: str, *arguments: Any) -> Any:
        """The result of a method that carries the era."""
        try:
            return await self._call(cell, method, [self._era.now, *arguments])
        except BaseException as error:
            if not isinstance(error, StorageError) or error.outcome != "none":
                self._era.end()  # it may not have arrived yet, and must not be carried out any more
            raise

    # -- operations ----------------------------------------------------------------------------------------------------

    async def put(self, name: str, definition: Definition) -> tuple[RouterState, bool]:
        """See `Routers.put`."""
        check_router_name(name)
        check_definition(definition)
        await self._known.wait()
        async with self._locks.hold(name):
            await self._close(name)
            return await self._put(name, definition)

    async def change(self, name: str, changed: Callable[[Definition], Definition]) -> RouterState:
        """See `Routers.change`."""
        check_router_name(name)
        await self._known.wait()
        async with self._locks.hold(name):
            await self._resolve(name)
            entry = self._entries.get(name)
            if entry is None:
                raise RouterNotFound(name)
            definition = changed(entry.definition)
            check_definition(definition)
            state, _ = await self._put(name, definition)
            return state

    async def delete(self, name: str) -> bool:
        """See `Routers.delete`."""
        check_router_name(name)
        await self._known.wait()
        async with self._locks.hold(name):
            await self._close(name)
            entry = self._entries.get(name)
            if entry is None:
                return False
            await self._record(name, msgspec.structs.replace(entry, phase=Phase.LEAVING), frees=True)
            try:
                was_there = await self._order(entry.cell, "router_unmake", name)
            except StorageError as error:
                if error.outcome == "none":
                    await self._undo(name, entry)
                raise
            with suppress(StorageError):  # otherwise `_tick` does it
                await self._record(name, None)
            return was_there

    async def describe(self, name: str) -> RouterState:
        """The state of a router, from the cell that runs it. Raises InvalidRequest, RouterNotFound, Unavailable."""
        check_router_name(name)
        await self._known.wait()
        entry = self._entries.get(name)
        found = None if entry is None else await self._call(entry.cell, "router_state", name)
        if found is None:
            raise RouterNotFound(name)
        return msgspec.convert(found, RouterState)

    async def _put(self, name: str, definition: Definition) -> tuple[RouterState, bool]:
        self._logs.check_open()
        old = self._entries.get(name)
        if old is not None:
            check_ends(name, definition, old.definition)
        cell = old.cell if old is not None else await self._cell_for(definition)
        for _ in range(MAX_FOLLOWED):
            await self._check(name, definition, old)
            router_id = 0 if old is None else old.router_id
            # In `_entries` before anybody else can check.
            await self._record(name, Entry(phase=Phase.MAKING, cell=cell, definition=definition, router_id=router_id))
            try:
                made = await self._order(cell, "router_make", name, definition.to_map())
            except StorageError as error:
                if error.outcome == "none":
                    await self._undo(name, old)
                raise
            if len(made) == 3:
                router_id, created, state = made
                entry = Entry(phase=Phase.MADE, cell=cell, definition=definition, router_id=router_id)
                with suppress(StorageError):  # otherwise `_tick` finds the router there
                    await self._record(name, entry)
                return msgspec.convert(state, RouterState), created
            (cell,) = made
        await self._undo(name, old)
        raise NotReady(f"The dest of {name} was not found in the cells that should have it.")

    async def _undo(self, name: str, old: Entry | None) -> None:
        """Nothing was done."""
        with suppress(StorageError):  # otherwise `_tick` finds that
            await self._record(name, old, frees=True)

    async def _cell_for(self, definition: Definition) -> int:
        """The cell of the destination, or the cell where it will be created: that of the source."""
        dest_cell, there = await self._placing.find(definition.dest)
        if there:
            return dest_cell
        if not definition.create_dest:
            raise TopicNotFound(definition.dest)
        source_cell, _ = await self._placing.find(definition.source)
        return source_cell

    async def _check(self, name: str, definition: Definition, old: Entry | None) -> None:
        """Raises RouterCycle or LimitReached, if that is still true after asking the cells of the other routers."""
        asked = False
        while True:
            try:
                others = [each.definition for key, each in self._entries.items() if key != name]
                check_cycle(others, definition)
                if old is None:
                    check_room(len(others), self._logs.options.max_routers)
                return
            except RouterCycle as error:
                if asked:
                    raise
                circle: list[str] = error.detail["cycle"]
                edges = {*pairwise(circle)}
                names = {
                    key
                    for topic in circle
                    for key in self._by_topic.get(topic, ())
                    if (self._entries[key].definition.source, self._entries[key].definition.dest) in edges
                }
                await self._resolve_all(names - {name})
            except LimitReached:
                if asked:
                    raise
                await self._look_at_all()
            asked = True

    # -- finding out ---------------------------------------------------------------------------------------------------

    async def _close(self, name: str) -> None:
        """Close an open entry. Its lock is held. Raises StorageError if that cannot be done now."""
        if name in self._open:
            await self._resolve(name)

    async def _resolve(self, name: str, cell: int | None = None) -> None:
        """Set the entry to the answer of its cell. Its lock is held. `cell`: for a router without an entry."""
        entry = self._entries.get(name)
        cell = entry.cell if entry is not None else cell
        if cell is None:
            return
        if entry is not None and entry.phase is Phase.LEAVING:
            await self._order(cell, "router_unmake", name)
            found = None
        else:
            found = await self._order(cell, "router_look", name)
        if found is None:
            if entry is not None:
                await self._record(name, None)
            return
        router_id, definition = found
        new = Entry(phase=Phase.MADE, cell=cell, definition=Definition.from_map(definition), router_id=router_id)
        if new != entry:
            await self._record(name, new)

    async def _resolve_later(self, name: str, cell: int | None = None) -> None:
        """`_resolve`, or nothing if it cannot be done now."""
        async with self._locks.hold(name):
            try:
                await self._resolve(name, cell)
            except StorageError as error:
                _log.info("router_not_resolved", router=name, error=str(error))

    async def _resolve_all(self, names: Iterable[str], cell: int | None = None) -> None:
        """`_resolve_later` for the routers that nobody is changing: a holder of a lock must not wait for another
        one."""
        for name in names:
            if not self._locks.held(name):
                await self._resolve_later(name, cell)

    async def _look_at_all(self) -> None:
        """Compare the entries with the routers of all cells."""
        for cell in range(self._logs.options.cells):
            with suppress(StorageError):  # nothing is known of a cell that is away
                await self._look_at(cell)

    async def _look_at(self, cell: int) -> None:
        found: dict[str, int] = {}
        after = ""
        while True:
            page = await self._call(cell, "router_list", after)
            found.update((name, router_id) for name, router_id in page)
            if len(page) < PAGE:
                break
            after = page[-1][0]
        ours = {name: entry.router_id for name, entry in self._entries.items() if entry.cell == cell}
        gone_or_other = [name for name, router_id in ours.items() if found.get(name) != router_id]
        unknown = [name for name in found if name not in self._entries]
        await self._resolve_all([*gone_or_other, *unknown], cell)

    async def _report(self, argument: Any) -> None:
        """These routers have ended, or may have ended."""
        self._reported.update(name for name in argument if name in self._entries)

    async def _ends(self, argument: Any) -> list[str]:
        """Names of the routers that have this topic as source or dest. `look`: leave out routers that have ended, which
        takes calls to their cells."""
        topic, look = argument
        self._logs.check_open()
        if look:
            await self._resolve_all(sorted(self._by_topic.get(topic, ())))
        return sorted(self._by_topic.get(topic, ()))

    async def _out_of(self, argument: Any) -> list[tuple[str, int]]:
        """(name, router_id) of the routers with that source that run in other cells than this one."""
        topic, of_cell = argument
        self._logs.check_open()
        found = [(name, self._entries[name]) for name in sorted(self._by_topic.get(topic, ()))]
        return [
            (name, entry.router_id)
            for name, entry in found
            if entry.definition.source == topic and entry.cell != of_cell
        ]

    async def _topic_gone(self, argument: Any) -> list[tuple[str, int]]:
        """A topic of that cell was deleted: end the routers that copy from it. Returns those that remain, like
        `_out_of`: routers of a new topic with that name, or in a cell that is away."""
        topic_id, topic, of_cell = argument
        self._logs.check_open()
        for cell in sorted({self._entries[name].cell for name, _ in await self._out_of([topic, of_cell])}):
            with suppress(StorageError):  # that cell finds out itself
                await self._call(cell, "router_end", topic_id)
        for name in sorted(self._by_topic.get(topic, ())):
            await self._resolve_later(name)
        return await self._out_of([topic, of_cell])
